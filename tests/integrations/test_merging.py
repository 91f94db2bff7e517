"""Merging the nodes of a graph that is being built: what all connectors share."""

from __future__ import annotations

from pathlib import Path

import pytest
from resolution_names import LetterEncoder

from pearl_qdrant import EntityLinker
from pearl_qdrant.errors import OptionError
from pearl_qdrant.integrations.merging import Merged, NameMerger
from pearl_qdrant.resolution import NameRecord

NAMES = {
    "a": NameRecord("A. Einstein", "PERSON"),
    "b": NameRecord("Albert Einstein", "PERSON"),
    "c": NameRecord("Princeton", "CITY"),
}


def keys(merged: list[Merged[str]]) -> list[tuple[str, tuple[str, ...], str]]:
    """What stays, what goes into it, and the name."""
    return [(one.key, one.others, one.name) for one in merged]


def test_the_node_with_the_name_stays_and_later_names_join_it(tmp_path: Path) -> None:
    """I give names by the keys of my nodes, and get which nodes are one; a later run knows the earlier names."""
    merger = NameMerger(tmp_path / "nodes.tsv", encoder=LetterEncoder())

    assert keys(merger.merge(NAMES)) == [("b", ("a",), "Albert Einstein"), ("c", (), "Princeton")]
    assert merger.report().startswith("A. Einstein -> Albert Einstein (")
    later = NameMerger(tmp_path / "nodes.tsv", encoder=LetterEncoder())
    assert keys(later.merge({"d": NameRecord("A. Einstein", "PERSON")})) == [("d", (), "Albert Einstein")]
    assert later.merges[0].aliases == ["A. Einstein"]


def test_a_dry_run_merges_and_writes_nothing(tmp_path: Path) -> None:
    """A dry run says what would merge; the nodes come back as they are."""
    merger = NameMerger(tmp_path / "nodes.tsv", dry_run=True, encoder=LetterEncoder())

    assert keys(merger.merge(NAMES)) == [("a", (), "A. Einstein"), ("b", (), "Albert Einstein"), ("c", (), "Princeton")]
    assert keys(merger.merges) == [("b", ("a",), "Albert Einstein")]
    assert "A. Einstein -> Albert Einstein" in merger.report()
    assert not (tmp_path / "nodes.tsv").exists()
    assert merger.resolution.names == ()


def test_what_was_undone_stays_apart_in_later_runs(tmp_path: Path) -> None:
    """I take a name out of its node, and no later run puts it back."""
    merger = NameMerger(tmp_path / "nodes.tsv", encoder=LetterEncoder())
    merger.merge(NAMES)
    merger.undo(["A. Einstein"])

    later = NameMerger(tmp_path / "nodes.tsv", encoder=LetterEncoder())
    assert [one.others for one in later.merge(NAMES)] == [(), (), ()]
    assert later.merges == []
    with pytest.raises(OptionError, match="no name"):
        later.undo(["Niels Bohr"])


def test_names_of_one_spelling_stay_together_when_others_leave() -> None:
    """I take a merge apart: what is the same name stays, what is not leaves; nothing can keep one name apart."""
    merger = NameMerger(encoder=LetterEncoder())
    einstein = [NameRecord(name, "PERSON") for name in ("Albert Einstein", "ALBERT EINSTEIN", "A. Einstein")]
    assert len(merger.merge(dict(enumerate(einstein)))) == 1

    merges = [einstein]
    assert merger.take_apart("A. Einstein", merges, lambda node: node) == einstein

    assert [len(one.others) for one in merger.merge(dict(enumerate(einstein)))] == [1, 0]
    with pytest.raises(OptionError, match="is in the 0 merges of this object"):
        merger.take_apart("A. Einstein", merges, lambda node: node)
    with pytest.raises(OptionError, match="have one name"):
        merger.take_apart("Albert Einstein", [einstein[:2]], lambda node: node)


def test_a_node_never_gets_the_name_of_another_node(linker: EntityLinker) -> None:
    """A collection gives nodes their names and ids; but where another node has that name, it keeps its own."""
    given = {1: NameRecord("NYC", "city"), 2: NameRecord("New York", "state")}

    alone = NameMerger(linker=linker).merge({1: given[1]})
    both = NameMerger(linker=linker).merge(given)

    assert (alone[0].name, alone[0].added) == ("New York", {"aliases": ["NYC"], "entity_id": "nyc"})
    assert [one.name for one in both] == ["NYC", "New York State"]


def test_blank_and_equal_names_and_ignored_types_are_no_trap() -> None:
    """A node without a name stays alone; two nodes of one name are one; types can be ignored."""
    merger = NameMerger(encoder=LetterEncoder(), type_mode="off")
    given = {
        1: NameRecord("  "),
        2: NameRecord("Princeton", "city"),
        3: NameRecord("Princeton", "place of work"),
        4: NameRecord(" "),
    }

    merged = merger.merge(given)

    assert [(one.key, one.others, one.type) for one in merged] == [(1, (), ""), (2, (3,), "city"), (4, (), "")]
    assert merger.report() == "Princeton -> Princeton (1.000: same name)"
    with pytest.raises(OptionError, match="first argument"):
        NameMerger(previous=merger.resolution)
