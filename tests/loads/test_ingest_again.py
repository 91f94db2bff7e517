"""The same base again, or a newer release of it, without an option that says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Run
from counting_encoder import CountingEncoder
from qdrant_double import QdrantDouble

from pearl_qdrant import LoadEvents, ReadOptions, load_base, make_entity
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.store import Store, open_store
from pearl_qdrant.store.administration import find_problems

HEADER = "id\tname\ttype\taliases\n"
OLD = HEADER + "".join(f"E{i}\tw{i} times\tORG\tw{i} post\n" for i in range(20))
NEW = OLD.replace("w3 post", "w3 city") + "E20\tw20 times\tORG\t\n"
OTHER = HEADER + "".join(f"F{i}\tv{i} times\tORG\tv{i} post\n" for i in range(20))


class Heard(LoadEvents):
    """Remembers which of the two was reported."""

    def __init__(self) -> None:
        self.said: list[object] = []

    def unchanged(self, edited: bool) -> None:
        self.said.append(edited)

    def newer_release(self) -> None:
        self.said.append("newer")


@pytest.fixture(params=[pytest.param("edge", marks=pytest.mark.slow), "server"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each kind."""
    if request.param == "edge":
        with_edge = open_store(str(tmp_path / "store"))
        yield with_edge
        with_edge.close()
        return
    with QdrantDouble() as double:
        opened = open_store(double.url)
        yield opened
        opened.close()


def write(tmp_path: Path, text: str, name: str = "base.tsv") -> Path:
    """The path, with a base there."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def names_in(store: Store) -> set[str]:
    """All names of the collection `base`."""
    with closing(store.open("base")) as collection:
        return {point.name for point in collection.scroll()}


def test_an_unchanged_base_is_not_encoded_again(tmp_path: Path, place: Store, encoder: Encoder) -> None:
    """The second call encodes and writes nothing, wherever the file is now, and says so; the counts are the same."""
    first = load_base(write(tmp_path, OLD), "base", store=place, model=encoder)
    before, counting, heard = names_in(place), CountingEncoder(encoder), Heard()

    for update in (False, None, True):
        path = write(tmp_path, OLD, f"{update}.tsv")
        again = load_base(path, "base", store=place, model=counting, events=heard, kb_version="2", update=update)
        assert (again.points, again.names, again.entities) == (first.points, first.names, first.entities)

    assert counting.names == []
    assert heard.said == [False] * 3
    assert names_in(place) == before
    assert (first.is_unchanged, place.open("base").read_manifest().kb_version) == (False, "2")


def test_what_changed_is_loaded(tmp_path: Path, place: Store, encoder: Encoder) -> None:
    """Other content, a restart and lost points are encoded; other options and an unfinished load are looked at."""
    path = write(tmp_path, OLD)
    load_base(path, "base", store=place, model=encoder)
    for change in ("options", "loading", "lost", "content", "restart"):
        options: dict[str, Any] = {}
        with closing(place.open("base")) as collection:
            if change == "content":
                write(tmp_path, NEW)
            elif change == "options":
                options["options"] = ReadOptions(limit=3)
            elif change == "restart":
                options["restart"] = True
            elif change == "lost":
                collection.delete_points({next(collection.scroll()).id})
            else:
                collection.write_manifest(collection.read_manifest().model_copy(update={"state": "loading"}))

        result = load_base(path, "base", store=place, model=encoder, **options)

        assert result.is_unchanged == (change in ("options", "loading")), change
        with closing(place.open("base")) as collection:
            assert collection.read_manifest().state == "ready"


def test_only_names_that_a_store_has_lost_are_encoded_again(tmp_path: Path, place: Store, encoder: Encoder) -> None:
    """Names that were deleted behind our back are written again by the same call, without a question."""
    path, counting, heard = write(tmp_path, OLD), CountingEncoder(encoder), Heard()
    load_base(path, "base", store=place, model=encoder, update=None)
    before = names_in(place)
    with closing(place.open("base")) as collection:
        collection.delete_points({point.id for point in collection.scroll() if point.entity_id in ("E1", "E7")})
        (problem,) = find_problems(collection)
        assert (problem.kind, "36 points, but 40" in problem.message) == ("wrong_count", True)
    result: Any = load_base(path, "base", store=place, model=counting, events=heard, update=None)

    assert (result.points, result.rewritten, heard.said) == (40, 4, [])
    assert len(counting.names) == 4
    assert names_in(place) == before


def test_several_inputs_of_a_collection_are_each_known(tmp_path: Path, place: Store, encoder: Encoder) -> None:
    """Two parts of a base are loaded one after the other; neither replaces the other, and both are known afterwards."""
    counting = CountingEncoder(encoder)
    for text, name in ((OLD, "a.tsv"), (OTHER, "b.tsv")) * 2:
        load_base(write(tmp_path, text, name), "base", store=place, model=counting, update=None)

    assert len(names_in(place)) == 80
    assert len(counting.names) == 80
    heard = Heard()
    load_base(write(tmp_path, NEW, "a.tsv"), "base", store=place, model=encoder, events=heard, update=None)
    assert heard.said == []
    assert len(names_in(place)) == 82, "a newer part is no newer release of the whole"


def test_edits_by_hand_stay_and_an_update_undoes_them(tmp_path: Path, place: Store, encoder: Encoder) -> None:
    """Entities that I added and deleted stay as they are when I ingest the same base again; an update restores it."""
    path = write(tmp_path, OLD)
    load_base(path, "base", store=place, model=encoder)
    original = names_in(place)
    linker = EntityLinker(place, [place.open("base")], encoder)
    linker.add([make_entity("mine", "my times")])
    linker.delete(["E3"])
    edited, heard = names_in(place), Heard()

    for update in (False, None):
        assert load_base(path, "base", store=place, model=encoder, events=heard, update=update).points == 39
        assert names_in(place) == edited
    updated, again = (load_base(path, "base", store=place, model=encoder, events=heard, update=True) for _ in range(2))

    assert (updated.added, updated.removed, again.unchanged) == (2, 1, 40)
    assert names_in(place) == original
    assert heard.said == [True, True, False]


def test_a_newer_release_is_found(tmp_path: Path, place: Store, encoder: Encoder) -> None:
    """A base that shares most names with what is stored updates it, and only what is new is encoded."""
    load_base(write(tmp_path, OLD), "base", store=place, model=encoder)
    counting, heard = CountingEncoder(encoder), Heard()

    result = load_base(write(tmp_path, NEW, "new.tsv"), "base", store=place, model=counting, events=heard, update=None)

    assert result.is_update
    assert (result.added, result.removed, heard.said) == (2, 1, ["newer"])
    assert sorted(counting.names) == ["w20 times", "w3 city"]
    load_base(write(tmp_path, NEW, "new.tsv"), "base", store=place, model=counting, events=heard, update=None)
    assert (len(counting.names), heard.said) == (2, ["newer", False])


@pytest.mark.parametrize("kind", ["refused", "part", "limit", "other"])
def test_what_is_no_newer_release_is_loaded_beside(tmp_path: Path, place: Store, encoder: Encoder, kind: str) -> None:
    """A refusal, a few corrected rows, a part of a base and another base delete nothing."""
    load_base(write(tmp_path, OLD), "base", store=place, model=encoder)
    text = {"part": "".join(NEW.splitlines(keepends=True)[:6]), "other": OTHER}.get(kind, NEW)
    options: dict[str, Any] = {"options": ReadOptions(limit=15)} if kind == "limit" else {}
    if kind == "refused":
        options["may_update"] = lambda: False

    result = load_base(write(tmp_path, text), "base", store=place, model=encoder, **options, update=None)

    assert not result.is_update
    assert "w3 post" in names_in(place)


def test_names_that_an_update_kept_are_asked_about_again(tmp_path: Path, place: Store, encoder: Encoder) -> None:
    """Retired names stay if the caller refuses to delete them; a collection that has them is not the release."""
    load_base(write(tmp_path, OLD), "base", store=place, model=encoder)
    path, asked = write(tmp_path, NEW), list[tuple[int, int]]()

    def refuse(removed: int, total: int) -> bool:
        asked.append((removed, total))
        return False

    kept = load_base(path, "base", store=place, model=encoder, update=True, may_remove=refuse)

    result = load_base(path, "base", store=place, model=encoder, update=None)

    assert result.is_update
    assert (asked, kept.kept, kept.removed, kept.points) == ([(1, 42)], 1, 0, 42)
    assert (result.removed, result.added) == (1, 0)


def test_the_command_says_that_nothing_is_to_be_done(run: Run, model: Path, tmp_path: Path) -> None:
    """The second `ingest` is a success with the same counts, and a message; edits are mentioned."""
    path = str(write(tmp_path, OLD))
    first = run("ingest", path, "--model", str(model), "--json")
    again = run("ingest", path, "--model", str(model), "--json")
    run("entities", "delete", "E3", "--yes")
    edited = run("ingest", path, "--model", str(model), "--json")

    assert (first.status, again.status, edited.status) == (0, 0, 0)
    assert again.err.endswith(f"{path} is unchanged since it was loaded; nothing to do\n")
    assert (again.lines()[0]["is_unchanged"], again.lines()[0]["points"]) == (True, 40)
    assert "by hand" in edited.err
    assert "--update" in edited.err
    assert edited.lines()[0]["points"] == 38


def test_the_command_asks_before_it_updates(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a terminal the error says what to add; --yes, and a yes, update; a no changes nothing."""
    words = ("ingest", str(write(tmp_path, OLD)), "--model", str(model), "--json")
    assert run(*words).status == 0
    write(tmp_path, NEW)

    unasked = run(*words)
    refused = run(*words, stdin=b"n\n")
    agreed = run(*words, "--yes")
    write(tmp_path, OLD)
    typed = run(*words, stdin=b"y\n")

    for outcome in (unasked, refused):
        assert outcome.status == 2
        assert "Add --update to update it, --no-update to add the names" in " ".join(outcome.err.split())
    assert agreed.lines()[0]["added"] == 2
    assert "is a newer release" in agreed.err
    assert typed.lines()[0]["removed"] == 2
    assert run("collections", "verify", "base").status == 0
