"""Calibration of a collection: labels, the library call, and the command, on a small base."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runner import Run

from ingest import load_base
from pearl_qdrant.errors import CalibrationError, FormatError
from pearl_qdrant.linking.calibration.calibrate import calibrate_collection
from pearl_qdrant.linking.calibration.labels import Label, NameIndex, check_ids, read_pairs
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.schema import LinkCalibration


def test_pairs_are_read_with_or_without_a_header(tmp_path: Path) -> None:
    """Empty and NIL both mean that there is no entity; repeated pairs count once."""
    path = tmp_path / "pairs.tsv"
    path.write_text("\ufeffmention\tentity_id\nNYT\tnyt\nNYT\tnyt\nnothing\t\nnone\tNIL\tmore\r\n\n", encoding="utf-8")

    assert read_pairs(path) == [Label("NYT", "nyt"), Label("nothing", None), Label("none", None)]
    path.write_text("NYT\tnyt\n", encoding="utf-8")
    assert read_pairs(path) == [Label("NYT", "nyt")]


@pytest.mark.parametrize("content", [b"NYT\tnyt\nonly\n", b"NYT\tnyt\n\tnyt\n", b"NYT\tnyt\n\xff\tx\n"])
def test_a_broken_pair_is_named_by_its_line(tmp_path: Path, content: bytes) -> None:
    """A row without a second column, without a mention, or not in UTF-8 is reported with its line."""
    path = tmp_path / "pairs.tsv"
    path.write_bytes(content)

    with pytest.raises(FormatError, match=r"pairs\.tsv:2: "):
        read_pairs(path)


def base_file(folder: Path, n: int = 80) -> Path:
    """A base of `n` entities with one alias each, and two that share a folded name."""
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefghijklmnop"), 7)) for _ in range(2 * n)]
    rows = [f"e{i}\t{words[2 * i]} {words[2 * i + 1]}\tORG\t{words[2 * i + 1]} {words[2 * i]}s" for i in range(n)]
    rows += ["twin1\tIL-2 gene\tORG\t", "twin2\til2 Gene\tORG\tanother"]
    path = folder / "base.tsv"
    path.write_text("id\tname\ttype\taliases\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def filled_store(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A store with the collection `base`, which tests copy: a copy is much faster than a load."""
    folder = tmp_path_factory.mktemp("filled")
    load_base(base_file(folder), "base", store=str(folder / "store"), model=str(model))
    return folder / "store"


@pytest.fixture
def ingested(filled_store: Path, tmp_path: Path) -> Path:
    """A store with the collection `base`, where `run` looks for it; its folder."""
    return shutil.copytree(filled_store, tmp_path / "store")


def manifest_calibration(folder: Path) -> LinkCalibration | None:
    """The calibration in the manifest of the collection."""
    store = EdgeStore(folder)
    try:
        return store.open("base").manifest.calibration
    finally:
        store.close()


def test_calibrate_fits_to_the_aliases_of_the_base_and_stores_it(run: Run, ingested: Path, tmp_path: Path) -> None:
    """Without pairs I get figures before and after, a diagram, and a manifest that the linker uses from then on."""
    figure = tmp_path / "reliability.png"
    dry = run("calibrate", "--precision", "0.5", "--dry-run", "--json")
    assert dry.status == 0, dry.err
    assert manifest_calibration(ingested) is None

    done = run("calibrate", "--collection", "base", "--precision", "0.5", "--figure", str(figure))

    assert done.status == 0, done.err
    assert "after, cross-fitted" in done.out
    assert figure.read_bytes()[:4] == b"\x89PNG"
    (record,) = dry.lines()
    stored = manifest_calibration(ingested)
    assert stored is not None
    assert (record["slope"], record["nil_bias"]) == (round(stored.slope, 4), round(stored.nil_bias, 4))
    assert record["fitted_on"] == "aliases"
    assert record["nil_share"] == pytest.approx(0.2, abs=0.01)
    assert run("link", "e1", "--json").status == 0
    assert json.loads(run("collections", "show", "base", "--json").out)["calibration"]["target_precision"] == 0.5
    assert "fitted_on aliases, mentions " in run("collections", "show", "base").out


def test_a_program_calibrates_as_the_command_does(run: Run, ingested: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call fits, stores, and returns the fit and the previous calibration; a dry run stores nothing."""
    dry = calibrate_collection("base", precision=0.5, dry_run=True)
    assert manifest_calibration(ingested) is None

    first = calibrate_collection("base", store=ingested, precision=0.5)
    second = calibrate_collection("base", store=ingested, precision=0.5)

    assert (dry.to_manifest(), first.replaced) == (first.to_manifest(), None)
    assert second.replaced == first.to_manifest()
    assert manifest_calibration(ingested) == second.to_manifest()
    with pytest.raises(ValueError, match="precision must be between"):
        calibrate_collection("base", store=ingested, precision=1.5)
    with pytest.raises(FormatError, match=r"absent\.tsv"):
        calibrate_collection("base", str(ingested / "absent.tsv"), store=ingested)


def test_calibrate_on_pairs_weights_to_a_share_of_nil(run: Run, ingested: Path, tmp_path: Path) -> None:
    """Pairs that include NIL mentions are weighted to the requested share."""
    store = EdgeStore(ingested)
    names = [(p.name, p.entity_id) for p in store.open("base").scroll() if p.entity_id[0] == "e"]
    store.close()
    path = tmp_path / "pairs.tsv"
    rows = [f"{name}x\t{key}" for name, key in names] + [f"qqq {i} zzz\tNIL" for i in range(20)]
    path.write_text("\n".join(rows), encoding="utf-8")

    done = run("calibrate", "--pairs", str(path), "--precision", "0.5", "--nil-share", "0.4", "--json")

    assert done.status == 0, done.err
    (record,) = done.lines()
    assert (record["fitted_on"], record["nil_mentions"], record["nil_share"]) == ("pairs", 20, 0.4)
    stored = manifest_calibration(ingested)
    assert stored is not None
    assert (stored.features is not None) == record["ranking_fitted"]


def test_the_linker_uses_the_coefficients_of_its_collection(run: Run, ingested: Path, tmp_path: Path) -> None:
    """They are in the manifest; an unknown one is reported, and can be fitted again."""
    own = {"slope": 1.0, "nil_bias": 0.0, "threshold": 0.0, "features": {"dense": 7.0}, "nil_features": {"bias": 1.0}}

    def store_calibration(changed: dict[str, Any]) -> None:
        store = EdgeStore(ingested)
        target = store.open("base")
        calibration = LinkCalibration.model_validate(changed)
        target.write_manifest(target.manifest.model_copy(update={"calibration": calibration}))
        store.close()

    store_calibration(own)
    (link,) = run("link", "e1", "--json", "--explain").lines()
    best = link["candidates"][0]
    assert best["score"] == pytest.approx(7 * best["features"]["dense"])
    assert "spelling" not in run("link", "e1", "--explain").out

    store_calibration({**own, "features": {"density": 7.0}})
    refused = run("link", "e1")
    assert refused.status == 1
    assert "Another version of pearl-qdrant calibrated" in refused.err
    assert "'density'" in refused.err
    assert "ranking fitted too" in run("collections", "show", "base").out
    assert run("calibrate", "--precision", "0.5").status == 0
    assert run("link", "e1").status == 0


@pytest.mark.parametrize(
    "rows, expected",
    [
        (["a\te1"] * 3, "There are 1 pairs, 1 of them with an entity"),
        (
            [f"m{i}\tunknown{i}" for i in range(60)],
            "60 of 60 entity ids are not in collection 'base', e.g. unknown0",
        ),
        ([f"m{i}\tNIL" for i in range(60)], "60 pairs, 0 of them with an entity"),
    ],
)
def test_unsuitable_pairs_are_refused(run: Run, ingested: Path, tmp_path: Path, rows: list[str], expected: str) -> None:
    """Too few pairs, unknown ids, or nothing but NIL give an error, and nothing is stored."""
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(rows), encoding="utf-8")

    done = run("calibrate", "--pairs", str(path))

    assert done.status == 1
    assert expected in done.err
    assert manifest_calibration(ingested) is None


def test_a_base_without_aliases_asks_for_pairs(run: Run, tmp_path: Path, model: Path) -> None:
    """If there is nothing to hold out, the error asks for labelled pairs."""
    path = tmp_path / "bare.tsv"
    path.write_text("id\tname\n1\tabc\n2\tdef\n", encoding="utf-8")
    assert run("ingest", str(path), "--model", str(model), "--collection", "base").status == 0

    done = run("calibrate")

    assert done.status == 1
    assert "has no aliases" in done.err
    assert "--pairs" in done.err


def test_entities_that_share_a_folded_name_are_found(ingested: Path) -> None:
    """IL-2 and il2 are one name: hiding one entity hides the other."""
    store = EdgeStore(ingested)
    try:
        collection = store.open("base")
        index = NameIndex(collection, n_aliases=10, rng=np.random.default_rng(0))
        assert index.same_name_ids(["twin1"])["twin1"] == {hash("twin1"), hash("twin2")}
        assert index.same_name_ids(["e1"])["e1"] == {hash("e1")}
        assert len(index.aliases) == 10
        with pytest.raises(CalibrationError, match="1 of 2 entity ids"):
            check_ids(collection, [Label("m", "e1"), Label("m", "nope")])
    finally:
        store.close()
