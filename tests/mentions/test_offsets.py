"""Offsets hold whatever a text is written with: forms of Unicode, line ends, markup, and units of other languages."""

from __future__ import annotations

from typing import Any

import pytest
from exact_linker import Names, annotate

from pearl_qdrant import Annotation
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.linking.mention_detection.blocks import cover

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


def found(text: str, **options: Any) -> list[Annotation]:
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

    (one,) = found(text)

    assert (one.text, one.link.entity_id) == (written, entity)


def test_offsets_count_as_javascript_does() -> None:
    """With `offsets="utf-16"` an emoji counts two, in what comes back and in the spans that the caller gives."""
    text = "🦄🦄 took aspirin. Then 🦄 had a heart attack 🦄."

    characters, units = found(text), found(text, offsets="utf-16")

    assert [(one.start, one.end) for one in characters] == [(8, 15), (30, 42)]
    assert [(one.start, one.end) for one in units] == [(10, 17), (33, 45)]
    assert [one.sentence for one in characters] == [(0, 16), (17, 45)]
    assert [one.sentence for one in units] == [(0, 18), (19, 49)]
    given = found(text, offsets="utf-16", spans=[(33, 45), {"start": 10, "end": 17}])
    assert [(one.start, one.text) for one in given] == [(33, "heart attack"), (10, "aspirin")]
    with pytest.raises(ValueError, match="'offsets' is 'bytes', but must be 'characters' or 'utf-16'"):
        annotate(Folded(), text, offsets="bytes")  # type: ignore[arg-type]


HTML = """<!DOCTYPE html><html><head><title>Aspirin &amp; more</title><style>b { aspirin: 1 }</style></head><body>
<h1>Family <i>history</i></h1><p class="aspirin">A <b>heart</b> <i>attack</i>, H<sub>2</sub>O.</p>
<h2 id=x>Drugs</h2><ul><li>heart<li>attack</ul>AT&amp;T took aspirin<br>in Z&uuml;rich &lt; 5 <!-- aspirin -->
<script>aspirin()</script></body></html>"""


def test_tags_of_html_are_no_text() -> None:
    """Mentions are found across tags, not in them, and offsets are those of the page."""
    annotations = found(HTML, markup="html")

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
    annotations = found(MARKDOWN, markup="markdown")

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
    assert found(text + " aspirin", markup=markup)[-1:] or markup is not None


def test_a_plain_text_has_sections_and_sentences() -> None:
    """Lines in capitals, and words before a colon at the start of a line, are headings."""
    text = "PLAN\r\nTake aspirin daily.\r\n\r\nPast history: had a heart attack in Zürich. No aspirin."

    assert [(one.section, text[slice(*one.sentence)]) for one in found(text)] == [
        ("PLAN", "Take aspirin daily."),
        ("Past history", "Past history: had a heart attack in Zürich."),
        ("Past history", "Past history: had a heart attack in Zürich."),
        ("Past history", "No aspirin."),
    ]
