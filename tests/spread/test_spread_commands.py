"""`ingest --parts` and `--ray` from the shell; without `--ray` nothing of Ray is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli_runner import Run
from qdrant_double import QdrantDouble
from spread_cases import write_base

from ingest.spread import runners
from ingest.spread.parts import Job, PartBuilder, Plan
from pearl_qdrant.errors import OptionError, StoreError
from pearl_qdrant.store.schema import Manifest


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A base of 20 entities."""
    return write_base(tmp_path / "towns.tsv", 20)


@pytest.mark.slow
def test_ingest_in_parts_reports_as_any_ingest(run: Run, base: Path, model: Path) -> None:
    """Counts on stdout, a second run is unchanged, another base is refused with the flags that help."""
    first = run("ingest", str(base), "--model", str(model), "--parts", "2", "--json")
    again = run("ingest", str(base), "--model", str(model), "--parts", "2", "--json")
    write_base(base, 5)
    other = run("ingest", str(base), "--model", str(model), "--parts", "2")

    assert first.status == 0, first.err
    assert first.lines()[-1]["points"] == 66
    assert again.lines()[-1]["is_unchanged"]
    assert other.status == 2
    assert "Start over with --restart" in other.err


@pytest.mark.slow
def test_parts_go_to_a_server(run: Run, base: Path, model: Path) -> None:
    """Parts are upserted to a server; the manifest is that of one load, and no checkpoint is left."""
    with QdrantDouble() as double:
        given = ("ingest", str(base), "--store", double.url, "--model", str(model), "--work", str(base.parent / "work"))
        done = run(*given, "--parts", "2", "--json")
        assert done.status == 0, done.err
        assert done.lines()[-1]["points"] == 66
        shown = run("collections", "show", "towns", "--store", double.url, "--json")
        again = run(*given, "--parts", "2", "--json")

    shown_json = json.loads(shown.out)
    assert shown_json["points"] == 66, shown.out
    assert again.lines()[-1]["is_unchanged"]
    assert list((base.parent / "work").iterdir()) == []


def test_options_that_do_not_fit_are_refused(run: Run, base: Path, model: Path) -> None:
    """`--update` and a lone `--work` are usage errors."""
    update = run("ingest", str(base), "--model", str(model), "--parts", "2", "--update")
    work = run("ingest", str(base), "--model", str(model), "--work", str(base.parent))

    assert (update.status, work.status) == (2, 2)
    assert "--ray and --parts make a new collection" in update.err
    assert "--work is for --ray and --parts" in work.err


def test_without_ray_there_is_advice(run: Run, base: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Ray is not installed, `--ray` names the command that installs it."""
    monkeypatch.setitem(sys.modules, "ray", None)

    done = run("ingest", str(base), "--model", str(model), "--ray", "auto")

    assert done.status == 2
    assert "Ray is not installed. Install it with: pip install" in done.err


def test_a_load_in_parts_imports_nothing_of_ray() -> None:
    """Only `--ray` imports Ray."""
    code = "import sys, ingest.spread.parts, ingest.spread.runners; sys.exit('ray' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_encoder_does_not_travel(base: Path, tmp_path: Path) -> None:
    """Workers of Ray load the model by name: an encoder object is refused before Ray starts."""
    from pearl_qdrant import load_base

    with pytest.raises(OptionError, match="Workers of Ray load the model themselves"):
        load_base(base, store=str(tmp_path), model=object(), ray="auto")  # type: ignore[arg-type]


def test_a_worker_that_sees_another_folder_is_refused(tmp_path: Path) -> None:
    """A machine of the cluster on which the work folder is not the shared one is an error that says so."""
    plan = Plan("d", "i", 1, "s", "c", "kb", "m", "int8")
    job = Job(str(tmp_path), plan, Manifest.model_construct(), "no-model", "cpu", None, None, None, 0.0)

    with pytest.raises(StoreError, match="does not see the work folder") as found:
        PartBuilder(job)

    assert found.value.option == "work"


@pytest.mark.parametrize(
    "address, why",
    [
        ("127.0.0.1:1", "refused"),
        ("nowhere", "give HOST:PORT"),
        ("host:x", "give HOST:PORT"),
    ],
)
def test_a_cluster_that_does_not_answer_is_explained(address: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the address, what is wrong, and how to start a cluster."""
    monkeypatch.setattr(runners, "_import_ray", lambda: SimpleNamespace(is_initialized=lambda: False))

    expected = rf"No Ray cluster answers at '{address}' \(.*{why}.*Ray's command 'ray start'"
    with pytest.raises(OptionError, match=expected) as found:
        runners.RayRunner(address)

    assert found.value.option == "ray"
