"""Spans that the caller gives, and documents of spaCy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from exact_linker import KNOWN, Names, annotate, annotate_batch, found


@dataclass
class Thing:
    """A span of spaCy."""

    start_char: int
    end_char: int


@dataclass
class Recognised:
    """A span of Presidio, Flair and others."""

    start: int
    end: int
    entity_type: str = ""


TEXT = "A heart attack in New York."
HEART_NEW_YORK = [("heart attack", "mi"), ("York", "york")]


@pytest.mark.parametrize(
    "spans",
    [
        [(2, 14), (22, 26)],
        (Thing(start, end) for start, end in [(2, 14), (22, 26)]),
        [{"start": 2, "end": 14, "text": "heart attack", "label": "disease", "score": 0.9}, {"start": 22, "end": 26}],
        [Recognised(2, 14, "DIS"), Recognised(22, 26)],
    ],
    ids=["tuples", "spacy", "gliner", "presidio"],
)
def test_given_spans_are_linked_unchanged(spans: Iterable[object]) -> None:
    """Given spans are linked, whoever found them, and nothing else is."""
    assert found(annotate(Names(KNOWN), TEXT, spans=spans)) == HEART_NEW_YORK  # type: ignore[arg-type]


def test_a_real_spacy_document_works() -> None:
    """It is read as text until it has entities, and then its entities are the spans, also after emoji, combining marks
    and CRLF.
    """
    import spacy

    doc = spacy.blank("en")(TEXT)
    assert found(annotate(Names(KNOWN), doc)) == [("heart attack", "mi"), ("New York", "ny")]
    doc.ents = [spacy.tokens.Span(doc, 1, 3, label="DISEASE"), spacy.tokens.Span(doc, 5, 6, label="GPE")]

    assert found(annotate(Names(KNOWN), doc)) == HEART_NEW_YORK
    assert [found(some) for some in annotate_batch(Names(KNOWN), [doc])] == [HEART_NEW_YORK]

    names = ["Zu\u0308rich", "\U0001d510ünchen", "👩\u200d🔬 Lab", "heart attack"]
    pipeline = spacy.blank("en")
    ruler: Any = pipeline.add_pipe("entity_ruler")
    ruler.add_patterns([{"label": "T", "pattern": name} for name in names])
    text = "🦄 of Zu\u0308rich\r\n\r\nsaw \U0001d510ünchen,\r\nthe 👩\u200d🔬 Lab and New York: a heart attack.\r\n"
    base = Names((name, name) for name in [*names, "New York"])

    first, second = annotate_batch(base, pipeline.pipe([text, "We left New York."]))

    assert [a.text for a in first] == names
    assert [(a.start, a.end) for a in first] == [(text.index(name), text.index(name) + len(name)) for name in names]
    assert second == []


def test_each_given_span_gets_one_annotation() -> None:
    """With NIL included there is one annotation per span, in the caller's order, also for overlapping spans."""
    spans = [(22, 26), (18, 26), (0, 1), (2, 14)]

    annotations = annotate(Names(KNOWN), TEXT, spans=spans, include_nil=True)

    assert [(a.start, a.end) for a in annotations] == spans
    assert found(annotations) == [("York", "york"), ("New York", "ny"), ("A", None), ("heart attack", "mi")]


@pytest.mark.parametrize(
    "span, message",
    [
        ((3, 3), "from 3 to 3, but the text has 27 characters"),
        ((-1, 2), "from -1 to 2"),
        ((2, 28), "0 <= start < end <= 27"),
        ((1.0, 2.0), r"span 0 is \(1.0, 2.0\); pass"),
        ((True, 2), "pass"),
        ("ab", "pass"),
        ({"begin": 1, "end": 2}, "a mapping with start and end"),
        (None, "pass"),
    ],
)
def test_an_invalid_span_is_refused(span: object, message: str) -> None:
    """The error shows the span, the length of the text and the expected form."""
    with pytest.raises(ValueError, match=message):
        annotate(Names(KNOWN), TEXT, spans=[span])  # type: ignore[list-item]


def test_labels_are_types_by_a_table() -> None:
    """A label of a tuple, a mapping or an object says to which types its span is linked; others to all."""

    @dataclass
    class Labelled(Thing):
        """An entity with a label."""

        label_: str = ""

    names = Names([("heart attack", "mi"), ("New York", "ny")])
    table = {"Disease": ["disease"], "PLACE": "GPE"}
    spans: list[Any] = [
        (2, 14, "Disease"),
        {"start": 18, "end": 26, "label": "PLACE"},
        Labelled(18, 26, "other"),
        (2, 14),
        {"entity_group": "Disease", "start": 2, "end": 14},
        Recognised(2, 14, "Disease"),
    ]

    found_ids = [a.link.entity_id for a in annotate(names, TEXT, spans=spans, label_types=table)]
    assert found_ids == ["mi", "ny", "ny", "mi", "mi", "mi"]
    assert sorted(names.calls, key=lambda call: call[1]) == [
        (["New York", "heart attack"], ()),
        (["New York"], ("GPE",)),
        (["heart attack"], ("disease",)),
    ]
    with pytest.raises(ValueError, match="span 0 is"):
        annotate(names, TEXT, spans=[(2, 14, "Disease", "x")])  # type: ignore[list-item]
