"""`resolve`: names to nodes.
Clusters of names from probabilities of pairs.
What two names say of each other: the same words, doubts, types, places that others fill.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pair_table import other_outcomes
from resolution_names import LetterEncoder

from pearl_qdrant.errors import FormatError, OptionError
from pearl_qdrant.resolution import Decision, NameRecord, Resolution, resolve
from pearl_qdrant.resolution.clusters import FORBIDDEN, PairTable, ScorePairs, cluster_names
from pearl_qdrant.resolution.pairs import comparison
from pearl_qdrant.resolution.pairs.comparison import pack_pairs

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


def test_null_cells_of_a_record_are_empty() -> None:
    """A row of a table may lack a type or a source: `None`, or NaN as pandas has it."""
    given: Any = {"type": None, "source": math.nan}
    assert NameRecord("Oslo", **given) == NameRecord("Oslo")


def test_an_acronym_joins_its_long_form_of_the_same_source_alone(found: Resolution) -> None:
    """WHO is the World Health Organization, because one document has both; it is no other long form."""
    assert len(nodes(found, "WHO", "World Health Organization")) == 1
    assert len(nodes(found, "WHO", "Western Hemisphere Office")) == 2
    assert found.node("WHO", "ORG") == found.node("World Health Organization", "ORG")


def test_initials_join_the_only_person_that_they_fit() -> None:
    """`A. Berg` is Ada Berg, unless there is an Anna Berg, too; an acronym may have a whole word, or a Roman number."""
    one = resolve([NameRecord(name, "person") for name in ("A. Berg", "Ada Berg", "Eva Berg")], encoder=LetterEncoder())
    assert len(nodes(one, "A. Berg", "Ada Berg")) == 1
    two = resolve(
        [NameRecord(name, "person") for name in ("A. Berg", "Ada Berg", "Anna Berg")], encoder=LetterEncoder()
    )
    assert len(nodes(two, "A. Berg", "Ada Berg", "Anna Berg")) == 3
    wars = resolve(["WWII", "World War 2"], encoder=LetterEncoder())
    assert len(list(wars.nodes)) == 1


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
    """A name that was taken out has a node of its own, which later runs keep apart from the former; there is nothing to
    undo for a name that is alone, or not there.
    """
    undone = found.undo([NameRecord("Einstein, Albert", "PERSON")])
    assert len(nodes(undone, "Albert Einstein", "Einstein, Albert")) == 2
    again = resolve(["Niels Bohr"], previous=undone, encoder=LetterEncoder())
    assert len(nodes(again, "Albert Einstein", "Einstein, Albert")) == 2
    others = {(one.name, one.type, one.node_id) for one in found.names if "instein" not in one.name}
    assert others <= {(one.name, one.type, one.node_id) for one in again.names}
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
    """`same` in a row of the review merges its names, `different` keeps them apart; empty cells decide nothing, and a
    word that is no decision is an error with its line.
    """
    review = tmp_path / "review.tsv"
    review.write_text("decision\tname\tother\nsame\tBob\tRobert Miller\ndifferent\tAnn Lee\tLee, Ann\n\tx\ty\n")
    names = ["Bob", "Robert Miller", "Ann Lee", "Lee, Ann", "x", "y"]
    found = resolve(names, decisions=review, encoder=LetterEncoder())
    assert len(nodes(found, "Bob", "Robert Miller")) == 1
    assert len(nodes(found, "Ann Lee", "Lee, Ann")) == 2
    review.write_text("decision\tname\tother\nperhaps\ta\tb\n")
    with pytest.raises(FormatError, match=r"review\.tsv:2: .*perhaps"):
        resolve(["a", "b"], decisions=review, encoder=LetterEncoder())


@pytest.mark.parametrize("names", [[], ["", "  "], ["\u200b", "!!!", "???"], ["a"], ["\ud800x", "y"], ["x" * 5000] * 2])
def test_strange_names_do_no_harm(names: Iterable[str]) -> None:
    """No names, blank ones, signs alone, a lone surrogate and a very long name get through; a string that is no file
    would be read letter by letter: an error.
    """
    given = [name for name in names if name.strip()]
    found = resolve(names, encoder=LetterEncoder())
    assert {one.name for one in found.names} == set(given)
    with pytest.raises(TypeError, match="pass a list"):
        resolve("Albert Einstein", encoder=LetterEncoder())


def table_of(
    known: Sequence[tuple[int, int, float]], score: ScorePairs = lambda pairs: ([0.0] * len(pairs), [0] * len(pairs))
) -> PairTable:
    """A table of known pairs."""
    ordered = sorted(known)
    pairs = np.array([pair for *pair, _ in ordered], np.int64)
    probabilities = np.array([probability for *_, probability in ordered])
    return PairTable(pack_pairs(pairs), probabilities, np.zeros(len(pairs), np.uint8), score)


def alike(members: Sequence[int]) -> dict[int, float]:
    """All names of a cluster are as good to call it by."""
    return dict.fromkeys(members, 0.0)


def run(known: Sequence[tuple[int, int, float]], **options: object) -> list[list[int]]:
    """Members of the clusters at a threshold of 0.6; pairs that are not known have 0."""
    table = table_of(known)
    found = cluster_names(table, 0.6, prefer=alike, **options)  # type: ignore[arg-type]
    return sorted(cluster.members for cluster in found)


@pytest.mark.parametrize(
    "known, expected",
    [
        ([(0, 1, 0.9), (1, 2, 0.8), (2, 3, 0.9)], [[0, 1], [2, 3]]),  # a chain of probable pairs is no cluster
        ([(0, 1, 0.9), (1, 2, 0.8), (0, 2, 0.7)], [[0, 1, 2]]),  # all pairs count
        ([(0, 1, 0.99), (1, 2, 0.99), (0, 2, FORBIDDEN)], [[0, 1]]),  # one forbidden pair outweighs all others
        ([(0, 1, 0.9), (1, 2, 0.995), (0, 2, 0.2)], [[0, 1, 2]]),  # a certain pair needs no other
    ],
)
def test_names_that_agree_are_one(known: list[tuple[int, int, float]], expected: list[list[int]]) -> None:
    """All pairs between two clusters decide, unless one is forbidden or certain."""
    assert run(known) == expected


def test_cells_find_the_neighbours_of_a_full_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many names are compared within cells, which find nearly all of the nearest names."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(60, 16))
    vectors = (np.repeat(centres, 20, axis=0) + 0.3 * rng.normal(size=(1200, 16))).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    exact = comparison.nearest_names(vectors, 5, rng)
    monkeypatch.setattr(comparison, "EXACT_NAMES", 100)
    monkeypatch.setattr(comparison, "CELL_NAMES", 40)
    near = comparison.nearest_names(vectors, 5, rng)
    shared = np.mean([len(set(a) & set(b)) / 5 for a, b in zip(exact.names.tolist(), near.names.tolist(), strict=True)])
    assert shared > 0.9
    assert all(i not in row for i, row in enumerate(near.names.tolist()))


@pytest.mark.parametrize("kind", ["thing", "person"])
def test_names_of_one_thing_or_person(kind: str) -> None:
    """Legal forms, plurals, articles, endings, abbreviations and titles in other scripts do not matter; initials and
    doses make a part; a letter more, a longer word, and a word of the language that ends in s are something else.
    Titles before a name of a person, middle names and a part of a name may differ, if they do not contradict. First
    names that differ by a letter are those of two persons, if both are known; a slip is no known name.
    """

    def outcome(one: str, other: str) -> str:
        both = resolve([NameRecord(one, kind), NameRecord(other, kind)], encoder=LetterEncoder())
        reasons = [row.reason for row in both.names if not row.founded]
        return "apart" if not reasons else "part" if reasons == ["part of the name"] else "same"

    assert other_outcomes(__file__, kind, outcome) == []
