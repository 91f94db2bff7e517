"""Loads by the workers of a real Ray cluster on this machine, in processes of their own, into a server."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from cli_runner import Run
from qdrant_double import QdrantDouble
from qdrant_double_http import Fault
from small_loads import write_base
from store_cases import check_same_load

from ingest.load import cluster
from ingest.load.request import LoadRequest
from pearl_qdrant import load_base
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import OptionError, SettingsError
from pearl_qdrant.store import open_store

with_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
HANG_S = 500
N_ENTITIES = 5000
SERVER = "http://127.0.0.1:9"


@pytest.fixture
def double() -> Iterator[QdrantDouble]:
    """An empty server."""
    with QdrantDouble() as started:
        yield started


def command(base: Path, url: str, model: Path) -> list[str]:
    """The command that loads a base by workers of Ray."""
    words = [sys.executable, "-m", "pearl_qdrant", "ingest", str(base), "--collection", "spread"]
    return [*words, "--store", url, "--model", str(model), "--set", "ray=auto", "--json"]


def ended(words: list[str]) -> subprocess.CompletedProcess[str]:
    """A command that has ended."""
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=HANG_S)


def workers_of(driver: psutil.Process) -> list[psutil.Process]:
    """Processes of the cluster that a command started which write windows."""
    found = []
    for process in driver.children(recursive=True):
        try:
            if "_Writer" in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def wait_for(is_true: Callable[[], object], driver: subprocess.Popen[bytes]) -> None:
    """Return when something has happened; a command that ends before is an error."""
    end = time.monotonic() + HANG_S
    while not is_true():
        assert driver.poll() is None
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.05)


@with_ray
@pytest.mark.slow
def test_workers_of_ray_load_what_one_process_loads(
    tmp_path: Path, double: QdrantDouble, encoder: Encoder, model: Path
) -> None:
    """A killed worker gets its window again; after a kill of the command, the same one completes the collection."""
    base = write_base(tmp_path / "base.tsv", N_ENTITIES)
    load_base(base, "whole", kb="spread", store=double.url, model=encoder)
    words = command(base, double.url, model)
    before = len(double.upsert_sizes)
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
        wait_for(lambda: len(double.upsert_sizes) > before, driver)
        killed = workers_of(psutil.Process(driver.pid))
        for worker in killed:
            worker.kill()
        n_then = len(double.upsert_sizes)
        wait_for(lambda: len(double.upsert_sizes) > n_then + 1, driver)
        driver.kill()

    done = ended(words)

    assert killed
    assert done.returncode == 0, done.stderr
    with closing(open_store(double.url)) as store:
        check_same_load(store.open("whole"), store.open("spread"))
    assert load_base(base, "spread", store=double.url, model=encoder).is_unchanged


@with_ray
@pytest.mark.slow
def test_what_a_worker_meets_is_one_line(tmp_path: Path, double: QdrantDouble, model: Path) -> None:
    """A server that refuses the points is an error of the command, without a trace, and the cluster ends."""
    base = write_base(tmp_path / "base.tsv", 20)
    double.faults = [Fault("status", status=400, error="no such thing")]

    done = ended(command(base, double.url, model))

    assert done.returncode == 1
    assert "no such thing" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_ray_there_is_advice(run: Run, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Ray is not installed, `ray` names the command that installs it."""
    monkeypatch.setitem(sys.modules, "ray", None)
    base = write_base(tmp_path / "base.tsv", 2)

    done = run("ingest", str(base), "--model", str(model), "--store", SERVER, "--set", "ray=auto")

    assert done.status == 2
    assert "Ray is not installed. Install it with: pip install" in done.err


def test_a_load_imports_nothing_of_ray() -> None:
    """Only the setting `ray` imports Ray."""
    code = "import sys, ingest.load_base; sys.exit(bool({'ray', 'pyarrow'} & set(sys.modules)))"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_does_not_travel_is_refused(tmp_path: Path) -> None:
    """Workers of Ray load the model by name, and write to a server: others are refused before Ray starts."""
    base = write_base(tmp_path / "base.tsv", 2)
    with pytest.raises(OptionError, match="Workers of Ray load the model themselves") as of_model:
        load_base(base, store=SERVER, model=object(), ray="auto")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="Give the URL of a server") as of_store:
        load_base(base, store=str(tmp_path / "store"), ray="auto")

    assert (of_model.value.option, of_store.value.option) == ("model", "store")
    assert not (tmp_path / "store").exists()


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
    monkeypatch.setattr(cluster, "_import_ray", lambda: SimpleNamespace(is_initialized=lambda: False))

    expected = rf"No Ray cluster answers at '{address}' \(.*{why}.*Ray's command 'ray start'"
    with pytest.raises(OptionError, match=expected) as found:
        cluster.RayCluster(LoadRequest(store=SERVER, ray=address))

    assert found.value.option == "ray"
