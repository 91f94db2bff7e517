"""Checkpoints, collections and training runs written by older code still open (see tests/artefacts/README.md)."""

from __future__ import annotations

import json
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runner import Run
from qdrant_double import QdrantDouble

from pearl_qdrant.linking.ranking.rules import EXACT_CERTAINTY

ARCHIVE = Path(__file__).resolve().parents[1] / "artefacts" / "2026-11-22.tar.xz"

NEWER_BASE = """id\tname\taliases\ttypes
E1\tThe New York Times\tNYTimes\tNewspaper
E4\theart attack\tmyocardial infarction|coronary thrombosis\tDisease
E9\tparacetamol\tacetaminophen\tDrug
"""


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """The folder with what the older code wrote."""
    with tarfile.open(ARCHIVE) as archive:
        # Python 3.11.2, which Debian 12 has, does not know `filter` yet; the archive is our own.
        trusted = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(tmp_path / "older", **trusted)
    return tmp_path / "older"


@pytest.fixture(params=["embedded", "server"])
def place(request: pytest.FixtureRequest, older: Path) -> Iterator[tuple[str, str]]:
    """The kind of the older store, and its folder or URL."""
    if request.param == "embedded":
        yield "embedded", str(older / "store")
        return
    with QdrantDouble() as double:
        snapshot = (older / "server.snapshot").read_bytes()
        url = f"{double.url}/collections/papers/snapshots/upload"
        body = b'--b\r\nContent-Disposition: form-data; name="snapshot"\r\n\r\n' + snapshot + b"\r\n--b--\r\n"
        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        urllib.request.urlopen(urllib.request.Request(url, body, headers)).close()
        yield "server", double.url


NEW_YORK = "New York"
"""The name of two entities, `New York` and `new york`: letter case separates them now, where they were tied before."""


def summary(answers: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What a user sees of each answer, apart from its probabilities."""
    names = [[(c["entity_id"], c["name"], c["tie"]) for c in answer["candidates"]] for answer in answers]
    return [(a["mention"], a["entity_id"], a["nil_reason"], found) for a, found in zip(answers, names, strict=True)]


def probabilities(answers: list[dict[str, Any]]) -> list[float]:
    """Probabilities of all candidates of all answers."""
    return [candidate["probability"] for answer in answers for candidate in answer["candidates"]]


def without(answers: list[dict[str, Any]], *mentions: str) -> list[dict[str, Any]]:
    """The answers for all other mentions."""
    return [answer for answer in answers if answer["mention"] not in mentions]


def test_an_older_collection_verifies_and_gives_the_same_answers(place: tuple[str, str], older: Path, run: Run) -> None:
    """A calibrated collection of an older version is whole, and links to the entities that it did when it was written.

    Its names have no keys. The rules of today, which it did not have, change the probabilities of exact names alone.
    """
    kind, store = place
    common = ("--store", store, "--model", str(older / "model"))
    verified = run("collections", "verify", "papers", *common)
    words = ("--collection", "papers", "--json", "--threshold", "0.1", *common)
    linked = run("link", "--file", str(older / "mentions.txt"), *words)
    expected = json.loads((older / "answers.json").read_text("utf-8"))[kind]

    assert verified.status == 0, verified.err
    assert linked.status == 0, linked.err
    found: Any = linked.lines()
    assert summary(without(found, NEW_YORK)) == summary(without(expected, NEW_YORK))
    exact = [answer["mention"] for answer in found if answer["rule"]]
    assert exact == ["NYTimes", NEW_YORK, "zurich", "USA", "acetylsalicylic acid"]
    assert probabilities(without(found, *exact)) == pytest.approx(probabilities(without(expected, *exact)), abs=1e-6)
    ours, theirs = (next(a for a in answers if a["mention"] == NEW_YORK) for answers in (found, expected))
    assert (ours["entity_id"], theirs["nil_reason"]) == ("E8", "ambiguous")
    assert {c["entity_id"] for c in ours["candidates"][:2]} == {c["entity_id"] for c in theirs["candidates"][:2]}


def test_the_threshold_of_an_older_calibration_keeps_exact_names(place: tuple[str, str], older: Path, run: Run) -> None:
    """It is 0.994, more than an exact name has today; names of the base are linked all the same, and others are NIL."""
    common = ("--collection", "papers", "--store", place[1], "--model", str(older / "model"))

    linked: Any = run("link", "NYTimes", "zurich", "acetylsalicylic acid", "nothing", "--json", *common).lines()

    assert [answer["entity_id"] for answer in linked] == ["E1", "E6", "E5", None]
    assert [answer["probability"] for answer in linked[:3]] == pytest.approx([EXACT_CERTAINTY] * 3)
    assert linked[3]["nil_reason"] == "below_threshold"


def test_an_older_collection_takes_a_newer_release(place: tuple[str, str], older: Path, run: Run) -> None:
    """`ingest --update` adds and removes names in a collection of an older version."""
    common = ("--collection", "papers", "--store", place[1], "--model", str(older / "model"))
    base = older / "newer.tsv"
    base.write_text(NEWER_BASE, encoding="utf-8")
    updated = run("ingest", str(base), "--update", "--yes", *common)

    assert updated.status == 0, updated.err
    linked: Any = run("link", "acetaminophen", "--json", "--threshold", "0", *common).lines()
    assert linked[0]["candidates"][0]["entity_id"] == "E9"
    assert {candidate["entity_id"] for candidate in linked[0]["candidates"]} == {"E1", "E4", "E9"}
    assert run("collections", "verify", *common[1:]).status == 0


@pytest.mark.parametrize("name, runtime", [("model", "onnx"), ("model", "torch"), ("trained", "torch")])
def test_an_older_checkpoint_loads(older: Path, name: str, runtime: Any) -> None:
    """Checkpoints of an older version load in the runtimes that they were made for, with and without characters."""
    from pearl_qdrant.encoder.loading import load_encoder

    encoded = load_encoder(str(older / name), device="cpu", runtime=runtime).encode(["new york", "heart attack"])

    assert np.linalg.norm(encoded.vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert encoded.type_probabilities is not None


def test_an_older_run_resumes(older: Path, run: Run) -> None:
    """A training run stopped by an older version resumes at its step, and ends where a whole run of today ends."""
    from safetensors.numpy import load_file

    logged = (older / "half" / "training" / "log.csv").read_text("utf-8")
    words = "--steps 4 --batch 16 --seed 3 --save-every 2 --device cpu".split()
    fit = ("train", "fit", "--base", str(older / "model"), "--phrases", str(older / "corpus"), *words, "--out")
    resumed = run(*fit, str(older / "half"))
    whole = run(*fit, str(older / "whole"))

    assert resumed.status == whole.status == 0, resumed.err + whole.err
    assert (older / "half" / "training" / "log.csv").read_text("utf-8").startswith(logged)
    ends, base = (load_file(older / name / "model.safetensors") for name in ("half", "model"))
    for key, expected in load_file(older / "whole" / "model.safetensors").items():
        # Equal to the bit on the machine that wrote the state. Other processors round gradients otherwise, which
        # Adam turns into whole steps (3e-5) where a gradient is nearly 0, as that of a key's bias always is: so a few
        # weights may differ. Two lost steps would be half of what the run moved.
        if not key.endswith("key.bias"):
            assert np.abs(ends[key] - expected).sum() <= 0.1 * np.abs(expected - base[key]).sum(), key
    assert any(not np.array_equal(ends[key], base[key]) for key in ends)
