"""The mentions of a document: where they are, and by which string each is looked up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pearl_qdrant.linking.mention_detection.abbreviations import expand, find_abbreviations, find_uses
from pearl_qdrant.linking.mention_detection.given_spans import GivenSpan, read_spans
from pearl_qdrant.linking.mention_detection.tokens import as_name


@dataclass(frozen=True, slots=True)
class DocumentSpan:
    """The place of a mention in a document.

    Attributes:
        start, end: Offsets in characters.
        query: The string that is linked: the mention with single spaces, or the long form of an abbreviation.
        long_form: The long form, if the text defines the mention as an abbreviation of it; else None.
    """

    start: int
    end: int
    query: str
    long_form: str | None = None


def document_spans(text: str, spans: Iterable[GivenSpan]) -> list[DocumentSpan]:
    """The mentions of a text, in the order of the spans; abbreviations that the text defines are expanded.

    Raises:
        ValueError: If a span is empty or outside the text, or of an unknown kind.
    """
    uses = find_uses(text, find_abbreviations(text))
    found = []
    for span in read_spans(text, spans):
        expanded, is_abbreviated = expand(text, span.start, span.end, uses)
        query = as_name(expanded)
        found.append(DocumentSpan(span.start, span.end, query, query if is_abbreviated else None))
    return found
