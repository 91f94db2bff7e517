"""A calibration that makes it worse is shown and not stored without force; a stored one can be removed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from calibrated_base import base_file, manifest_calibration
from cli_runner import Run

from pearl_qdrant.errors import CollectionNotFoundError
from pearl_qdrant.linking.calibration import CollectionFit, calibrate_collection
from pearl_qdrant.linking.calibration import calibrate as module
from pearl_qdrant.linking.calibration.calibrate import WorseCalibrationError, reset_calibration
from pearl_qdrant.linking.calibration.metrics import KindChange, Outcome
from pearl_qdrant.linking.ranking.scoring import EXACT_CERTAINTY


@pytest.fixture(autouse=True)
def few_made_mentions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer mentions of each kind, to save time."""
    monkeypatch.setattr(module, "PER_KIND", 8)


LOSS = KindChange("exact", 100, 100.0, Outcome(1.0, 0.0, 0.0), Outcome(0.388, 0.0, 0.612))


@pytest.fixture
def worse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fit loses exact names."""
    fitted = module.calibrate

    def calibrate(*args: Any, **keywords: Any) -> CollectionFit:
        return replace(fitted(*args, **keywords), changes=(LOSS,), is_worse=True)

    monkeypatch.setattr(module, "calibrate", calibrate)


@pytest.mark.usefixtures("worse")
def test_a_loss_is_refused_unless_it_is_forced(run: Run, ingested: Path) -> None:
    """The command shows the loss by kind and stores nothing; --force stores it, --dry-run only shows it."""
    refused = run("calibrate", "--precision", "0.5")

    assert refused.status == 1
    assert "makes it worse: it loses names of the base that are linked today. It was not stored." in refused.err
    assert "--force" in refused.err
    assert "exact                100    100.0 /   0.0 /   0.0    38.8 /   0.0 /  61.2" in refused.out
    assert "threshold" in refused.out.splitlines()[-1]
    assert refused.out.endswith("not stored\n")
    assert manifest_calibration(ingested) is None

    (shown,) = run("calibrate", "--precision", "0.5", "--dry-run", "--json").lines()
    assert (shown["is_worse"], shown["stored"]) == (True, False)
    assert manifest_calibration(ingested) is None

    (forced,) = run("calibrate", "--precision", "0.5", "--force", "--json").lines()
    assert (forced["is_worse"], forced["stored"]) == (True, True)
    assert manifest_calibration(ingested) is not None


@pytest.mark.usefixtures("worse")
def test_a_refused_calibration_leaves_the_stored_one(ingested: Path) -> None:
    """A program gets the fit with the error, and the links stay as they were."""
    before = calibrate_collection("base", store=ingested, precision=0.5, force=True).to_manifest()

    with pytest.raises(WorseCalibrationError) as error:
        calibrate_collection("base", store=ingested, precision=0.6)

    assert error.value.option == "force"
    assert error.value.found.changes == (LOSS,)
    assert error.value.found.replaced == before
    assert manifest_calibration(ingested) == before


def test_what_changes_is_reported_by_kind(run: Run, ingested: Path) -> None:
    """For each kind of mention: how many are right, wrong and NIL, before and after; exact names are all kept."""
    (record,) = run("calibrate", "--precision", "0.5", "--dry-run", "--json").lines()

    changes: Any = {change["kind"]: change for change in record["changes"]}
    assert {"exact", "case", "one slip", "alias", "nil removed", "nil other field"} < set(changes)
    assert sum(change["n"] for change in changes.values()) == record["mentions"]
    for change in changes.values():
        for when in ("before", "after"):
            assert sum(change[when].values()) == pytest.approx(1)
    for kind in ("exact", "case", "no spaces"):
        assert changes[kind]["after"]["right"] == pytest.approx(1)
    assert changes["nil removed"]["after"]["right"] == 0


def test_labelled_pairs_are_compared_with_made_mentions_too(run: Run, ingested: Path, tmp_path: Path) -> None:
    """The changes of a fit to pairs include those of exact names and other kinds, which it did not see."""
    base = [row.split("\t") for row in base_file(tmp_path).read_text("utf-8").splitlines()[1:41]]
    pairs = [f"qqq {i} zzz\tNIL" for i in range(30)] + [f"{name}\t{entity_id}" for entity_id, name, *_ in base]
    (tmp_path / "pairs.tsv").write_text("\n".join(pairs), encoding="utf-8")

    done = run("calibrate", "--pairs", str(tmp_path / "pairs.tsv"), "--precision", "0.1", "--dry-run", "--json")

    assert done.status == 0, done.err
    (record,) = done.lines()
    assert [change["kind"] for change in record["changes"]][:2] == ["labelled", "exact"]
    assert record["changes"][0]["n"] == record["mentions"] == 70
    assert record["changes"][0]["after"]["right"] == pytest.approx(40 / 70), "no name of the base is lost"
    assert 0 < record["threshold"] < EXACT_CERTAINTY


def test_a_calibration_is_reset(run: Run, ingested: Path) -> None:
    """--reset removes what calibrate stored, so that the defaults count again; a second time it says so. A program gets
    what it removed.
    """
    untouched = run("link", "e1", "--json").out
    assert run("calibrate", "--precision", "0.5").status == 0

    removed = run("calibrate", "--reset", "--collection", "base")

    assert (removed.status, removed.out) == (0, "base: the calibration was removed; the defaults count\n")
    assert manifest_calibration(ingested) is None
    assert run("link", "e1", "--json").out == untouched
    assert run("calibrate", "--reset").out == "base: there was no calibration; the defaults count\n"
    assert list(run("calibrate", "--reset", "--json").lines()) == [{"collection": "base", "removed": False}]
    for option in ("--dry-run", "--force"):
        refused = run("calibrate", "--reset", option)
        assert (refused.status, "--reset removes a calibration" in refused.err) == (2, True)

    stored = calibrate_collection("base", store=ingested, precision=0.5).to_manifest()
    assert reset_calibration("base", store=ingested) == stored
    assert reset_calibration("base", store=ingested) is None
    assert manifest_calibration(ingested) is None
    with pytest.raises(CollectionNotFoundError, match="absent"):
        reset_calibration("absent", store=ingested)
