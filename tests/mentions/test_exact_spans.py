"""Spans that are exactly names of the base, whatever their words; spans that callers give, and documents of spaCy.
Offsets hold whatever a text is written with: forms of Unicode, line ends, markup, and units of other languages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from exact_linker import KNOWN, Names, annotate, annotate_batch, differences, found

from pearl_qdrant import Annotation, Candidate, Link
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.linking.mention_detection.annotate import SpanCandidate, select
from pearl_qdrant.linking.mention_detection.blocks import cover
from pearl_qdrant.linking.mention_detection.spans import Shape, Span


class KnownNames(Names):
    """Exact names, which can also be looked up as strings."""

    def known_names(self, names: Sequence[str], *, types: Sequence[str] = ()) -> set[str]:
        return {name for name, _ in self.names} & set(names)


def names_of(*names: str) -> KnownNames:
    """A base in which each name is an entity of that id."""
    return KnownNames([(name, name) for name in names])


def test_a_name_may_have_any_words() -> None:
    """Stop words, negation, brackets, commas and many words do not keep a name of the base from being found."""
    assert differences("any words", lambda text, names: annotate(names_of(*names), text)) == {}
    for text, name in (
        ("The mandibular division [Vc] is cut.", "mandibular division [Vc]"),
        ("No evidence of disease was seen.", "no evidence of disease"),
        ("It was acute\n  myeloid not\nspecified leukemia.", "acute myeloid not specified leukemia"),
    ):
        assert [a.link.entity_id for a in annotate(names_of(name), text)] == [name]


def test_a_window_is_a_name_only_as_written() -> None:
    """Other case, paragraphs and table cells keep words from being a name."""
    base = names_of("Last Week", "evidence of disease", "The Office", "Of disease he")
    assert differences("windows", lambda text, _: annotate(base, text)) == {}


def test_the_longest_name_wins_over_its_parts() -> None:
    """A span that is exactly a name wins over names inside it, alone, denied or in a list."""
    base = names_of("acute myeloid leukemia", "acute", "myeloid leukemia", "leukemia", "heart attack", "gout")

    assert differences("longest", lambda text, _: annotate(base, text)) == {}


def test_signs_beside_a_name_are_no_part_of_it() -> None:
    """A genitive, straight or curly, is none unless the name has it; a language keeps its signs where a list begins,
    and is one beside another with a sign; what follows `non-` is another thing.
    """
    base = names_of("Germany", "Leipzig", "McDonald's", "McDonald", "C++", "C#", "C", "Java", "small cell lung cancer")

    assert differences("signs", lambda text, _: annotate(base, text)) == {}


def reading(text: str, part: str, name: str, probability: float, shape: Shape = Shape.LOWER) -> SpanCandidate:
    """The reading of a part of a text as a name."""
    start = text.index(part)
    candidate = Candidate(name, "kb", name, name, probability=probability)
    link = Link(part, name, name, probability, None, (candidate,), "kb")
    span = Span(start, start + len(part), shape, len(part.split()), case_matters=True)
    return SpanCandidate(span, link, probability, is_exact=part == name)


def test_a_name_wins_over_its_parts_and_over_more_words() -> None:
    """Parts do not compete with a span that is exactly a name, however probable they are, nor does an improbable whole
    with them. `day pneumonia` is pneumonia; `Jeffrey Bezos` is more than Bezos. `muscle disease in the book` does not
    cut `rare muscle disease`.
    """
    text = "acute myeloid leukemia"
    whole = reading(text, text, text, 0.6)
    parts = [reading(text, part, part, 0.99) for part in ("acute", "myeloid leukemia", "leukemia")]

    assert select([*parts, whole], threshold=0.5) == [whole]
    assert select([*parts, whole], threshold=0.7) == [parts[0], parts[1]]
    day = [
        reading("day pneumonia", "day pneumonia", "pneumonia", 0.99),
        reading("day pneumonia", "pneumonia", "pneumonia", 0.9),
    ]
    text = "Jeffrey Bezos"
    person = [reading(text, text, "Bezos", 0.99, Shape.NAME), reading(text, "Bezos", "Bezos", 0.9, Shape.PART)]

    assert select(day, threshold=0.5) == [day[1]]
    assert select(person, threshold=0.5) == [person[0]]
    text = "rare muscle disease in the book"
    whole = reading(text, "rare muscle disease", "rare muscle disease", 0.98)
    part = reading(text, "muscle disease", "muscle disease", 0.98)
    longer = reading(text, "muscle disease in the book", "muscle disease", 0.999)
    assert select([longer, part, whole], threshold=0.5) == [whole]


def test_mentions_inside_mentions_on_request() -> None:
    """`nested` returns the names inside a name, and inside these, with other entities only."""
    base = names_of("New York Stock Exchange", "New York", "York", "Stock Exchange", "gout")
    text = "Gout at the New York Stock Exchange."

    assert found(annotate(base, text)) == [("Gout", "gout"), ("New York Stock Exchange", "New York Stock Exchange")]
    nested = annotate(base, text, nested=True)
    assert [a.text for a in nested] == ["Gout", "New York Stock Exchange", "New York", "York", "Stock Exchange"]
    same = KnownNames([("New York", "ny"), ("York", "ny")])
    assert [a.text for a in annotate(same, "In New York.", nested=True)] == ["New York"]


def test_a_batch_finds_the_windows_of_each_passage() -> None:
    """Windows of many passages are looked up together, and each passage gets its own; spans of the caller have none."""
    base = names_of("left ventricle", "no evidence of disease", "gout")
    (given,) = annotate(base, "left ventricle gout", spans=[(15, 19)])
    assert given.text == "gout"
    texts = ["A left ventricle.", "", "There is no evidence of disease."]

    annotated = [[a.text for a in some] for some in annotate_batch(base, texts)]
    assert annotated == [["left ventricle"], [], ["no evidence of disease"]]


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


BASE = ("pulmonary fibrosis", "heart attack", "Zürich", "aspirin", "AT&T", "H2O", "no evidence of disease")


class Folded(Names):
    """Links by names, folded, and knows them as written."""

    def __init__(self) -> None:
        super().__init__((name, name) for name in BASE)

    def _link(self, mention: str) -> Any:
        same = {fold_name(name): name for name in BASE}.get(fold_name(mention), mention)
        return super()._link(same)

    def known_names(self, names: Any, *, types: Any = ()) -> set[str]:
        return set(BASE).intersection(names)


def placed(text: str, **options: Any) -> list[Annotation]:
    """The annotations of a text, whose places are checked."""
    annotations = annotate(Folded(), text, **options)
    units = text.encode("utf-16-le")
    for one in annotations:
        part = text[one.start : one.end]
        if options.get("offsets") == "utf-16":
            part = units[2 * one.start : 2 * one.end].decode("utf-16-le")
        assert part == one.text
    return annotations


@pytest.mark.parametrize(
    "written, entity",
    [
        ("pulmonary \ufb01brosis", "pulmonary fibrosis"),
        ("pul\u00admonary fi\u00adbrosis", "pulmonary fibrosis"),
        ("pulmonary\r\n   fibrosis", "pulmonary fibrosis"),
        ("Zu\u0308rich", "Zürich"),
        ("no evi\u00addence of\r\ndisease", "no evidence of disease"),
    ],
    ids=["ligature", "soft hyphens", "CRLF", "NFD", "a name with small words"],
)
def test_a_name_in_another_form_of_unicode_keeps_its_place(written: str, entity: str) -> None:
    """Ligatures, soft hyphens, combining marks and line ends are no other names, and offsets are the text's own."""
    text = f"\ufeffToday 👩\u200d🔬 saw {written}, and cafe\u0301s."

    (one,) = placed(text)

    assert (one.text, one.link.entity_id) == (written, entity)


def test_offsets_count_as_javascript_does() -> None:
    """With `offsets="utf-16"` an emoji counts two, in what comes back and in the spans that the caller gives."""
    text = "🦄🦄 took aspirin. Then 🦄 had a heart attack 🦄."

    characters, units = placed(text), placed(text, offsets="utf-16")

    assert [(one.start, one.end) for one in characters] == [(8, 15), (30, 42)]
    assert [(one.start, one.end) for one in units] == [(10, 17), (33, 45)]
    assert [one.sentence for one in characters] == [(0, 16), (17, 45)]
    assert [one.sentence for one in units] == [(0, 18), (19, 49)]
    given = placed(text, offsets="utf-16", spans=[(33, 45), {"start": 10, "end": 17}])
    assert [(one.start, one.text) for one in given] == [(33, "heart attack"), (10, "aspirin")]
    with pytest.raises(ValueError, match="'offsets' is 'bytes', but must be 'characters' or 'utf-16'"):
        annotate(Folded(), text, offsets="bytes")  # type: ignore[arg-type]


HTML = """<!DOCTYPE html><html><head><title>Aspirin &amp; more</title><style>b { aspirin: 1 }</style></head><body>
<h1>Family <i>history</i></h1><p class="aspirin">A <b>heart</b> <i>attack</i>, H<sub>2</sub>O.</p>
<h2 id=x>Drugs</h2><ul><li>heart<li>attack</ul>AT&amp;T took aspirin<br>in Z&uuml;rich &lt; 5 <!-- aspirin -->
<script>aspirin()</script></body></html>"""


def test_tags_of_html_are_no_text() -> None:
    """Mentions are found across tags, not in them, and offsets are those of the page."""
    annotations = placed(HTML, markup="html")

    assert [(one.text, one.link.entity_id, one.section) for one in annotations] == [
        ("Aspirin", "aspirin", None),
        ("heart</b> <i>attack", "heart attack", "Family history"),
        ("H<sub>2</sub>O", "H2O", "Family history"),
        ("AT&amp;T", "AT&T", "Drugs"),
        ("aspirin", "aspirin", "Drugs"),
        ("Z&uuml;rich", "Zürich", "Drugs"),
    ]


MARKDOWN = """# Family *history* #

- heart
- **attack**

A [heart *attack*](https://aspirin.example/heart attack) and `aspirin`; see [notes][aspirin].

Drugs
-----
> AT&amp;T took **aspirin** in <b>Zürich</b>\\*.

```
aspirin
```
[aspirin]: https://example.org/aspirin
"""


def test_signs_of_markdown_are_no_text() -> None:
    """Emphasis, links, lists, quotes, code blocks and HTML inside."""
    annotations = placed(MARKDOWN, markup="markdown")

    assert [(one.text, one.link.entity_id, one.section) for one in annotations] == [
        ("heart *attack", "heart attack", "Family *history*"),
        ("aspirin", "aspirin", "Family *history*"),
        ("AT&amp;T", "AT&T", "Drugs"),
        ("aspirin", "aspirin", "Drugs"),
        ("Zürich", "Zürich", "Drugs"),
    ]


@pytest.mark.parametrize("markup", ["html", "markdown", None])
@pytest.mark.parametrize(
    "text", ["", "<", "a < b & c", "<a href='", "&#x110000; &nbsp &T &#0;", "```", "*", "[](", "<p"]
)
def test_broken_markup_keeps_its_length(text: str, markup: Any) -> None:
    """Whatever is written, nothing moves."""
    assert len(cover(text, markup)[0]) == len(text)
    assert placed(text + " aspirin", markup=markup)[-1:] or markup is not None


def test_a_plain_text_has_sections_and_sentences() -> None:
    """Lines in capitals, and words before a colon at the start of a line, are headings."""
    text = "PLAN\r\nTake aspirin daily.\r\n\r\nPast history: had a heart attack in Zürich. No aspirin."

    assert [(one.section, text[slice(*one.sentence)]) for one in placed(text)] == [
        ("PLAN", "Take aspirin daily."),
        ("Past history", "Past history: had a heart attack in Zürich."),
        ("Past history", "Past history: had a heart attack in Zürich."),
        ("Past history", "No aspirin."),
    ]
