"""`crosswalk`: the entities of one base in another."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runner import Run
from linker_base import ENTITIES, fill

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant._version import __version__
from pearl_qdrant.crosswalk import UNSPECIFIED_LICENSE, Crosswalk, EntityMatch, assign, crosswalk, curie, sssom_lines

OURS = [
    Entity("X:1", "NYTimes", ("the new-york times",), ("ORG",), ("ORG",)),
    Entity("X:2", "Heart Attack"),
    Entity("X:3", "zzzz qqqq xxxx"),
    Entity("X:4", "New York Post", (), ("PERSON",), ("PERSON",)),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A store with the bases `base` and `ours`."""
    path = tmp_path_factory.mktemp("crosswalk") / "store"
    fill(path, "base", str(model), ENTITIES, is_loaded=True)
    fill(path, "ours", str(model), OURS, is_loaded=True)
    return path


@pytest.fixture(scope="module")
def linker(store: Path) -> Iterator[EntityLinker]:
    """A linker over `base`."""
    with EntityLinker.open("base", store=str(store), read_only=True) as opened:
        yield opened


def test_entities_are_found_by_their_names(linker: EntityLinker) -> None:
    """Each entity has its partner with a probability and a reason, or NIL; types forbid a match."""
    found = {one.subject_id: one for one in crosswalk(OURS, linker, source="x").matches}
    assert {key: one.object_id for key, one in found.items()} == {"X:1": "nyt", "X:2": "mi", "X:3": None, "X:4": None}
    assert found["X:1"].is_exact
    assert found["X:1"].probability >= 0.9
    assert "=" in found["X:1"].reason
    assert found["X:3"].reason


def test_one_to_one_gives_no_entity_twice(linker: EntityLinker) -> None:
    """Of two entities that are the same one there, one has it, and the other says so."""
    pytest.importorskip("scipy")
    twice = [OURS[0], Entity("X:9", "The New York Times")]
    both = crosswalk(twice, linker)
    assert [one.object_id for one in both.matches] == ["nyt", "nyt"]
    single = crosswalk(twice, linker, one_to_one=True)
    assert sorted(one.object_id or "" for one in single.matches) == ["", "nyt"]
    assert "taken by another entity" in {one.reason for one in single.matches}


def test_the_assignment_is_the_best_one() -> None:
    """No other choice of partners has a higher sum, where a greedy one would take the highest first."""
    pytest.importorskip("scipy")
    assert assign({"a": {"x": 0.9, "y": 0.8}, "b": {"x": 0.85}}) == {"a": "y", "b": "x"}
    rng = random.Random(3)
    for _ in range(20):
        given = {i: {j: rng.random() for j in range(4) if rng.random() < 0.7} for i in range(4)}
        chosen = assign(given)
        assert len(set(chosen.values())) == len(chosen)
        best = max(sum(given[i].get(j, 0.0) for i, j in enumerate(order)) for order in itertools.permutations(range(4)))
        assert sum(given[i][j] for i, j in chosen.items()) == pytest.approx(best)


MATCHES = (
    EntityMatch("DOID:1", "flu\tA", "MONDO:7", "influenza", "mondo", 0.98, "flu = flu", True),
    EntityMatch("q 1", "x", "http://e.org/a", "y", "my base", 0.91, "x ~ y"),
    EntityMatch("DOID:2", "cold", "MONDO:8", "common cold", "mondo", 0.6, "cold = cold", True),
)


def test_sssom_has_a_header_and_curies(tmp_path: Path) -> None:
    """Every prefix of an id has an IRI, ids without one get that of their base, and no cell breaks its row."""
    lines = list(sssom_lines(MATCHES, "doid", "mondo", prefixes={"DOID": "http://doid/"}, license_url=None))
    header = [line for line in lines if line.startswith("#")]
    assert header[0] == "#curie_map:"
    assert '#  DOID: "http://doid/"' in header
    assert '#  MONDO: "http://purl.obolibrary.org/obo/MONDO_"' in header
    columns, *rows = (line.split("\t") for line in lines[len(header) :])
    assert [len(row) for row in rows] == [len(columns)] * 3
    assert [row[columns.index("subject_id")] for row in rows] == ["DOID:1", "doid:q%201", "DOID:2"]
    assert rows[1][columns.index("object_id")] == "my_base:http%3A%2F%2Fe.org%2Fa"
    assert rows[0][columns.index("mapping_justification")] == "semapv:LexicalMatching"
    predicates = [row[columns.index("predicate_id")] for row in rows]
    assert predicates == ["skos:exactMatch", "skos:closeMatch", "skos:closeMatch"]
    assert {"#mapping_tool: pearl-qdrant", f'#license: "{UNSPECIFIED_LICENSE}"'} <= set(header)
    assert f'#mapping_tool_version: "{__version__}"' in header
    assert curie("12", "9 lives") == ("base_9_lives", "12")


def test_sssom_py_reads_what_is_written(tmp_path: Path) -> None:
    """The reader of the format accepts the file, and finds all matches."""
    parsers = pytest.importorskip("sssom.parsers")
    path = tmp_path / "x.sssom.tsv"
    Crosswalk(MATCHES, "doid", "mondo").write_sssom(path)
    frame = parsers.parse_sssom_table(path).df
    assert frame["confidence"].tolist() == [0.98, 0.91, 0.6]


def test_the_command_writes_tables(run: Run, store: Path, tmp_path: Path) -> None:
    """A file against a collection: a table with NIL, or SSSOM without, by the ending."""
    base = tmp_path / "ours.tsv"
    base.write_text("id\tname\nX:2\theart attack\nX:3\tzzzz qqqq\n")
    out, sssom = tmp_path / "out.tsv", tmp_path / "out.sssom.tsv"
    for path in (out, sssom):
        done = run("crosswalk", str(base), "base", "--store", str(store), "--out", str(path))
        assert done.status == 0, done.err
        assert "2 entities, 1 found, 1 NIL" in done.err
    assert [line.split("\t")[2] for line in out.read_text().splitlines()] == ["object_id", "mi", ""]
    assert [line.split("\t")[3] for line in sssom.read_text().splitlines() if line.startswith("X:")] == ["base:mi"]
    Crosswalk(MATCHES, "doid", "mondo").write_sssom(sssom, license_url="https://example.org/licence")
    assert '#license: "https://example.org/licence"' in sssom.read_text().splitlines()
    printed = run("crosswalk", "ours", "base", "--store", str(store), "--json", "--threshold", "0.99")
    assert len([json.loads(line) for line in printed.out.splitlines()]) == len(OURS)
    assert run("crosswalk", "ours", "nothing", "--store", str(store)).status == 1
