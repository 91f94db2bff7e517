"""`resolve`: names to nodes."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from resolution_names import LetterEncoder

from pearl_qdrant.errors import FormatError, OptionError
from pearl_qdrant.resolution import Decision, NameRecord, Resolution, resolve

NAMES = [
    NameRecord("Albert Einstein", "PERSON", "d1"),
    NameRecord("Einstein, Albert", "PERSON", "d2"),
    NameRecord("albert  einstein", "PERSON", "d3"),
    NameRecord("World Health Organization", "ORG", "d1"),
    NameRecord("WHO", "ORG", "d1"),
    NameRecord("Western Hemisphere Office", "ORG", "d2"),
    NameRecord("hepatitis B", "disease"),
    NameRecord("hepatitis C", "disease"),
    NameRecord("type I diabetes", "disease"),
    NameRecord("type 1 diabetes", "disease"),
    NameRecord("type II diabetes", "disease"),
    NameRecord("left lung", "organ"),
    NameRecord("right lung", "organ"),
    NameRecord("Olympics 2019", "event"),
    NameRecord("Olympics 2020", "event"),
    NameRecord("C", "language"),
    NameRecord("C++", "language"),
    NameRecord("Apple", "ORG"),
    NameRecord("Apple", "fruit"),
]


@pytest.fixture(scope="module")
def found() -> Resolution:
    """The names, resolved once."""
    return resolve(NAMES, encoder=LetterEncoder())


def nodes(resolution: Resolution, *names: str) -> set[str | None]:
    """The nodes of names."""
    return {one.node_id for one in resolution.names if one.name in names}


def clusters(resolution: Resolution) -> set[frozenset[str]]:
    """Names by node."""
    return {frozenset(one.name for one in names) for _, names in resolution.nodes}


def test_names_of_one_entity_get_one_node(found: Resolution) -> None:
    """Spelling and order of words do not matter, and each merge has a probability and a reason."""
    assert len(nodes(found, "Albert Einstein", "Einstein, Albert", "albert einstein")) == 1
    merged = [one for one in found.names if not one.founded]
    assert merged
    assert all(0 < one.probability <= 1 and one.reason for one in merged)


@pytest.mark.parametrize(
    "one, other",
    [
        ("hepatitis B", "hepatitis C"),
        ("type I diabetes", "type II diabetes"),
        ("left lung", "right lung"),
        ("Olympics 2019", "Olympics 2020"),
        ("C", "C++"),
    ],
)
def test_numbers_letters_and_opposites_forbid_merges(found: Resolution, one: str, other: str) -> None:
    """Names that differ in what tells siblings apart stay apart, however near they are."""
    assert len(nodes(found, one, other)) == 2


def test_types_forbid_merges(found: Resolution) -> None:
    """The same name with two types is two nodes, unless types are ignored."""
    assert len(nodes(found, "Apple")) == 2
    ignored = resolve(
        [NameRecord("Apple", "ORG"), NameRecord("Apple", "fruit")], encoder=LetterEncoder(), type_mode="off"
    )
    assert len(list(ignored.nodes)) == 1


def test_an_acronym_joins_its_long_form_of_the_same_source_alone(found: Resolution) -> None:
    """WHO is the World Health Organization, because one document has both; it is no other long form."""
    assert len(nodes(found, "WHO", "World Health Organization")) == 1
    assert len(nodes(found, "WHO", "Western Hemisphere Office")) == 2
    assert found.node("WHO", "ORG") == found.node("World Health Organization", "ORG")


def test_a_context_defines_an_abbreviation() -> None:
    """An abbreviation that a context defines joins its long form, without a source."""
    context = "It binds tumor necrosis factor (TNF)."
    names = [NameRecord("TNF"), NameRecord("tumor necrosis factor", context=context)]
    assert len(list(resolve(names, encoder=LetterEncoder()).nodes)) == 1


def test_order_does_not_matter(found: Resolution) -> None:
    """Nodes and ids are the same for another order of the names."""
    shuffled = random.Random(1).sample(NAMES, len(NAMES))
    assert resolve(shuffled, encoder=LetterEncoder()).names == found.names


def test_ids_stay_when_names_are_added(found: Resolution) -> None:
    """A new name joins a node or founds one; no earlier name changes its node."""
    more = resolve([NameRecord("Albert Einstein.", "PERSON"), NameRecord("Marie Curie", "PERSON")], previous=found,
                   encoder=LetterEncoder())  # fmt: skip
    before = {(one.name, one.type): one.node_id for one in found.names}
    after = {(one.name, one.type): one.node_id for one in more.names}
    assert {key: after[key] for key in before} == before
    assert after[("Albert Einstein.", "PERSON")] == before[("Albert Einstein", "PERSON")]
    assert after[("Marie Curie", "PERSON")] not in before.values()


def test_the_same_names_again_encode_nothing(found: Resolution) -> None:
    """A run whose names are all known gives the earlier nodes, without the encoder."""
    encoder = LetterEncoder()
    again = resolve(NAMES, previous=found, encoder=encoder)
    assert encoder.n_encoded == 0
    assert clusters(again) == clusters(found)


def test_earlier_nodes_never_merge_by_themselves() -> None:
    """A name between two earlier nodes joins one of them; only a decision makes them one."""
    apart = [Decision("Jon Smith", "John Smith", "different")]
    first = resolve(["Jon Smith", "John Smith"], encoder=LetterEncoder(), decisions=apart)
    assert len(list(first.nodes)) == 2
    more = resolve(["Smith, John"], previous=first, encoder=LetterEncoder())
    assert len(list(more.nodes)) in (2, 3)
    assert len(nodes(more, "Jon Smith", "John Smith")) == 2
    one = resolve([], previous=more, decisions=[Decision("Jon Smith", "John Smith", "same")], encoder=LetterEncoder())
    assert len(nodes(one, "Jon Smith", "John Smith")) == 1


def test_undo_takes_a_name_out_for_good(found: Resolution) -> None:
    """A name that was taken out has a node of its own, which later runs keep apart from the former."""
    undone = found.undo([NameRecord("Einstein, Albert", "PERSON")])
    assert len(nodes(undone, "Albert Einstein", "Einstein, Albert")) == 2
    again = resolve(["Niels Bohr"], previous=undone, encoder=LetterEncoder())
    assert len(nodes(again, "Albert Einstein", "Einstein, Albert")) == 2
    others = {(one.name, one.type, one.node_id) for one in found.names if "instein" not in one.name}
    assert others <= {(one.name, one.type, one.node_id) for one in again.names}


def test_undoing_what_is_alone_or_unknown_says_so(found: Resolution) -> None:
    """There is nothing to undo for a name that is alone, or not there."""
    with pytest.raises(OptionError, match="alone"):
        found.undo(["hepatitis B"])
    with pytest.raises(OptionError, match="no name"):
        found.undo(["Marie Curie"])


def test_files_hold_all_that_a_later_run_needs(found: Resolution, tmp_path: Path) -> None:
    """Nodes that are written and read are the same; a review is written with empty decisions."""
    found.write(tmp_path / "nodes.tsv", review=tmp_path / "review.tsv")
    back = Resolution.read(tmp_path / "nodes.tsv")
    assert [(one.name, one.type, one.node_id, one.founded, one.apart) for one in back.names] == [
        (one.name, one.type, one.node_id, one.founded, one.apart) for one in found.names
    ]
    assert (tmp_path / "review.tsv").read_text().splitlines()[0].startswith("decision\t")


def test_decisions_are_read_from_the_review(tmp_path: Path) -> None:
    """`same` in a row of the review merges its names, `different` keeps them apart; empty cells decide nothing."""
    review = tmp_path / "review.tsv"
    review.write_text("decision\tname\tother\nsame\tBob\tRobert Miller\ndifferent\tAnn Lee\tLee, Ann\n\tx\ty\n")
    names = ["Bob", "Robert Miller", "Ann Lee", "Lee, Ann", "x", "y"]
    found = resolve(names, decisions=review, encoder=LetterEncoder())
    assert len(nodes(found, "Bob", "Robert Miller")) == 1
    assert len(nodes(found, "Ann Lee", "Lee, Ann")) == 2


def test_a_wrong_decision_names_its_line(tmp_path: Path) -> None:
    """A word that is no decision is an error with the line."""
    review = tmp_path / "review.tsv"
    review.write_text("decision\tname\tother\nperhaps\ta\tb\n")
    with pytest.raises(FormatError, match=r"review\.tsv:2: .*perhaps"):
        resolve(["a", "b"], decisions=review, encoder=LetterEncoder())


@pytest.mark.parametrize("names", [[], ["", "  "], ["\u200b", "!!!", "???"], ["a"], ["\ud800x", "y"], ["x" * 5000] * 2])
def test_strange_names_do_no_harm(names: Iterable[str]) -> None:
    """No names, blank ones, signs alone, a lone surrogate and a very long name get through."""
    given = [name for name in names if name.strip()]
    found = resolve(names, encoder=LetterEncoder())
    assert {one.name for one in found.names} == set(given)


def test_one_string_is_no_list_of_names() -> None:
    """A string that is no file would be read letter by letter: an error."""
    with pytest.raises(TypeError, match="pass a list"):
        resolve("Albert Einstein", encoder=LetterEncoder())
