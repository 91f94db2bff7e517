"""Whatever is done to a collection of any store, in any order: it is what a dictionary of its points says."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edge_cases import check_files, copy_files
from effort import THOROUGH
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from scored_names import ngram_rows
from store_cases import DIM, HALF, manifest_of, many, point

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.errors import CollectionExistsError, CollectionNotFoundError
from pearl_qdrant.settings import is_url
from pearl_qdrant.store import Collection, Store, open_store
from pearl_qdrant.store.edge import content as edge_content
from pearl_qdrant.store.schema import INDEXED_FIELDS, Manifest, NamePoint

NUMBERS = itertools.count()
HEAD = {"phrase_type": "NP-GPE", "lexical_class": "NP", "predicted_type": "GPE", "type_probability": 0.5}
FULL = {"description": "日刊紙\0", "popularity": 12.5, "language": "en", "extra": {"source": "dump"}, **HEAD}
ROW = st.tuples(st.integers(0, 3), st.integers(0, 1), st.sampled_from(["ORG", "GPE", ""]), st.integers(0, 9))
ROWS = st.lists(ROW, min_size=1, max_size=9)
IDS = st.lists(st.integers(0, 4).map("E{}".format), max_size=3)
LINES = [b'{"batch":"a"}', '["Zürich \u2028",1]'.encode()]
Row = tuple[int, int, str, int]


def made(row: Row) -> tuple[NamePoint, FloatArray]:
    """A name of an entity, with or without types of each kind; its vector, zeros for every fifth."""
    entity, name, kind, seed = row
    types = {"types": (kind,) if kind else (), "kb_types": ("company", "firm") if seed % 3 else ()}
    more: dict[str, Any] = {**(FULL if seed % 2 else {}), **({} if kind else HEAD), **types}
    vector = np.random.default_rng(seed).normal(size=DIM).astype(np.float32) * (seed % 5 > 0)
    of = point(f"E{entity}", f"name {name}", canonical=not name, canonical_name="name 0", **more)
    return of, vector / max(1e-9, float(np.linalg.norm(vector)))


@dataclass(frozen=True)
class State:
    """What a collection has: its manifest, points with their vectors, by id, and lines of the ledger."""

    manifest: Manifest
    points: dict[str, tuple[NamePoint, FloatArray]] = field(default_factory=dict)
    ledger: tuple[bytes, ...] = ()

    def without(self, gone: set[str]) -> State:
        return replace(self, points={one: stored for one, stored in self.points.items() if one not in gone})

    def with_rows(self, rows: list[Row]) -> State:
        return replace(self, points=self.points | {one[0].id: one for one in map(made, rows)})

    def ids_of(self, entities: list[str]) -> set[str]:
        return {one for one, (stored, _) in self.points.items() if stored.entity_id in entities}


def has_type(one: NamePoint, types: tuple[str, ...]) -> bool:
    """Whether a filter finds a name: by a type of its base, or by the predicted one where it has no coarse one."""
    return not types or not {*one.kb_types, *(one.types or (one.predicted_type,))}.isdisjoint(types)


def check(collection: Collection, state: State) -> None:
    """Everything that can be read of a collection is that of the state."""
    stored = [state.points[one] for one in sorted(state.points)]
    points, vectors = [one for one, _ in stored], np.array([row for _, row in stored]).reshape(-1, DIM)
    assert list(collection.scroll()) == points
    assert collection.get([*state.points, point("none", "none").id]) == {one.id: one for one in points}
    read = np.concatenate([np.zeros((0, DIM)), *(rows.vectors for rows in collection.scroll_rows())])
    np.testing.assert_allclose(read, vectors, atol=HALF)
    assert (collection.count(), collection.count_entities()) == (len(points), sum(one.is_canonical for one in points))
    assert collection.type_counts() == {
        "types": Counter(kind for one in points for kind in one.types),
        "kb_types": Counter(kind for one in points for kind in one.kb_types),
        "predicted_type": Counter(one.predicted_type for one in points if one.predicted_type),
    }
    for wanted_by, wanted in (
        ({"entity_ids": ["E1", "E3", "E1"]}, [one for one in points if one.entity_id in ("E1", "E3")]),
        ({"names": ["name 1"]}, [one for one in points if one.name == "name 1"]),
        (
            {"names": ["name 1"], "types": ["ORG"]},
            [one for one in points if (one.name, *one.types) == ("name 1", "ORG")],
        ),
    ):
        assert collection.find(**wanted_by, limit=99) == wanted
        assert collection.find(**wanted_by, limit=1) == wanted[:1]
    assert collection.status().vectors == int(vectors.any(axis=1).sum())
    canonical = {one.entity_id: row for one, row in stored if one.is_canonical}
    of_entities = np.array([canonical.get(one.entity_id, np.zeros(DIM)) for one in points]).reshape(-1, DIM)
    np.testing.assert_allclose(collection.canonical_vectors(points), of_entities, atol=HALF)
    for types, limit in (((), 99), ((), 3), (("ORG",), 99), (("GPE", "company"), 2)):
        found = collection.search(vectors.astype(np.float32), limit=limit, types=types)
        for row, hits in zip(vectors, found, strict=True):
            may = [(one, float(row @ other)) for one, other in stored if other.any() and has_type(one, types)]
            cosines = {one.id: cosine for one, cosine in may} if row.any() else {}
            scores = [one.score for one in hits]
            assert scores == pytest.approx([cosines[one.point.id] for one in hits], abs=HALF)
            assert scores == pytest.approx(sorted(cosines.values(), reverse=True)[:limit], abs=HALF)
            assert all(one.point == state.points[one.point.id][0] for one in hits)
    assert tuple(collection.read_ledger()) == state.ledger
    assert collection.manifest == state.manifest


KILLS = list(itertools.product(["sync_folder", "store_files", "write_content"], [False, True]))
"""The steps of a commit, and whether a process is killed after one."""


class Machine:
    """One collection, written by one handle; of the embedded store read by others, which keep the state they opened."""

    def __init__(self, store: Store, folder: Path, name: str) -> None:
        self.store, self.folder, self.number = store, folder, next(NUMBERS)
        self.name = f"{name}-{self.number}"
        self.is_embedded = not is_url(store.location)
        self.opened = self.store.create(manifest_of(self.name))
        self.opened.append_ledger([b"first"])  # without one, the ledger of a killed edit is taken for a kept one
        self.now = State(self.opened.manifest, ledger=(b"first",))
        self.readers: list[tuple[Collection, State]] = []

    def write(self, rows: list[Row], how: str) -> None:
        """Write names; what a load has acknowledged before it was stopped stays. A vector that is none is not read."""
        points = [one for one, _ in map(made, rows)]
        vectors = np.array([row for _, row in map(made, rows)], dtype=np.float32)
        encodable: BoolArray = np.asarray(vectors.any(axis=1))
        vectors[~encodable] = np.nan
        if how == "upsert":
            self.opened.upsert(points, vectors, encodable)
        else:
            with suppress(KeyboardInterrupt), self.opened.writer() as writer:
                writer.write(points, vectors, encodable)
                if how == "stopped load":
                    writer.flush()
                    raise KeyboardInterrupt
        self.now = self.now.with_rows(rows)

    def fill(self, rows: list[Row]) -> None:
        self.make_again(keep=True)
        self.write(rows, how="load")
        if self.is_embedded:
            self.read()
            self.edit_together([(entity, 1, kind, seed + 1) for entity, _, kind, seed in rows], ["E1"], "upsert")

    def describe(self, version: str | None, names: int) -> None:
        changed = self.opened.manifest.model_copy(update={"kb_version": version, "names": names})
        self.opened.write_manifest(changed)
        self.now = replace(self.now, manifest=changed)

    def delete_entities(self, entities: list[str]) -> None:
        gone = self.now.ids_of(entities)
        assert self.opened.delete_entities(entities) == len(gone)
        self.now = self.now.without(gone)

    def delete_points(self, rows: list[Row], places: list[int]) -> None:
        stored = sorted(self.now.points) or [point("none", "none").id]
        gone = {made(row)[0].id for row in rows} | {stored[i % len(stored)] for i in places}
        self.opened.delete_points(gone)
        self.now = self.now.without(gone)

    def replace_payloads(self, rows: list[Row]) -> None:
        new = {one.id: one for one, _ in map(made, rows) if one.id in self.now.points}
        self.opened.replace_payloads(list(new.values()))
        changed = {one: (new[one], self.now.points[one][1]) for one in new}
        self.now = replace(self.now, points=self.now.points | changed)

    def learn(self, lines: list[bytes]) -> None:
        self.opened.append_ledger(lines)
        self.now = replace(self.now, ledger=(*self.now.ledger, *lines))

    def build_the_graph(self) -> None:
        self.opened.finalize()
        assert self.opened.status().is_finalized

    def reopen(self) -> None:
        self.opened.close()
        if self.is_embedded:
            check_files(self.store.location, self.name)
        self.opened = self.store.open(self.name)

    def make_again(self, keep: bool) -> None:
        """A ledger belongs to a name: a collection of that name has the one that was kept, or none."""
        self.opened.close()
        self.store.delete(self.name, keep_ledger=keep)
        assert self.name not in self.store.collections()
        for use in (self.store.open, self.store.delete):
            with pytest.raises(CollectionNotFoundError, match=self.name):
                use(self.name)
        self.opened = self.store.create(manifest_of(self.name))
        with pytest.raises(CollectionExistsError, match=self.name):
            self.store.create(manifest_of(self.name, dim=DIM - 1))
        assert self.opened.manifest == manifest_of(self.name).as_created()
        assert set(INDEXED_FIELDS) <= set(self.opened.status().payload_indexes)
        self.now = State(self.opened.manifest, ledger=self.now.ledger if keep else ())
        if not keep:
            self.learn([b"first"])

    def read(self) -> None:
        reader, vectors = self.store.open(self.name, read_only=True), np.eye(DIM, dtype=np.float32)
        given = vectors, ngram_rows([f"name {i}" for i in range(DIM)])
        found = (one.search_hybrid(*given, limit=5, lexical_limit=5, types=["ORG"]) for one in (reader, self.opened))
        assert next(found) == next(found)
        self.readers.append((reader, self.now))

    def edit_together(self, rows: list[Row], entities: list[str], how: str) -> None:
        """Several changes are one; of a process that is killed before the last, the disk has none."""
        before, copy = self.now, self.folder / f"killed-{next(NUMBERS)}"
        with self.opened.editing():
            self.write(rows, how=how)
            self.delete_entities(entities)
            self.learn([b"learned"])
            self.describe("edited", 7)
            with closing(self.store.open(self.name, read_only=True)) as reader:
                check(reader, before)
            copy_files(Path(self.store.location), copy)
        with closing(open_store(copy)) as left:
            check(left.open(self.name, read_only=True), before)
            if how == "upsert":  # a load that was killed is resumed
                check(left.open(self.name), before)

    def kill_in_commits(self, rows: list[Row], more: list[Row]) -> None:
        first, second = KILLS[self.number % 3 :: 3]
        self.kill_in_a_commit(rows, *first)
        self.kill_in_a_commit(more, *second)

    def kill_in_a_commit(self, rows: list[Row], step: str, is_done: bool) -> None:
        """A process that is killed before or after a step of a commit leaves all of a change on the disk or nothing."""
        before, copy, plain = self.now, self.folder / f"killed-{next(NUMBERS)}", getattr(edge_content, step)

        def with_copy(*given: Any) -> Any:
            found = plain(*given) if is_done else None
            if not copy.exists():
                copy_files(Path(self.store.location), copy)
            return found if is_done else plain(*given)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(edge_content, step, with_copy)
            self.write(rows, how="upsert")
        left_with = self.now if (step, is_done) == ("write_content", True) else before
        with closing(open_store(copy)) as left:
            reader, writer = left.open(self.name, read_only=True), left.open(self.name)
            check(reader, left_with)
            check(writer, left_with)
            assert not reader.is_outdated
            writer.upsert(*many(2))
            assert reader.is_outdated
            writer.close()
            check_files(copy, self.name)

    def agree(self) -> None:
        check(self.opened, self.now)
        for reader, seen in self.readers:
            check(reader, seen)
            assert reader.is_outdated or seen == self.now or not seen.points

    def end(self) -> None:
        for one in (self.opened, *(reader for reader, _ in self.readers)):
            one.close()
        self.store.delete(self.name)


ANYWHERE: dict[Callable[..., None], dict[str, SearchStrategy[Any]]] = {
    Machine.write: {"rows": ROWS, "how": st.sampled_from(["upsert", "load", "stopped load"])},
    Machine.describe: {"version": st.sampled_from([None, "2024ab"]), "names": st.integers(0, 9)},
    Machine.delete_entities: {"entities": IDS},
    Machine.delete_points: {"rows": ROWS, "places": st.lists(st.integers(0, 17), min_size=1, max_size=3)},
    Machine.replace_payloads: {"rows": ROWS},
    Machine.learn: {"lines": st.lists(st.sampled_from(LINES), min_size=1, max_size=2)},
    Machine.build_the_graph: {},
    Machine.reopen: {},
    Machine.make_again: {"keep": st.booleans()},
}
EMBEDDED: dict[Callable[..., None], dict[str, SearchStrategy[Any]]] = {
    **ANYWHERE,
    Machine.read: {},
    Machine.edit_together: {"rows": ROWS, "entities": IDS, "how": st.sampled_from(["upsert", "load"])},
    Machine.kill_in_commits: {"rows": ROWS, "more": ROWS},
}
"""What is done, and with what."""


def test_a_collection_is_what_a_dictionary_says(store: Store, name: str, tmp_path: Path) -> None:
    """After any changes, loads, reopenings and kills, everything that is read is as it was written."""
    actions = ANYWHERE if is_url(store.location) else EMBEDDED
    n = (12 if THOROUGH else 4) - is_url(store.location)

    @settings(max_examples=n, derandomize=True, phases=[Phase.generate], database=None, deadline=None)
    @given(st.lists(ROW, min_size=6, max_size=9), st.permutations([*actions] * (3 if THOROUGH else 1)), st.data())
    def run(rows: list[Row], order: list[Callable[..., None]], data: st.DataObject) -> None:
        machine = Machine(store, tmp_path, name)
        machine.fill(rows)
        machine.agree()
        for act in order:
            act(machine, **{one: data.draw(values, one) for one, values in actions[act].items()})
            machine.agree()
        machine.end()

    run()
