"""`doctor`: the installation, and a server's version, key, strict mode and nodes, without a long wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runner import Outcome, Run
from qdrant_double import QdrantDouble
from qdrant_double_http import Fault
from tiny_models import make_pearl

from pearl_qdrant import doctor as doctor_module
from pearl_qdrant.cli.ingest import LoadOutput
from pearl_qdrant.doctor import check_model, check_package, check_store, run_checks


@pytest.fixture
def double(run: Run, model: Path, tmp_path: Path) -> Iterator[QdrantDouble]:
    """A server with one collection."""
    base = tmp_path / "base.tsv"
    base.write_text("E1\tw1 times\n", encoding="utf-8")
    with QdrantDouble() as double:
        assert run("ingest", str(base), "--model", str(model), "--store", double.url).status == 0
        yield double


def checks(outcome: Outcome) -> dict[str, tuple[str, str]]:
    """State and finding of each check."""
    return {str(line["check"]): (str(line["state"]), str(line["found"])) for line in outcome.lines()}


def doctor(run: Run, double: QdrantDouble) -> dict[str, tuple[str, str]]:
    """Run `doctor` and return its checks."""
    return checks(run("doctor", "--json", "--store", double.url))


def test_a_healthy_server_is_described(run: Run, double: QdrantDouble) -> None:
    """Version and key are shown, and a server without a cluster has no line on nodes."""
    found = doctor(run, double)

    assert found["store"][0] == "ok"
    assert found["server"][0] == "ok"
    assert "Qdrant 1.19.0" in found["server"][1]
    assert found["key"] == ("ok", "may read and write")
    assert not found.keys() & {"nodes", "replicas", "strict mode"}


@pytest.mark.parametrize("version, state", [("1.17.0", "note"), ("1.20.1", "ok"), ("dev", "note")])
def test_an_older_or_newer_server_is_reported(run: Run, double: QdrantDouble, version: str, state: str) -> None:
    """A server that is two minor versions away gives a note."""
    double.version = version

    assert doctor(run, double)["server"][0] == state


def test_a_server_that_is_too_old_is_refused(run: Run, double: QdrantDouble) -> None:
    """A server too old to store manifests is refused by each command, with the least release."""
    double.version = "1.15.4"
    state, found = doctor(run, double)["store"]

    assert state == "fail"
    assert "is 1.15.4, and 1.16 or later is needed" in found
    outcome = run("collections", "list", "--store", double.url)
    assert outcome.status == 1
    assert "1.16 or later is needed" in outcome.err


@pytest.mark.parametrize(
    "setting, value, check, finding",
    [
        ("read_only", True, "key", "may read, not write: enough to link, not to ingest, add or calibrate"),
        (
            "limits",
            {"max_query_limit": 100},
            "strict mode",
            "base: requests keep to the limits of strict mode (query 100)",
        ),
    ],
    ids=["read-only key", "limits"],
)
def test_what_a_server_does_not_allow_is_noted(
    run: Run, double: QdrantDouble, setting: str, value: object, check: str, finding: str
) -> None:
    """With a read-only key I learn that I can link but not ingest; limits of strict mode are listed."""
    setattr(double, setting, value)

    assert doctor(run, double)[check] == ("note", finding)


def test_missing_nodes_and_replicas_fail(run: Run, double: QdrantDouble) -> None:
    """An unreachable node and a dead replica of a cluster are named, and the exit status is 1."""
    double.cluster_state.nodes, double.cluster_state.away = (11, 12), {12}
    double.replica_states = ["Active", "Dead"]
    outcome = run("doctor", "--json", "--store", double.url)
    found = checks(outcome)

    assert outcome.status == 1
    assert found["nodes"][0] == "fail"
    assert "http://node-12:6335/" in found["nodes"][1]
    assert found["replicas"] == (
        "fail",
        "base: shard 1 on node 2 is Dead. Start the nodes again; the replicas then recover.",
    )


def test_a_server_that_hangs_is_tried_once(run: Run, double: QdrantDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that accepts a request and never answers is given a few seconds, once."""
    monkeypatch.setattr(doctor_module, "TIMEOUT_S", 0.2)
    double.faults = [Fault("hang", match="GET /collections$") for _ in range(5)]
    n_before, began = len(double.requests), time.monotonic()
    state, found = doctor(run, double)["store"]

    assert state == "fail"
    assert "did not answer after 1 try in" in found
    assert "timeout" in found
    assert double.requests[n_before:] == ["GET /", "GET /collections"]
    assert time.monotonic() - began < 60  # bounds a hang


def test_the_progress_of_the_graph_is_shown_when_it_changes(capsys: pytest.CaptureFixture[str]) -> None:
    """While a server builds the graph, I see a line at the start and for every tenth, not for every poll."""
    output = LoadOutput("ingest", "base.tsv")
    for done in (0, 0, 0, 1000, 1000, 40_000, 40_000, 41_000, 99_000, 100_000):
        output.graph_built(done, 100_000)
    lines = capsys.readouterr().err.splitlines()

    assert len(lines) == 3
    assert "40,000 done" in lines[1]


def test_a_working_installation_has_no_failed_check(tmp_path: Path) -> None:
    """Every check has a subject, a state and a finding."""
    model = make_pearl(tmp_path / "model").folder
    checks = {check.subject: check for check in run_checks(str(tmp_path / "store"), str(model))}

    assert checks.keys() >= {"python", "package", "numpy", "torch", "model", "store"}
    assert {check.state for check in checks.values()} <= {"ok", "note"}
    assert checks["store"].finding == f"{tmp_path / 'store'}: 0 collections"


def test_a_failed_check_says_what_to_do(tmp_path: Path) -> None:
    """A missing package, model or store is a failed check and not an exception."""
    (tmp_path / "file").write_text("", encoding="utf-8")

    assert check_package("no-such-package").finding == "not installed. Fix: pip install no-such-package"
    assert check_model("no/such@model?").state == "fail"
    assert [check.state for check in check_store(str(tmp_path / "file"))] == ["fail"]
    assert [check.state for check in check_store("http://user:key@localhost:1")] == ["fail"]
