"""oaklib: the adapter `pearl`, in an environment that has oaklib (`.ci/extras.py oaklib`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pearl_qdrant import EntityLinker
from pearl_qdrant.errors import OptionError

pytest.importorskip("oaklib")

TEXT = "She denies a heart attack in New York State."

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:pkg_resources is deprecated", "ignore::DeprecationWarning"),
]
"""Importing oaklib takes seconds."""


@pytest.fixture
def adapter(linker: EntityLinker) -> Any:
    """The adapter over an open linker, as oaklib makes it from its selector."""
    from oaklib.resource import OntologyResource

    from pearl_qdrant.integrations.oaklib import PearlImplementation

    return PearlImplementation(OntologyResource(slug="base", scheme="pearl"), linker=linker)


def test_a_text_is_annotated_with_places_as_oaklib_counts_them(adapter: Any) -> None:
    """The first character is 1 and the last one is in; what the text says of a mention stands in `info`."""
    found = list(adapter.annotate_text(TEXT))

    assert [TEXT[one.subject_start - 1 : one.subject_end] for one in found] == ["heart attack", "New York State"]
    assert [(one.object_id, one.object_label, one.object_source) for one in found] == [
        ("mi", "myocardial infarction", "base"),
        ("nys", "New York State", "base"),
    ]
    assert [one.info for one in found] == ["negated", "negated"]
    assert found[0].match_string == "heart attack"
    assert 0.5 < found[0].confidence <= 1
    assert not found[0].matches_whole_text


def test_what_is_asked_for_chooses_the_annotations(adapter: Any) -> None:
    """Types, words to leave out, a limit, aliases, and a text that is a name as a whole; NIL gives nothing."""
    from oaklib.datamodels.text_annotator import TextAnnotationConfiguration as Asked

    def ids(text: str, **asked: Any) -> list[str]:
        return [one.object_id for one in adapter.annotate_text(text, Asked(**asked))]

    assert ids(TEXT, categories=["GPE"]) == ["nys"]
    assert ids(TEXT, token_exclusion_list=["heart attack"]) == ["nys"]
    assert ids(TEXT, limit=1) == ["mi"]
    assert ids("nytimes", matches_whole_text=True) == ["nyt"]
    assert ids("Kansas River", matches_whole_text=True) == []
    (whole,) = adapter.annotate_text("heart attack", Asked(matches_whole_text=True, include_aliases=True))
    assert (whole.matches_whole_text, whole.object_aliases) == (True, ["heart attack"])


def test_entities_are_searched_and_looked_up(adapter: Any) -> None:
    """A search has the most probable entity first; labels, definitions and aliases are those of the base."""
    from oaklib.datamodels.search import SearchConfiguration

    assert next(iter(adapter.basic_search("new york times"))) == "nyt"
    assert len(list(adapter.basic_search("new york", SearchConfiguration(limit=2)))) == 2
    assert list(adapter.labels(["nyt", "nowhere"])) == [("nyt", "The New York Times"), ("nowhere", None)]
    assert adapter.definition("nyt") == "A newspaper"
    assert set(adapter.entity_aliases("mi")) == {"myocardial infarction", "heart attack"}
    assert adapter.entity_alias_map("nowhere") == {}


def test_the_collection_is_named_behind_the_colon(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pearl:base` opens the collection of the store of `EntityLinker.open`; without a name it is asked for."""
    from oaklib.resource import OntologyResource

    from pearl_qdrant.integrations.oaklib import PearlImplementation

    monkeypatch.setenv("PEARL_QDRANT_STORE", str(store_path))
    opened = PearlImplementation(OntologyResource(slug="base", scheme="pearl"))

    assert opened.label("nyt") == "The New York Times"
    assert opened.linker is not None
    opened.linker.close()
    with pytest.raises(OptionError, match="behind the colon"):
        PearlImplementation(OntologyResource(scheme="pearl")).label("nyt")
