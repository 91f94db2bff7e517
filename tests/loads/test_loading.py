"""Loading a base from Python: what `pearl-qdrant ingest` does, in one call."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from ingest.load_base import collection_name
from pearl_qdrant import (
    EntityLinker,
    LoadEvents,
    ReadOptions,
    ScanResult,
    TableColumns,
    load_base,
    scan_base,
)
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import (
    CollectionNotFoundError,
    EmptyBaseError,
    ModelMismatchError,
    OptionError,
    SettingsError,
    TooManyErrorsError,
)
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.protocol import Placement


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Twenty entities with an alias each."""
    path = tmp_path / "names.tsv"
    path.write_text("".join(f"E{i}\tw{i} times\tORG\tw{i} post\n" for i in range(20)), encoding="utf-8")
    return path


class Heard(LoadEvents):
    """Remembers what was reported."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.names = 0

    def scanned(self, result: ScanResult) -> None:
        self.calls.append(f"scanned {result.names}")

    def model_loaded(self, encoder: Encoder) -> None:
        self.calls.append(f"model {encoder.info.dim}")

    def resumed(self, entities: int) -> None:
        self.calls.append(f"resumed {entities}")

    def started(self, names: int) -> None:
        self.calls.append(f"started {names}")

    def names_done(self, names: int) -> None:
        self.names += names

    def entities_stored(self, entities: int) -> None:
        self.calls.append(f"stored {entities}")


def test_a_base_is_loaded_and_linked_from_python(tmp_path: Path, base: Path, model: Path) -> None:
    """A program gives files, collection and model, gets progress by callbacks, and gets the counts back."""
    heard, store = Heard(), tmp_path / "store"
    result = load_base(base, "base", store=store, model=model, events=heard)

    assert (result.collection, result.entities, result.names, result.points) == ("base", 20, 40, 40)
    assert heard.calls[:2] == ["scanned 40", f"model {load_encoder(str(model), device='cpu').info.dim}"]
    assert heard.calls[2] == "started 40"
    assert heard.calls[-1] == "stored 20"
    assert heard.names == 40
    with EntityLinker.open("base", store=str(store)) as linker:
        assert linker.link("w3 times", threshold=0.0).entity_id == "E3"


def test_a_store_and_an_encoder_that_are_open_stay_open(tmp_path: Path, base: Path, model: Path) -> None:
    """A program with a store and a model loads several bases with them."""
    store, encoder = EdgeStore(tmp_path / "store"), load_encoder(str(model), device="cpu")
    for name in ("one", "two"):
        load_base([base], name, store=store, model=encoder, kb=name)

    assert store.collections() == ["one", "two"]
    with closing(store.open("two")) as collection:
        assert collection.manifest.kb == "two"


def test_the_environment_names_the_store(
    tmp_path: Path, base: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for the command line; the collection has the file's name."""
    monkeypatch.setenv("PEARL_QDRANT_STORE", str(tmp_path / "elsewhere"))
    load_base(str(base), model=str(model))

    assert EdgeStore(tmp_path / "elsewhere").collections() == ["names"]


def test_a_base_is_counted_without_model_and_store(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run, with the options of the command."""
    options = ReadOptions(limit=5, columns=TableColumns(id="1", name="2"))
    assert scan_base(base, kind="tsv", options=options).entities == 5


def test_restarting_begins_with_an_empty_collection(tmp_path: Path, base: Path, model: Path) -> None:
    """The old collection is deleted only after the input and the model were checked."""
    store = tmp_path / "store"
    load_base(base, "base", store=store, model=str(model))
    empty = tmp_path / "empty.tsv"
    empty.write_text("E1\t \n", encoding="utf-8")
    with pytest.raises(EmptyBaseError):
        load_base(empty, "base", store=store, model=str(model), restart=True)
    with closing(EdgeStore(store).open("base")) as collection:
        assert collection.count() == 40
    base.write_text("E1\tone\n", encoding="utf-8")

    assert load_base(base, "base", store=store, model=str(model), restart=True, quantization="none").points == 1


def test_what_does_not_fit_is_refused(tmp_path: Path, base: Path, model: Path) -> None:
    """Errors state the fact and name the argument; nothing is written."""
    store = tmp_path / "store"
    load_base(base, "base", store=store, model=str(model))

    def refusal(**options: object) -> OptionError:
        with pytest.raises(OptionError) as caught:
            load_base(base, "base", **{"store": store, "model": str(model), **options})  # type: ignore[arg-type]
        assert "--" not in str(caught.value)
        return caught.value

    assert refusal(kb="other").option == "kb"
    assert refusal(quantization="none").option == "quantization"
    assert refusal(placement=Placement(shards=2)).option == "placement"
    assert refusal(options=ReadOptions(sabs=("MSH",))).option == "sabs"
    with pytest.raises(OptionError, match="no limit"):
        load_base(base, "base", store=store, model=str(model), options=ReadOptions(limit=3), update=True)
    with pytest.raises(CollectionNotFoundError):
        load_base(base, "missing", store=store, model=str(model), update=True)
    with pytest.raises(ModelMismatchError):
        load_base(base, "base", store=store)
    with pytest.raises(SettingsError, match="empty"):
        load_base(base, "base", store="", model=str(model))
    bad = tmp_path / "bad.tsv"
    bad.write_text("E1\tone\nE2\n", encoding="utf-8")
    with pytest.raises(TooManyErrorsError):
        load_base(bad, "base", store=store, model=str(model), max_errors=0)
    with closing(EdgeStore(store).open("base")) as collection:
        assert collection.count() == 40


def test_nothing_left_is_an_error_with_reasons(tmp_path: Path) -> None:
    """The error counts the skipped rows by reason."""
    path = tmp_path / "none.tsv"
    path.write_text("E1\t \nE2\t\n", encoding="utf-8")

    with pytest.raises(EmptyBaseError, match=r"none\.tsv: no entity is left \(skipped: .* 2\)") as caught:
        scan_base(path)
    assert sum(caught.value.skip_counts.values()) == 2


@pytest.mark.parametrize(
    "path, name",
    [
        ("data/umls-2024AB.tsv.gz", "umls-2024AB"),
        ("names", "names"),
        ("names.jsonl.zst", "names"),
        ("n.feather", "n"),
        ("a b/c d.txt", "c-d"),
        ("...", "base"),
    ],
)
def test_a_collection_is_named_like_its_file(path: str, name: str) -> None:
    """Without its endings."""
    assert collection_name(path) == name


def test_what_has_no_name_is_asked_for() -> None:
    """Of standard input the collection must be named; and there must be a file."""
    with pytest.raises(OptionError, match="Standard input"):
        load_base("-")
    with pytest.raises(OptionError, match="at least one"):
        load_base([], "base")
