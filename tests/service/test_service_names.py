"""Names are found by prefix, by a word's prefix, and with a slip."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pearl_qdrant.service import names as type_ahead
from pearl_qdrant.service.names import NameIndex, build_index, fold
from pearl_qdrant.store.schema import NamePoint


def index_over(*points: NamePoint) -> NameIndex:
    """An index of some points."""
    with TemporaryDirectory() as folder:  # what is open stays, when its name is gone
        build_index(points, Path(folder) / "index")
        return NameIndex(Path(folder) / "index")


def index_of(*names: str) -> NameIndex:
    """An index of names, each of an entity of its own."""
    return index_over(*(NamePoint("kb", name, name, name, True) for name in names))


def found(index: NameIndex, query: str, **options: int) -> list[str]:
    """The names that are found, in their order."""
    return [one.name for one in index.find(query, **options)]


@pytest.mark.parametrize(
    "text, folded",
    [
        ("New  York!", "new york"),
        ("Éclair-au chocolat", "eclair au chocolat"),
        ("St. John's", "st johns"),
        ("α-synuclein", "alpha synuclein"),
        ("C++", "c++"),
        ("東京都", "東京都"),
        ("\U0001f984", "\U0001f984"),
        ("...", ""),
    ],
)
def test_names_are_folded_to_what_people_type(text: str, folded: str) -> None:
    """Case, accents and punctuation do not count; symbols and other scripts do."""
    assert fold(text) == folded


def test_complete_names_come_first_then_beginnings_then_inner_words() -> None:
    """What was typed is a name, the beginning of one, or of a word of one, in this order."""
    index = index_of("Great Yorkshire", "Yorkshire", "York", "New York")

    assert found(index, "york") == ["York", "New York", "Yorkshire", "Great Yorkshire"]
    assert found(index, "york", limit=2) == ["York", "New York"]


@pytest.mark.parametrize("query", ["enstein", "eiinstein", "eimstein", "ienstein", "albert einstien", "alberteinstein"])
def test_one_slip_is_forgiven(query: str) -> None:
    """A letter missing, too many, wrong, or swapped, also far from the beginning."""
    assert found(index_of("Albert Einstein", "Paris", "Elephant"), query) == ["Albert Einstein"]


def test_two_slips_of_a_long_query_are_forgiven() -> None:
    """A long query without any answer may have two slips."""
    assert found(index_of("University of Cambridge", "Oxford"), "universty of cambrige") == ["University of Cambridge"]


def test_what_is_a_name_as_it_stands_has_no_slip() -> None:
    """Beside a name that is what was typed there are none with a slip; beside its beginning there are."""
    index = index_of("Martin", "Mertin")

    assert found(index, "martin") == ["Martin"]
    assert set(found(index, "marti")) == {"Martin", "Mertin"}


def test_short_queries_have_no_slips() -> None:
    """Three letters are too few to guess another one."""
    assert found(index_of("York"), "yrk") == []


def test_popular_entities_come_first_and_each_once() -> None:
    """Of names with the same beginning, those of popular entities come first; an entity is there once."""
    index = index_over(
        NamePoint("kb", "small", "New Yorkham", "New Yorkham", True, popularity=1.0),
        NamePoint("kb", "big", "New York City", "New York City", True, popularity=9.0),
        NamePoint("kb", "big", "New York, NY", "New York City", False, popularity=9.0),
    )

    assert [one.entity_id for one in index.find("new yor")] == ["big", "small"]


def test_types_filter_and_are_shown() -> None:
    """Only entities of a wanted type are found; a type that none has finds nothing."""
    index = index_over(
        NamePoint("kb", "p", "Jordan", "Jordan", True, ("athlete",), ("PERSON",)),
        NamePoint("kb", "c", "Jordan", "Jordan", True, ("country",), ("GPE",), "a country"),
    )

    [country] = index.find("jord", types=["GPE", "nothing"])
    assert (country.entity_id, country.types, country.description) == ("c", ("GPE",), "a country")
    assert index.find("jodran", types=["nothing"]) == []


def test_the_best_of_a_long_range_are_found() -> None:
    """Of thousands of names with one beginning, the most popular ones are shown."""
    names = [f"name {i:05d}" for i in range(5000)]
    points = [NamePoint("kb", name, name, name, True, popularity=float(i % 4001)) for i, name in enumerate(names)]

    best = index_over(*points).find("name", limit=3)

    assert [one.popularity for one in best] == [4000.0, 3999.0, 3998.0]


def test_an_index_is_written_once_and_read_by_all(tmp_path: Path) -> None:
    """Several readers open one file; a build that fails leaves none."""
    path = tmp_path / "new" / "index"
    build_index([NamePoint("kb", "q", "Zürich", "Zürich", True, ("city",), ("GPE",))], path)
    build_index([NamePoint("kb", "q", "Zürich", "Zürich", True, ("city",), ("GPE",))], path)  # another worker

    assert [found(one, "zuri") for one in (NameIndex(path), NameIndex(path))] == [["Zürich"]] * 2
    with pytest.raises(AttributeError):
        build_index([None], tmp_path / "new" / "other")  # type: ignore[list-item]
    assert [one.name for one in path.parent.iterdir()] == ["index"]


def test_a_base_without_names_finds_nothing() -> None:
    """An empty index is an index."""
    assert index_over().find("anything") == []


names = st.text("abcé -1東", min_size=1, max_size=14)


@settings(max_examples=40)
@given(base=st.lists(names, min_size=1, max_size=8, unique=True), query=names)
def test_prefixes_are_those_that_a_search_of_all_names_finds(base: list[str], query: str) -> None:
    """What is found without a slip are all names of which a word begins what was typed."""
    index = index_of(*base)
    typed = fold(query)
    expected = {
        name
        for name in base
        if typed and any((" " + fold(name))[i:].startswith(" " + typed) for i in range(len(name) * 4))
    }

    results = index.find(query, limit=100)

    assert {one.name for one in results if one.match != "slip"} == expected


@settings(max_examples=40)
@given(name=st.text("abcdefgh ", min_size=6, max_size=40), at=st.integers(0, 39), other=st.sampled_from("abcdefgh"))
def test_every_name_is_found_with_a_letter_changed(name: str, at: int, other: str) -> None:
    """A name whose letter was changed anywhere is found, if enough of it is left."""
    folded = fold(name)
    typed = fold(folded[: at % max(1, len(folded))] + other + folded[at % max(1, len(folded)) + 1 :])
    if len(folded) < 6 or len(typed) != len(folded):
        return

    assert name in found(index_of(name, "zzzz", "aaaa"), typed)


@pytest.mark.parametrize("query", ["\ufdfa" * 1000, "a name that goes on " * 45, "\u03bf" * 1000, "x" * 1000])
def test_the_work_of_a_search_does_not_grow_with_the_query(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that is long, or grows when it is folded, tries no spellings, also where a name starts like it."""
    tried = []
    monkeypatch.setattr(NameIndex, "_edited", lambda *given: tried.append(given) or [])
    index = index_of("Paris", query, query[:-2])

    assert [one[:10] for one in found(index, query)] == [query[:10]] * 2
    assert tried == []
    assert found(index, query[:-1] + "?", limit=1)


def test_folding_remembers_few_characters() -> None:
    """Whatever clients type, what is kept of single characters stays small."""
    fold("".join(map(chr, range(0x4E00, 0x9FFF))) + "".join(map(chr, range(0x20000, 0x2A6DF))))

    assert len(type_ahead._LETTERS) <= type_ahead.KEPT_LETTERS
