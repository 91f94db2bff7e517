"""What contexts say of names: for one thing, and against it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.resolution import NameRecord, Resolution, resolve
from pearl_qdrant.resolution.graphs import resolve_graph

BASKETBALL = NameRecord("Lo Vanne", "PERSON", context="Lo Vanne is a basketball player of the Harbour Sharks")
LEAGUE = NameRecord("Lo Vanne", "PERSON", context="scored 30 points in the final of the basketball league")
CHEMIST = NameRecord("Lo Vanne", "PERSON", context="Lo Vanne, a chemist at the university")
UNSAID = NameRecord("Lo Vanne", "PERSON")


@pytest.fixture(scope="module")
def found(shipped: Encoder) -> Resolution:
    """Uses of one name, resolved once."""
    return resolve([BASKETBALL, LEAGUE, CHEMIST, UNSAID], encoder=shipped)


def test_namesakes_are_several_nodes(found: Resolution) -> None:
    """Contexts about one thing are one node, those about another thing another one."""
    assert found.node(BASKETBALL) == found.node(LEAGUE)
    assert found.node(BASKETBALL) != found.node(CHEMIST)


def test_a_name_without_a_context_is_asked(found: Resolution) -> None:
    """Nothing says which namesake it is: it has a node of its own, and a question for each."""
    assert found.node(UNSAID) not in (found.node(BASKETBALL), found.node(CHEMIST))
    asked = [{pair.context, pair.other_context} for pair in found.review]
    assert len(asked) == 3
    assert all(pair.reason == "equal names of different contexts" for pair in found.review)


def test_another_name_of_two_namesakes_is_asked(shipped: Encoder) -> None:
    """A title makes no namesake; it joins the one that its own context is about, and none if it has no context."""
    with_title = NameRecord("Dr. Lo Vanne", "PERSON")
    asked = resolve([BASKETBALL, CHEMIST, with_title], encoder=shipped)
    assert len({asked.node(one) for one in (BASKETBALL, CHEMIST, with_title)}) == 3
    said = replace(with_title, context=CHEMIST.context)
    known = resolve([BASKETBALL, CHEMIST, said], encoder=shipped)
    assert known.node(said) == known.node(CHEMIST) != known.node(BASKETBALL)


@pytest.mark.parametrize(
    "one, other",
    [
        ("heart surgeon in Alderburg", "Lo Vanne is a cardiologist at the Alderburg clinic"),
        ("Late on Monday Lo Vanne bought a red car", "The minister and Lo Vanne spoke of fishing"),  # says what happens
        ("", "a chemist at the university"),
        ("Lo Vanne", "a chemist at the university"),
    ],
)
def test_other_words_part_nobody(one: str, other: str, shipped: Encoder) -> None:
    """Contexts of one thing need not share words; a sentence that says what happens, and no context, say nothing."""
    found = resolve([NameRecord("Lo Vanne", "PERSON", context=text) for text in (one, other)], encoder=shipped)
    assert [len(names) for _, names in found.nodes] == [1]
    assert not found.review


def test_namesakes_keep_their_nodes(found: Resolution, shipped: Encoder, tmp_path: Path) -> None:
    """A later run gives a new context the node of the namesake that it is about; a decision is about one of them."""
    found.write(tmp_path / "nodes.tsv", review=tmp_path / "review.tsv")
    more = NameRecord("Lo Vanne", "PERSON", context="basketball guard of the Sharks")
    later = resolve([more], previous=tmp_path / "nodes.tsv", encoder=shipped)
    assert later.node(more) == found.node(BASKETBALL)
    assert {later.node(one) for one in (CHEMIST, UNSAID)} == {found.node(one) for one in (CHEMIST, UNSAID)}
    rows = (tmp_path / "review.tsv").read_text().splitlines()
    one = next(row for row in rows if "chemist" in row and "Sharks" not in row and "scored" not in row)
    (tmp_path / "review.tsv").write_text(f"{rows[0]}\nsame{one}\n")
    decided = resolve([], previous=found, decisions=tmp_path / "review.tsv", encoder=shipped)
    assert decided.node(UNSAID) == decided.node(CHEMIST) != decided.node(BASKETBALL)


def test_contexts_speak_against_names_that_are_alike(shipped: Encoder) -> None:
    """A title more makes no other person, but another subject may: a person decides."""
    names = ("Ada Lindqvist", "cardiologist at the hospital"), ("Dr. Ada Lindqvist", "goalkeeper of Alder United")
    apart = resolve([NameRecord(name, "PERSON", context=context) for name, context in names], encoder=shipped)
    assert [pair.reason for pair in apart.review] == ["contexts about other things"]
    assert len(list(resolve([NameRecord(name, "PERSON") for name, _ in names], encoder=shipped).nodes)) == 1


def test_neighbours_speak_for_names_that_share_no_word(shipped: Encoder, tmp_path: Path) -> None:
    """Nodes with the same neighbours are one where their names may be."""
    names = "Munich", "München"
    assert len(list(resolve(names, encoder=shipped).nodes)) == 2
    edges = [f"{name}\t{other}" for name in names for other in ("Bavaria", "Isar", "Oktoberfest", "BMW", "Alps")]
    (tmp_path / "edges.tsv").write_text("\n".join(edges) + "\n")
    merged = resolve_graph(tmp_path / "edges.tsv", lambda records: resolve(records, encoder=shipped), dry_run=True)
    assert len({merged.resolution.row(NameRecord(name)).node_id for name in names}) == 1  # type: ignore[union-attr]
