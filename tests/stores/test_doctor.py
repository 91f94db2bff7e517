"""`doctor`: the installation, and a server's version, key, strict mode and nodes, without a long wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_runner import Outcome, Run
from qdrant_double import QdrantDouble
from qdrant_double_http import Fault
from tiny_models import make_pearl

from pearl_qdrant import doctor as doctor_module
from pearl_qdrant import load_base
from pearl_qdrant.cli.ingest import LoadOutput
from pearl_qdrant.doctor import check_model, check_package, check_store, run_checks
from pearl_qdrant.encoder.protocol import Encoder

Doctor = Callable[[], Outcome]


@pytest.fixture(scope="module")
def double(tmp_path_factory: pytest.TempPathFactory, encoder: Encoder) -> Iterator[QdrantDouble]:
    """A server with one collection. What a test changes of it is undone."""
    base = tmp_path_factory.mktemp("base") / "base.tsv"
    base.write_text("E1\tw1 times\n", encoding="utf-8")
    with QdrantDouble() as double:
        load_base(base, store=double.url, model=encoder)
        yield double


def checks(outcome: Outcome) -> dict[str, tuple[str, str]]:
    """State and finding of each check."""
    return {str(line["check"]): (str(line["state"]), str(line["found"])) for line in outcome.lines()}


@pytest.fixture
def doctor(run: Run, double: QdrantDouble, model: Path) -> Doctor:
    """The command on that server, with a model that loads quickly."""
    return lambda: run("doctor", "--json", "--store", double.url, "--model", str(model))


def test_a_healthy_server_is_described(doctor: Doctor) -> None:
    """Version and key are shown, and a server without a cluster has no line on nodes."""
    found = checks(doctor())

    assert found["store"][0] == "ok"
    assert found["server"][0] == "ok"
    assert "Qdrant 1.19.0" in found["server"][1]
    assert found["key"] == ("ok", "may read and write")
    assert not found.keys() & {"nodes", "replicas", "strict mode"}


READ_ONLY = "may read, not write: enough to link, not to ingest, add or calibrate"
QUERY_100 = "base: requests keep to the limits of strict mode (query 100)"


@pytest.mark.parametrize(
    "change, expected",
    [
        (("version", "1.17.0"), ("server", "note", "")),
        (("version", "1.20.1"), ("server", "ok", "")),
        (("version", "dev"), ("server", "note", "")),
        (("version", "1.15.4"), ("store", "fail", "is 1.15.4, and 1.16 or later is needed")),
        (("read_only", True), ("key", "note", READ_ONLY)),
        (("limits", {"max_query_limit": 100}), ("strict mode", "note", QUERY_100)),
    ],
)
def test_what_a_server_does_not_allow_is_noted(
    run: Run,
    double: QdrantDouble,
    doctor: Doctor,
    monkeypatch: pytest.MonkeyPatch,
    change: tuple[str, object],
    expected: tuple[str, str, str],
) -> None:
    """A release two minor versions away gives a note; with a read-only key I learn that I can link but not ingest;
    limits of strict mode are listed. A release too old to store manifests is refused by each command.
    """
    check, state, finding = expected
    monkeypatch.setattr(double, *change)
    found = checks(doctor())[check]

    assert found[0] == state
    assert finding in found[1] if state == "fail" else finding in ("", found[1])
    listed = run("collections", "list", "--store", double.url)
    assert (listed.status, "1.16 or later is needed" in listed.err) == ((1, True) if state == "fail" else (0, False))


def test_missing_nodes_and_replicas_fail(double: QdrantDouble, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreachable node and a dead replica of a cluster are named, and the exit status is 1."""
    monkeypatch.setattr(double.cluster_state, "nodes", (11, 12))
    monkeypatch.setattr(double.cluster_state, "away", {12})
    monkeypatch.setattr(double, "replica_states", ["Active", "Dead"])
    outcome = doctor()
    found = checks(outcome)

    assert outcome.status == 1
    assert found["nodes"][0] == "fail"
    assert "http://node-12:6335/" in found["nodes"][1]
    assert found["replicas"] == (
        "fail",
        "base: shard 1 on node 2 is Dead. Start the nodes again; the replicas then recover.",
    )


def test_a_server_that_hangs_is_tried_once(
    double: QdrantDouble, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that accepts a request and never answers is given a few seconds, once."""
    monkeypatch.setattr(doctor_module, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(double, "faults", [Fault("hang", match="GET /collections$") for _ in range(5)])
    n_before, began = len(double.requests), time.monotonic()
    state, found = checks(doctor())["store"]

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
