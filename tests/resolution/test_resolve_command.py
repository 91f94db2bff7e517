"""`pearl-qdrant resolve`."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Run
from linker_base import ENTITIES, fill

from pearl_qdrant import EntityLinker
from pearl_qdrant.resolution import Decision, NameRecord, Resolution, read_names, resolution, resolve


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A store with a small collection."""
    store = tmp_path_factory.mktemp("known") / "store"
    fill(store, "base", str(model), ENTITIES, is_loaded=True)
    return store


def test_names_that_a_collection_knows_get_its_ids(known: Path) -> None:
    """A name of the collection has its entity; what it does not know is clustered by itself."""
    with EntityLinker.open("base", store=str(known), read_only=True) as linker:
        found = resolve(
            [NameRecord("NYTimes", "ORG"), NameRecord("the New York Times", "planet"), "qqqq zzzz"], linker=linker
        )
        assert {one.name: one.entity_id for one in found.names} == {
            "NYTimes": "nyt",
            "the New York Times": "nyt",
            "qqqq zzzz": None,
        }
        split = resolve(["NYTimes"], linker=linker, decisions=[
            Decision("NYTimes", "The New York Times", "different", other_node="nyt")
        ])  # fmt: skip
        assert split.names[0].entity_id is None
        same = resolve(["NYTimes", "qqqq"], linker=linker, decisions=[Decision("qqqq", "NYTimes", "same")])
        assert {one.entity_id for one in same.names} == {"nyt"}


def test_the_command_writes_nodes_and_a_review(run: Run, model: Path, tmp_path: Path) -> None:
    """Names in, nodes and a review out; the nodes are read back, changed and added to."""
    names = tmp_path / "names.tsv"
    names.write_text("title\ttype\nheart attack\tdisease\nHeart  Attack\tdisease\nnew york\tplace\n")
    nodes, review = tmp_path / "nodes.tsv", tmp_path / "review.tsv"
    done = run("resolve", str(names), "--out", str(nodes), "--review", str(review), "--model", str(model))
    assert done.status == 0, done.err
    assert "3 names, 2 nodes" in done.err
    assert review.exists()
    again = run("resolve", str(names), "--previous", str(nodes), "--json", "--model", str(model))
    rows = [json.loads(line) for line in again.out.splitlines()]
    assert {row["node_id"] for row in rows} == {one.node_id for one in Resolution.read(nodes).names}
    undone = run("resolve", "--previous", str(nodes), "--undo", "marie curie", "--out", str(nodes))
    assert undone.status == 1
    assert "no name" in undone.err
    assert run("resolve").status == 2
    assert run("resolve", str(names), "--undo", "x").status == 2


@pytest.mark.parametrize(
    "text, names",
    [
        ("heart attack\nNYTimes\n", ["heart attack", "NYTimes"]),
        ("id\tname\n1\tnyc\n", ["nyc"]),
        ('{"entity_name": "nyc", "entity_type": "place"}\n', ["nyc"]),
        ("", []),
    ],
)
def test_files_of_names_have_several_forms(tmp_path: Path, text: str, names: list[str]) -> None:
    """Lines, a table with a header, and JSON Lines are told apart by their first line."""
    path = tmp_path / "names"
    path.write_text(text)
    with path.open("rb") as file:
        assert [record.name for record in read_names(file, str(path))] == names


class Killed(BaseException):
    """A process ends here."""


@pytest.mark.parametrize("files_written", [0, 1, 2], ids=["before the files", "between them", "after them"])
def test_a_run_that_was_killed_is_repeated_over_its_own_file(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files_written: int
) -> None:
    """With the same file as --previous and --out, a repeated run gives the files of one run; counts are not doubled."""
    first, more = tmp_path / "first.txt", tmp_path / "more.txt"
    first.write_text("heart attack\nnew york\nnew york\n")
    more.write_text("Heart Attack\nheart atack\nnew york\nnew yorck\nlarge cat\nlarge cats\n")
    nodes, review, expected = (tmp_path / name for name in ("nodes.tsv", "review.tsv", "expected.tsv"))
    assert run("resolve", str(first), "--out", str(nodes), "--model", str(model)).status == 0
    options = ("resolve", str(more), "--model", str(model), "--previous", str(nodes))
    assert run(*options, "--out", str(expected), "--review", str(tmp_path / "pairs.tsv")).status == 0

    write, written = resolution.write_lines, 0

    def write_and_die(*arguments: Any) -> None:
        nonlocal written
        if written == files_written:
            raise Killed
        write(*arguments)
        written += 1

    options = (*options, "--out", str(nodes), "--review", str(review))
    with monkeypatch.context() as patch:
        patch.setattr(resolution, "write_lines", write_and_die)
        with suppress(Killed):
            run(*options)
    for _ in range(2):
        assert run(*options).status == 0
        assert nodes.read_text() == expected.read_text()
        assert review.read_text() == (tmp_path / "pairs.tsv").read_text()


def test_other_names_are_counted_after_earlier_ones(model: Path) -> None:
    """Names of different inputs add up; an input that was given before does not, however long ago."""
    counts = []
    found = None
    for names in (["new york", "new york"], ["new york"], ["new york", "new york"], ["new york", "oslo"]):
        found = resolve(names, model=str(model), previous=found)
        counts.append({one.name: one.count for one in found.names}["new york"])

    assert counts == [2, 3, 3, 4]
