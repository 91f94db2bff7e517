"""Loading a base from Python: what `pearl-qdrant ingest` does, in one call.
Messages of `ingest` about what is stored, after a failure.
Rows that share an id and have different names: they become one entity, and the load says so.
"""

from __future__ import annotations

import json
import logging
import re
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock, call

import pytest
from cli_runner import Run

from ingest.load_base import collection_name
from pearl_qdrant import EntityLinker, LoadEvents, ReadOptions, load_base, make_entity, scan_base
from pearl_qdrant.encoder.loading import describe_model, load_encoder
from pearl_qdrant.errors import (
    CollectionNotFoundError,
    EmptyBaseError,
    InvalidEntityError,
    ModelMismatchError,
    ModelNotFoundError,
    OptionError,
    SettingsError,
    StoreError,
    TooManyErrorsError,
)
from pearl_qdrant.store import Placement, open_store
from pearl_qdrant.store.administration import verify_collection
from pearl_qdrant.store.edge.child_process import EdgeWriter
from pearl_qdrant.store.edge.collection import EdgeCollection
from pearl_qdrant.store.schema import Quantization


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Twenty entities with an alias each."""
    path = tmp_path / "names.tsv"
    path.write_text("".join(f"E{i}\tw{i} times\tORG\tw{i} post\n" for i in range(20)), encoding="utf-8")
    return path


def test_a_base_is_loaded_and_linked_from_python(tmp_path: Path, base: Path, model: Path) -> None:
    """A program gives files, collection and model, gets progress by callbacks, and gets the counts back."""
    heard, store = Mock(spec=LoadEvents), tmp_path / "store"
    result = load_base(base, "base", store=store, model=model, events=heard)

    assert (result.collection, result.entities, result.names, result.points) == ("base", 20, 40, 40)
    assert heard.scanned.call_args.args[0].names == 40
    assert [heard.started.call_args, heard.entities_stored.call_args] == [call(40), call(20)]
    assert sum(done.args[0] for done in heard.names_done.call_args_list) == 40
    with EntityLinker.open("base", store=str(store)) as linker:
        assert linker.link("w3 times", threshold=0.0).entity_id == "E3"
        assert linker.missing(["E33", "E1", "e2"]) == ["E33", "e2"]
        assert linker.missing([]) == []


def test_a_store_and_an_encoder_that_are_open_stay_open(tmp_path: Path, base: Path, model: Path) -> None:
    """A program with a store and a model loads several bases with them."""
    store, encoder = open_store(str(tmp_path / "store")), load_encoder(str(model), device="cpu")
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

    assert open_store(str(tmp_path / "elsewhere")).collections() == ["names"]


def test_restarting_begins_with_an_empty_collection(tmp_path: Path, base: Path, model: Path) -> None:
    """The old collection is deleted only after the input and the model were checked."""
    store = tmp_path / "store"
    load_base(base, "base", store=store, model=str(model))
    empty = tmp_path / "empty.tsv"
    empty.write_text("E1\t \n", encoding="utf-8")
    with pytest.raises(EmptyBaseError):
        load_base(empty, "base", store=store, model=str(model), restart=True)
    with closing(open_store(str(store)).open("base")) as collection:
        assert collection.count() == 40
    base.write_text("E1\tone\n", encoding="utf-8")

    assert load_base(base, "base", store=store, model=str(model), restart=True, quantization="none").points == 1


@pytest.mark.parametrize("asked, kept", [(None, "turbo4"), ("int8", "int8")])
def test_an_update_keeps_the_form_of_vectors(
    tmp_path: Path, base: Path, model: Path, asked: Quantization | None, kept: Quantization
) -> None:
    """A new collection says how it keeps vectors; one of an older release is updated as it is."""
    store = tmp_path / "store"
    load_base(base, "base", store=store, model=str(model), quantization=asked)
    with base.open("a", encoding="utf-8") as file:
        file.write("NEW\tquite another name\n")

    load_base(base, "base", store=store, model=str(model), update=True)

    with closing(open_store(str(store)).open("base")) as collection:
        assert (collection.manifest.quantization, collection.count()) == (kept, 41)
        assert collection.find(names=["quite another name"], limit=1)[0].entity_id == "NEW"
    assert verify_collection("base", store=str(store)).problems == ()


def test_what_does_not_fit_is_refused(tmp_path: Path, base: Path, model: Path) -> None:
    """Errors state the fact and name the argument; nothing is written."""
    store = tmp_path / "store"
    load_base(base, "base", store=store, model=str(model))

    def refusal(**options: object) -> OptionError:
        with pytest.raises(OptionError) as caught:
            load_base(base, "base", **{"store": store, "model": str(model), **options})  # type: ignore[arg-type]
        assert "--" not in str(caught.value)
        return caught.value

    other = refusal(kb="other")
    assert (other.option, "holds base 'base', not 'other'" in str(other)) == ("kb", True)
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
    with closing(open_store(str(store)).open("base")) as collection:
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


KEPT = "stored and kept"


def test_nothing_is_said_to_be_kept_where_nothing_was_stored(run: Run, base: Path, model: Path) -> None:
    """A load that fails before anything is stored does not claim that something is kept."""
    outcome = run("ingest", str(base), "--model", str(model), "--store", str(base))

    assert outcome.status == 1
    assert KEPT not in outcome.err


def test_what_is_stored_is_said_to_be_kept(run: Run, base: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that fails halfway reports how many entities are stored, and the same command resumes there."""
    monkeypatch.setattr("ingest.load.pipeline.WINDOW", 10)
    monkeypatch.setattr("ingest.load.pipeline.FLUSH_S", 0.0)
    flush, flushed = EdgeWriter.flush, []

    def fail_the_third_time(writer: EdgeWriter) -> None:
        flushed.append(True)
        if len(flushed) == 3:
            raise StoreError("The disk went away.")
        flush(writer)

    with monkeypatch.context() as patch:
        patch.setattr(EdgeWriter, "flush", fail_the_third_time)
        failed = run("ingest", str(base), "--model", str(model))
    again = run("ingest", str(base), "--model", str(model))

    assert failed.status == 1
    assert f"10 entities are {KEPT}" in failed.err
    assert again.status == 0
    (resumed,) = re.findall(r"resuming: (\d+) entities", again.err)
    assert int(resumed) >= 10  # what was written after the last flush may be there, too


def test_names_that_were_gone_are_reported(run: Run, base: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What I add by hand to an unfinished collection stays; names of the base that I deleted are written again."""

    def die(collection: EdgeCollection, on_progress: object = None) -> None:
        raise StoreError("Killed while the graph is built.")

    with monkeypatch.context() as patch:
        patch.setattr(EdgeCollection, "finalize", die)
        assert run("ingest", str(base), "--model", str(model)).status == 1
    assert run("entities", "delete", "E7", "--collection", "names", "--yes").status == 0
    added = run("entities", "add", "--id", "mine", "--name", "my times", "--alias", "my post", "--collection", "names")
    assert added.status == 0, added.err
    again = run("ingest", str(base), "--model", str(model))

    assert again.status == 0, again.err
    assert "names that had disappeared from the collection and were written again: 2" in again.err
    shown = run("collections", "show", "names", "--json")
    assert json.loads(shown.out)["points"] == 42


BASE = "id\tname\n1\tJohn Smith\n1\tMary Jones\n2\tRome\n3\tOslo\n2\tParis\n"
FIRST = "base.tsv:3: id '1' is 'John Smith' in an earlier row, 'Mary Jones' here"
SECOND = "base.tsv:6: id '2' is 'Rome' in an earlier row, 'Paris' here"


@pytest.fixture
def repeated_base(tmp_path: Path) -> Path:
    """A base in which two ids are used twice, once in adjacent rows and once in scattered ones."""
    path = tmp_path / "base.tsv"
    path.write_text(BASE, encoding="utf-8")
    return path


def test_a_load_says_which_rows_use_an_id_twice(run: Run, repeated_base: Path, model: Path) -> None:
    """Two people under one id are said with both names and the row, in a dry run, a load and an update."""
    words = ("ingest", str(repeated_base), "--model", str(model), "--json")
    found = [run(*words, "--dry-run"), run(*words)]
    repeated_base.write_text("id\tname\n1\tJohn Smith\n2\tRome\n3\tOslo\n", encoding="utf-8")
    without = run(*words, "--update", "--yes")
    repeated_base.write_text(BASE, encoding="utf-8")
    found.append(run(*words, "--update", "--yes"))

    assert (without.status, "earlier row" in without.err) == (0, False)
    for one in found:
        assert one.status == 0
        assert "warning: 2 rows have the id of an earlier row and another name" in one.err
        assert FIRST in one.err
        assert SECOND in one.err
        counts = json.loads(one.out)
        assert (counts["conflicting_names"], len(counts["conflicts"]), counts["entities"]) == (2, 2, 3)


def test_the_results_in_python_have_the_rows(repeated_base: Path, model: Path, tmp_path: Path) -> None:
    """A program that loads or updates a base finds the rows in the result."""
    loaded = load_base(repeated_base, "base", store=str(tmp_path / "store"), model=model)
    updated = load_base(repeated_base, "base", store=str(tmp_path / "store"), model=model, update=True)

    assert [(one.line, one.first, one.name) for one in loaded.report.conflicts] == [
        (3, "John Smith", "Mary Jones"),
        (6, "Rome", "Paris"),
    ]
    assert updated.report.conflicting_names == 2


def test_few_of_many_rows_are_shown(tmp_path: Path) -> None:
    """Of many such rows the first five are shown, and no more of the base is read again for them."""
    path = tmp_path / "many.tsv"
    path.write_text("".join(f"E{i % 1000}\tname {i}\n" for i in range(3000)), encoding="utf-8")
    report = scan_base(path).report

    assert report.conflicting_names == 2000
    assert [one.line for one in report.conflicts] == [1001, 1002, 1003, 1004, 1005]


def test_a_collection_built_from_records_says_it_too(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Records of one id with different names are logged with both."""
    rows = [{"id": 1, "name": "John Smith"}, {"id": 1, "name": "Mary Jones"}, {"id": 2, "name": "Rome"}]
    with caplog.at_level(logging.WARNING), EntityLinker.build(rows, model=model):
        pass

    assert "item 1: id '1' is 'John Smith' in an earlier item, 'Mary Jones' here" in caplog.text


def test_an_entity_gets_clean_aliases_and_coarse_types() -> None:
    """Blank and repeated aliases are skipped, and native types are mapped as a reader does it."""
    entity = make_entity("acme", "Acme", aliases=["ACME", " ", "Acme", "ACME"], kb_types=["company", "no such type"])

    assert entity.aliases == ("ACME",)
    assert entity.kb_types == ("company", "no such type")
    assert entity.types == ("ORG",)
    for entity_id, name in (("", "Acme"), ("acme", " ")):
        with pytest.raises(InvalidEntityError, match="needs an id and a name"):
            make_entity(entity_id, name)


def test_a_model_is_described_with_its_files(tmp_path: Path, model: Path) -> None:
    """I get width, hash, files and training of a checkpoint; a missing model is an error."""
    described = describe_model(str(model))

    assert described.info.dim == described.to_json()["dim"]
    assert described.files is not None
    assert described.files.keys() <= {path.relative_to(model).as_posix() for path in model.rglob("*")}
    assert described.to_json()["files"] == described.files
    with pytest.raises(ModelNotFoundError):
        describe_model(str(tmp_path / "nothing"))
