"""spaCy: the component `pearl_linker`."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from pearl_qdrant.errors import OptionError

TEXT = "A heart attack in New York State, says The New York Times."

pytestmark = pytest.mark.slow
"""Importing spaCy takes seconds; `test_independence.py` has a quick test."""


@pytest.fixture
def pipeline(store_path: Path) -> Any:
    """Makes a pipeline of a blank English one and `pearl_linker` with some configuration."""
    spacy = pytest.importorskip("spacy")
    import pearl_qdrant.integrations.spacy

    assert pearl_qdrant.integrations.spacy.FACTORY == "pearl_linker"

    def make(**config: Any) -> Any:
        nlp = spacy.blank("en")
        nlp.add_pipe("pearl_linker", config={"collections": ["base"], "store": str(store_path), **config})
        return nlp

    return make


def linked(doc: Any) -> list[tuple[str, str, str]]:
    """Text, label and id of the entities of a document."""
    return [(ent.text, ent.label_, ent.kb_id_) for ent in doc.ents]


FOUND = [("heart attack", "OTHER", "mi"), ("New York State", "GPE", "nys"), ("The New York Times", "ORG", "nyt")]


def test_mentions_are_found_where_nothing_has_set_them(pipeline: Any) -> None:
    """Without a component for names, the linker finds them, labels them, and keeps scored candidates."""
    doc = pipeline(limit=2)(TEXT)

    assert linked(doc) == FOUND
    assert {ent._.assertion for ent in doc.ents} == {"affirmed"}
    first, *others = doc.ents[2]._.pearl_candidates
    assert (first["entity_id"], len(others)) == ("nyt", 1)
    assert first["probability"] > 0.5


def test_entities_of_other_components_are_linked_in_place(pipeline: Any) -> None:
    """Given entities stay, with the id of their entity, or none for NIL; `overwrite_ents` finds them anew."""
    for overwrite in (False, True):
        nlp = pipeline(overwrite_ents=overwrite)
        ruler = nlp.add_pipe("entity_ruler", before="pearl_linker")
        ruler.add_patterns([{"label": "X", "pattern": "New York State"}, {"label": "X", "pattern": "says"}])

        found = linked(nlp(TEXT))

        assert found == (FOUND if overwrite else [("New York State", "X", "nys"), ("says", "X", "")])


def test_a_span_group_is_linked_in_place_of_the_entities(pipeline: Any) -> None:
    """Spans of a group may overlap; the entities of the document are not touched."""
    nlp = pipeline(span_group="sc")
    doc = nlp.make_doc("I love New York City.")
    doc.spans["sc"] = [doc[2:4], doc[2:5], doc[0:2]]

    nlp.get_pipe("pearl_linker")(doc)

    assert [span.kb_id_ for span in doc.spans["sc"]] == ["nyc", "nyc", ""], "the type of New York is city"
    assert doc.ents == ()
    other = nlp("NYC")
    assert [span.kb_id_ for span in other.spans["sc"]] == ["nyc"]


def test_many_documents_are_the_same_as_one_by_one(pipeline: Any) -> None:
    """`nlp.pipe` links in batches, keeps the order, and takes documents without any mention."""
    nlp = pipeline(document=True)
    texts = [TEXT, "", "Nothing.", "NYC and nypost.com"] * 2

    assert [linked(doc) for doc in nlp.pipe(texts, batch_size=3)] == [linked(nlp(text)) for text in texts]


def test_pipeline_and_documents_are_serialised(pipeline: Any, tmp_path: Path) -> None:
    """A pipeline is saved and loaded with its configuration; documents keep ids and candidates as bytes."""
    spacy = pytest.importorskip("spacy")
    nlp = pipeline(threshold=0.6)
    doc = nlp(TEXT)
    nlp.to_disk(tmp_path / "nlp")

    loaded = spacy.load(tmp_path / "nlp")

    assert loaded.get_pipe("pearl_linker").options.threshold == 0.6
    assert linked(loaded(TEXT)) == linked(doc)
    again = spacy.tokens.Doc(nlp.vocab).from_bytes(doc.to_bytes())
    assert linked(again) == linked(doc)
    assert again.ents[0]._.pearl_candidates == doc.ents[0]._.pearl_candidates
    part = pickle.loads(pickle.dumps(nlp.get_pipe("pearl_linker")))
    assert linked(part(nlp.make_doc(TEXT))) == linked(doc)
    part.close()


def test_a_pipeline_needs_a_collection(pipeline: Any) -> None:
    """The error shows the call with one."""
    with pytest.raises(OptionError, match="needs a collection: nlp"):
        pipeline(collections=[])
