"""Calibration of a collection: labels, the library call, and the command, on a small base. A calibration that makes it
worse is shown and not stored without force; a stored one can be removed. The mentions whose answers would tell most.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from calibrated_base import base_file, manifest_calibration
from cli_runner import Run

from pearl_qdrant import EntityLinker
from pearl_qdrant.errors import CollectionNotFoundError, FormatError
from pearl_qdrant.linking.calibration import (
    CalibrationData,
    CollectionFit,
    Label,
    calibrate_collection,
    choose_to_label,
    read_pairs,
)
from pearl_qdrant.linking.calibration import calibrate as module
from pearl_qdrant.linking.calibration.calibrate import WorseCalibrationError, reset_calibration
from pearl_qdrant.linking.calibration.metrics import KindChange, Outcome
from pearl_qdrant.linking.ranking.scoring import EXACT_CERTAINTY
from pearl_qdrant.store import open_store
from pearl_qdrant.store.schema import LinkCalibration

OWN = {
    "slope": 1.0,
    "nil_bias": 0.0,
    "threshold": 0.0,
    "features": {"dense": 7.0, "judge": 0.0},
    "decision": {"dense": 3.0},
    "nil_features": {"bias": 1.0},
}
"""A calibration with coefficients of its own."""


def store_calibration(path: Path, changed: Mapping[str, Any]) -> LinkCalibration:
    """Store a calibration in the collection."""
    calibration = LinkCalibration.model_validate(changed)
    with closing(open_store(path)) as store:
        target = store.open("base")
        target.write_manifest(target.manifest.model_copy(update={"calibration": calibration}))
    return calibration


def check_changes(record: Mapping[str, Any]) -> None:
    """For each kind of mention: how many are right, wrong and NIL, before and after; exact names are all kept."""
    changes: Any = {change["kind"]: change for change in record["changes"]}
    assert {"exact", "case", "one slip", "alias", "nil removed", "nil other field"} < set(changes)
    assert sum(change["n"] for change in changes.values()) == record["mentions"]
    for change in changes.values():
        for when in ("before", "after"):
            assert sum(change[when].values()) == pytest.approx(1)
    for kind in ("exact", "case", "no spaces"):
        assert changes[kind]["after"]["right"] == pytest.approx(1)
    assert changes["nil removed"]["after"]["right"] == 0


def test_repeated_pairs_count_once(tmp_path: Path) -> None:
    """A file of pairs is read as labelled mentions are; a broken row is named by its line."""
    path = tmp_path / "pairs.tsv"
    path.write_text("\ufeffmention\tentity_id\nNYT\tnyt\nNYT\tnyt\nnone\tNIL\tmore\r\n\n", encoding="utf-8")

    assert read_pairs(path) == [Label("NYT", "nyt"), Label("none", None)]
    path.write_bytes(b"NYT\tnyt\n\xff\tx\n")
    with pytest.raises(FormatError, match=r"pairs\.tsv:2: "):
        read_pairs(path)


def test_calibrate_fits_to_the_names_of_the_base_and_stores_it(run: Run, ingested: Path, tmp_path: Path) -> None:
    """Without pairs I get figures before and after, a diagram, and a manifest that the linker uses from then on."""
    figure = tmp_path / "reliability.png"
    dry = run("calibrate", "--precision", "0.5", "--dry-run", "--json")
    assert dry.status == 0, dry.err
    assert manifest_calibration(ingested) is None

    done = run("calibrate", "--collection", "base", "--precision", "0.5", "--set", f"figure={figure}")

    assert done.status == 0, done.err
    assert "after, cross-fitted" in done.out
    assert figure.read_bytes()[:4] == b"\x89PNG"
    (record,) = dry.lines()
    check_changes(record)
    stored = manifest_calibration(ingested)
    assert stored is not None
    assert (record["slope"], record["nil_bias"]) == (round(stored.slope, 4), round(stored.nil_bias, 4))
    assert record["fitted_on"] == "names"
    assert record["nil_share"] == pytest.approx(0.2, abs=0.05), "the share of NIL in the mixture"
    assert (record["is_worse"], record["stored"]) == (False, False)
    assert stored.threshold <= EXACT_CERTAINTY
    assert run("link", "e1", "--json").status == 0
    assert json.loads(run("collections", "show", "base", "--json").out)["calibration"]["target_precision"] == 0.5
    assert "fitted_on names, mentions " in run("collections", "show", "base").out


def test_calibrate_on_pairs_weights_to_a_share_of_nil(run: Run, ingested: Path, tmp_path: Path) -> None:
    """Pairs that include NIL mentions are weighted to the requested share. Without any, some of their entities count
    as absent.
    """
    store = open_store(ingested)
    names = [(p.name, p.entity_id) for p in store.open("base").scroll() if p.entity_id[0] == "e"]
    store.close()
    path = tmp_path / "pairs.tsv"
    rows = [f"{name}x\t{key}" for name, key in names] + [f"qqq {i} zzz\tNIL" for i in range(20)]
    path.write_text("\n".join(rows), encoding="utf-8")

    weighted = CalibrationData(path, nil_share=0.4)
    fitted = calibrate_collection("base", weighted, store=str(ingested), precision=0.5, dry_run=True)
    assert (fitted.fit.n_nil, round(fitted.fit.nil_share, 4)) == (20, 0.4)
    (labelled,) = (change for change in fitted.changes if change.kind == "labelled")
    assert labelled.n == fitted.fit.after.n
    assert asdict(labelled.after) == pytest.approx({"right": 0.6, "wrong": 0.0, "nil": 0.4}, abs=0.02)
    known = CalibrationData([Label(name, key) for name, key in names[:50]], nil_share=0.3)
    absent = calibrate_collection("base", known, store=str(ingested), precision=0.5, dry_run=True).fit
    assert (absent.n_nil, absent.after.n) == (15, 50)
    done = run("calibrate", "--labelled", str(path), "--precision", "0.5", "--json")

    assert done.status == 0, done.err
    (record,) = done.lines()
    assert (record["fitted_on"], record["nil_mentions"]) == ("pairs", 20)
    stored = manifest_calibration(ingested)
    assert stored is not None
    assert (stored.features is not None) == record["ranking_fitted"]


def test_the_linker_uses_the_coefficients_of_its_collection(run: Run, ingested: Path) -> None:
    """They are in the manifest; an unknown one is reported, and can be fitted again, or go with a reset."""
    store_calibration(ingested, OWN)
    (link,) = run("link", "oneword", "--json", "--explain").lines()
    best = link["candidates"][0]
    assert best["score"] == pytest.approx(7 * best["features"]["dense"])
    store_calibration(ingested, {**OWN, "decision": {"dense": 13.0}})
    (other,) = run("link", "oneword", "--json", "--explain").lines()
    gained = other["candidates"][0]["decision"]["dense"] - best["decision"]["dense"]
    assert gained == pytest.approx(10 * best["features"]["dense"])
    store_calibration(ingested, {**OWN, "nil_features": {"bias": 40.0}})
    (unlikely,) = run("link", "oneword", "--json").lines()
    assert unlikely["candidates"][0]["probability"] < 1e-6 < best["probability"]

    store_calibration(ingested, {**OWN, "features": {"dense": 7.0}})
    assert "Another version of pearl-qdrant calibrated" in run("link", "oneword").err, "it knew no judge"
    store_calibration(ingested, {**OWN, "features": {"density": 7.0}})
    refused = run("link", "oneword")
    assert refused.status == 1
    assert "Another version of pearl-qdrant calibrated" in refused.err
    assert "'density'" in refused.err
    assert "ranking fitted too" in run("collections", "show", "base").out
    assert run("calibrate", "--precision", "0.5").status == 0
    assert run("link", "oneword").status == 0

    store_calibration(ingested, {**OWN, "features": {"density": 7.0}})
    assert run("calibrate", "--reset").status == 0
    assert run("link", "oneword").status == 0


@pytest.mark.parametrize(
    "rows, expected",
    [
        (["a\te1"] * 3, "There are 1 pairs, 1 of them with an entity"),
        ([f"m{i}\tunknown{i}" for i in range(60)], "60 of 60 entity ids are not in collection 'base', e.g. unknown0"),
        ([f"m{i}\te1" for i in range(59)] + ["m\tnope"], "1 of 2 entity ids are not in collection 'base', e.g. nope"),
        ([f"m{i}\tNIL" for i in range(60)], "60 pairs, 0 of them with an entity"),
    ],
)
def test_unsuitable_pairs_are_refused(run: Run, ingested: Path, tmp_path: Path, rows: list[str], expected: str) -> None:
    """Too few pairs, unknown ids, or nothing but NIL give an error, and nothing is stored."""
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(rows), encoding="utf-8")

    done = run("calibrate", "--labelled", str(path))

    assert done.status == 1
    assert expected in done.err
    assert manifest_calibration(ingested) is None


def test_a_base_without_aliases_is_calibrated_too(run: Run, tmp_path: Path, model: Path) -> None:
    """Canonical names alone give mentions of every kind but one: true aliases."""
    names = base_file(tmp_path).read_text("utf-8").splitlines()[1:81]
    path = tmp_path / "bare.tsv"
    path.write_text("\n".join(["id\tname", *("\t".join(row.split("\t")[:2]) for row in names)]), encoding="utf-8")
    assert run("ingest", str(path), "--model", str(model), "--collection", "base").status == 0

    done = run("calibrate", "--precision", "0.5", "--json")

    assert done.status == 0, done.err
    (record,) = done.lines()
    kinds = {change["kind"] for change in record["changes"]}
    assert {"exact", "one slip", "in words", "nil removed"} < kinds
    assert "alias" not in kinds
    assert record["stored"]


def test_a_base_of_a_few_names_asks_for_pairs(run: Run, tmp_path: Path, model: Path) -> None:
    """If there is too little to make mentions from, the error asks for labelled pairs."""
    path = tmp_path / "few.tsv"
    path.write_text("id\tname\n1\tabc\n2\tdef\n", encoding="utf-8")
    assert run("ingest", str(path), "--model", str(model), "--collection", "base").status == 0

    done = run("calibrate")

    assert done.status == 1
    assert "at least 50 are needed" in done.err
    assert "--labelled" in done.err
    assert manifest_calibration(tmp_path / "store") is None


LOSS = KindChange("exact", 100, 100.0, Outcome(1.0, 0.0, 0.0), Outcome(0.388, 0.0, 0.612))


@pytest.fixture(scope="module")
def fitted(filled_store: Path) -> CollectionFit:
    """A calibration of the base, which is not stored."""
    return calibrate_collection("base", store=filled_store, precision=0.5, dry_run=True)


@pytest.fixture
def worse(monkeypatch: pytest.MonkeyPatch, fitted: CollectionFit) -> None:
    """Every fit is this one, and loses exact names."""
    monkeypatch.setattr(module, "calibrate", lambda *_: replace(fitted, changes=(LOSS,), is_worse=True))


@pytest.mark.usefixtures("worse")
def test_a_loss_is_refused_unless_it_is_forced(run: Run, ingested: Path) -> None:
    """The command shows the loss by kind and stores nothing; --yes stores it, --dry-run only shows it."""
    refused = run("calibrate", "--precision", "0.5")

    assert refused.status == 1
    assert "makes it worse: it loses names of the base that are linked today. It was not stored." in refused.err
    assert "--yes" in refused.err
    assert "exact                100    100.0 /   0.0 /   0.0    38.8 /   0.0 /  61.2" in refused.out
    assert "threshold" in refused.out.splitlines()[-1]
    assert refused.out.endswith("not stored\n")
    assert manifest_calibration(ingested) is None

    (shown,) = run("calibrate", "--precision", "0.5", "--dry-run", "--json").lines()
    assert (shown["is_worse"], shown["stored"]) == (True, False)
    assert manifest_calibration(ingested) is None

    (forced,) = run("calibrate", "--precision", "0.5", "--yes", "--json").lines()
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


def test_what_cannot_be_read_is_refused(ingested: Path) -> None:
    """A precision out of range, and a file that is not there."""
    with pytest.raises(ValueError, match="precision must be between"):
        calibrate_collection("base", store=ingested, precision=1.5)
    with pytest.raises(FormatError, match=r"absent\.tsv"):
        calibrate_collection("base", str(ingested / "absent.tsv"), store=ingested)


def test_labelled_pairs_are_compared_with_made_mentions_too(run: Run, ingested: Path, tmp_path: Path) -> None:
    """The changes of a fit to pairs include those of exact names and other kinds, which it did not see."""
    base = [row.split("\t") for row in base_file(tmp_path).read_text("utf-8").splitlines()[1:41]]
    pairs = [f"qqq {i} zzz\tNIL" for i in range(30)] + [f"{name}\t{entity_id}" for entity_id, name, *_ in base]
    (tmp_path / "pairs.tsv").write_text("\n".join(pairs), encoding="utf-8")

    done = run("calibrate", "--labelled", str(tmp_path / "pairs.tsv"), "--precision", "0.1", "--dry-run", "--json")

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
    stored = store_calibration(ingested, OWN)
    assert run("link", "e1", "--json").out != untouched

    removed = run("calibrate", "--reset", "--collection", "base")

    assert (removed.status, removed.out) == (0, "base: the calibration was removed; the defaults count\n")
    assert manifest_calibration(ingested) is None
    assert run("link", "e1", "--json").out == untouched
    assert run("calibrate", "--reset").out == "base: there was no calibration; the defaults count\n"
    assert list(run("calibrate", "--reset", "--json").lines()) == [{"collection": "base", "removed": False}]
    for option in ("--dry-run", "--yes"):
        refused = run("calibrate", "--reset", option)
        assert (refused.status, "--reset removes a calibration" in refused.err) == (2, True)

    store_calibration(ingested, OWN)
    assert reset_calibration("base", store=ingested) == stored
    assert reset_calibration("base", store=ingested) is None
    assert manifest_calibration(ingested) is None
    with pytest.raises(CollectionNotFoundError, match="absent"):
        reset_calibration("absent", store=ingested)


STEMS = "Avar Belt Cado Dorn Elva Fint Gora Hast Iver Jund Kelp Lorm Mand Nars Orve Pelt Quil Rast Solv Tarn".split()
KINDS = ["Holding", "Trading House", "Shipping Lines", "Motor Works", "Paper Mills"]
NAMES = [f"{stem}{end} {kind}" for stem, end, kind in product(STEMS, ("ia", "ex", "mark"), KINDS)]
PRESENT = [f"{name.partition(' ')[0]} {name.partition(' ')[2].split()[0]} AG" for name in NAMES]
ABSENT = [f"{end}{stem.lower()} {kind} of {stem}" for stem, end, kind in product(STEMS, ("Zy", "Wu", "Ye"), KINDS)]


@pytest.fixture
def own_store(tmp_path: Path, model: Path) -> str:
    """The same encoded by a tiny model, which a test may change."""
    path, rows = str(tmp_path / "store"), [{"id": name, "name": name} for name in NAMES]
    EntityLinker.build(rows, collection="base", store=path, model=str(model)).close()
    return path


@pytest.mark.slow
def test_the_mentions_that_tell_most_are_asked(run: Run, own_store: str, tmp_path: Path) -> None:
    """`--ask` asks for the nearly decided ones, writes each answer at once, and asks no pair twice; `q` ends it."""
    names, pairs = tmp_path / "names.txt", tmp_path / "pairs.tsv"
    names.write_text("\n".join([*PRESENT, *ABSENT]) + "\n", "utf-8")
    asked = ("calibrate", "--collection", "base", "--store", own_store, "--ask", str(names))

    done = run(*asked, "--labelled", str(pairs), "--set", "questions=3", stdin=b"1\n0\n\n")

    first, second = (label.mention for label in read_pairs(pairs))
    assert [label.entity_id is None for label in read_pairs(pairs)] == [False, True]
    assert "3 of 3" in done.err
    assert "has 2 pairs; with 30 of them" in done.out
    again = run(*asked, "--labelled", str(pairs), "--set", "questions=3", stdin=b"q\n")
    assert f": {first}\n" not in again.err
    assert f": {second}\n" not in again.err
    assert len(read_pairs(pairs)) == 2
    assert "--ask needs" in run(*asked).err


@pytest.mark.slow
def test_exact_names_are_not_asked(own_store: str) -> None:
    """What a rule decides tells nothing, and neither does the order of the list count."""
    with EntityLinker.open("base", store=own_store) as linker:
        chosen = choose_to_label(linker, [*NAMES[:50], *PRESENT, *ABSENT], 10)
        turned = choose_to_label(linker, [*ABSENT, *PRESENT[::-1], *NAMES[:50]], 10)
        certain = [abs(one.candidates[0].probability - 0.5) for one in linker.link_batch([*PRESENT, *ABSENT])]

    assert len(chosen) == 10
    assert not {one.mention for one in chosen} & set(NAMES)
    assert [one.mention for one in chosen] == [one.mention for one in turned]
    assert abs(chosen[0].candidates[0].probability - 0.5) == min(certain)
