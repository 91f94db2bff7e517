"""A text as it is annotated: its blocks, its markup, and the spans that somebody else found; and files of texts.

Given spans may be tuples, mappings or objects, of any recogniser. Offsets are `start` and `end`, or `start_char` and
`end_char` (spaCy, Stanza). The label is `label` (GLiNER, spaCy), `entity_group` (Transformers), `entity_type`
(Presidio) or `type` (Stanza).

Markup is covered by signs of the same length, so that every offset of what remains is one of the original: line ends
for a tag that ends a paragraph, else signs without width, which a name may have inside (`H<sub>2</sub>O`). Headings
begin sections.

A long text is cut between paragraphs or sentences into blocks, which take bounded memory and which worker processes
share. Each block knows the abbreviations that the whole text defines.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import unescape
from html.parser import HTMLParser
from itertools import islice
from operator import index
from typing import BinaryIO, Protocol, SupportsIndex, runtime_checkable

from pearl_qdrant.errors import FormatError, InputError
from pearl_qdrant.linking.mention_detection.abbreviations import Abbreviation, find_abbreviations
from pearl_qdrant.linking.mention_detection.assertions import SENTENCE_END, with_assertions
from pearl_qdrant.linking.mention_detection.spans import Shape, Span
from pearl_qdrant.linking.mentions import read_text_lines
from pearl_qdrant.linking.options import AnnotateOptions, Markup, OffsetUnit, PassageFormat
from pearl_qdrant.records import Annotation
from pearl_qdrant.settings import MAX_PASSAGE_BYTES


@runtime_checkable
class DocLike(Protocol):
    """A `Doc` of spaCy: a text and its recognised entities."""

    @property
    def text(self) -> str: ...

    @property
    def ents(self) -> Iterable[GivenSpan] | None: ...


GivenSpan = tuple[int, int] | tuple[int, int, str] | Mapping[str, object] | object
"""Offsets (start, end) in characters, maybe with a label; or an object or a mapping of a recogniser."""

_NAMES = ("start_char", "start"), ("end_char", "end"), ("label_", "label", "entity_group", "entity_type", "type")


def read_text(text: str | DocLike) -> tuple[str, list[GivenSpan] | None]:
    """The text, and the entities of a `Doc` as spans; None if nothing recognised them. Raises TypeError for others."""
    if isinstance(text, str):
        return text, None
    if isinstance(text, DocLike):
        # A pipeline without entity recognition also leaves `ents` empty; then the spans come from shapes.
        has_annotation = getattr(text, "has_annotation", None)
        is_recognised = bool(has_annotation("ENT_IOB")) if callable(has_annotation) else text.ents is not None
        return text.text, list(text.ents or ()) if is_recognised else None
    raise TypeError(f"a passage is a str or a spaCy Doc, not {type(text).__name__}")


def read_spans(text: str, spans: Iterable[GivenSpan], in_characters: Callable[[int], int] | None = None) -> list[Span]:
    """The caller's spans, checked, in the caller's order; `in_characters` makes an offset of theirs one in characters.
    Raises ValueError if a span is empty or outside the text, or of an unknown kind.
    """
    found = []
    for number, given in enumerate(spans):
        start, end, label = _parts(given)
        if not all(isinstance(at, SupportsIndex) and not isinstance(at, bool) for at in (start, end)):
            raise ValueError(
                f"span {number} is {given!r}; pass (start, end), maybe with a label, or an object or a mapping with "
                f"start and end, or with start_char and end_char"
            )
        start, end = index(start), index(end)  # type: ignore[arg-type]
        if in_characters is not None:
            start, end = in_characters(start), in_characters(end)
        if not 0 <= start < end <= len(text):
            raise ValueError(
                f"span {number} is from {start} to {end}, but the text has {len(text)} characters; "
                f"offsets are counted in characters (not bytes), and 0 <= start < end <= {len(text)}"
            )
        n_words = max(1, len(text[start:end].split()))
        found.append(Span(start, end, Shape.GIVEN, n_words, label=label if isinstance(label, str) else ""))
    return found


def _parts(given: GivenSpan) -> tuple[object, object, object]:
    """Start, end and label of a span of any kind; None where there is none."""
    if isinstance(given, (tuple, list)):
        return (*given, None)[:3] if len(given) in (2, 3) else (None, None, None)
    get = given.get if isinstance(given, Mapping) else partial(getattr, given)
    found = (next((v for name in names if (v := get(name, None)) is not None), None) for names in _NAMES)
    return next(found), next(found), next(found)


COVER = "\u2060"  # word joiner: ends a word, but is no gap
WITHIN_WORD = "\u00ad"  # soft hyphen: part of the word around it
HEADING_END = "\x1e"  # ends a heading, and with it a sentence
Heading = tuple[int, str]  # offset of a heading, and its text
_HIDDEN = frozenset("script style template svg math".split())
_HEADINGS = frozenset("h1 h2 h3 h4 h5 h6".split())
_INLINE = frozenset(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i ins kbd label mark q s samp small span strike strong"
    " sub sup time tt u var wbr".split()
)
_BETWEEN_LETTERS = re.compile(rf"(?<=\w){COVER}+(?=\w)")
_MARKDOWN = re.compile(
    r"^ {0,3}(?P<fence>```+|~~~+).*?(?:^ {0,3}(?P=fence)|\Z)"
    r"|(?P<break>^ {0,3}(?:\#{1,6}[ \t]+|[=-]{3,}[ \t\r]*$|[-*+][ \t]+|\d{1,9}[.)][ \t]+))"
    r"|^ {0,3}(?:>[ \t]?)+|^ {0,3}\[[^\]\n]+\]:[^\n]*|[ \t]\#+[ \t\r]*$"
    r"|!?\[(?=[^\[\]\n]*\][(\[])|(?<=\S)\](?:\([^()\n]*\)|\[[^\[\]\n]*\])"
    r"|(?<=\S)[*~`]+|[*~`]+(?=\S)|(?<!\w)_+(?=\S)|(?<=\S)_+(?!\w)|\\(?=[!-/:-@\[-`{-~])",
    re.MULTILINE | re.DOTALL,
)
_MARKDOWN_HEADING = re.compile(
    r"^ {0,3}\#{1,6}[ \t]+([^\n]*?)[ \t\r#]*$|^([^\s#>][^\n]*)\n {0,3}(?:=+|-{3,})[ \t\r]*$", re.MULTILINE
)
_LABEL = re.compile(
    r"^[ \t]*([A-Z][\w/&-]*(?: [\w/&-]+){0,5}):(?=\s|\Z)|^[ \t]*([A-Z][A-Z /&-]{3,60})[ \t\r]*$", re.MULTILINE
)


def cover(text: str, markup: Markup | None) -> tuple[str, list[Heading]]:
    """A text without its markup, of the same length, and its headings. A plain text has a heading in each line in
    capitals, and at the start of each line that begins with some words and a colon (`Family history:`).
    """
    if markup is None:
        return text, [(found.start(), (found[1] or found[2]).strip()) for found in _LABEL.finditer(text)]
    headings = []
    if markup == "markdown":
        headings = [(found.start(), found[1] or found[2]) for found in _MARKDOWN_HEADING.finditer(text)]
        text = _MARKDOWN.sub(lambda found: ("\n" if found["break"] else COVER) * len(found[0]), text)
        covered = list(text)
        for start, title in headings:
            end = text.find("\n", start + len(title))
            covered[end : end + 1] = HEADING_END * (end >= 0)
        text = "".join(covered)
    html = _Html(text)
    covered_text = _BETWEEN_LETTERS.sub(lambda found: WITHIN_WORD * len(found[0]), "".join(html.shown))
    return covered_text, sorted(headings + html.headings)


class _Html(HTMLParser):
    """What a page shows, with the same offsets: the characters that are shown, others covered; and its headings."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self.shown = [COVER] * len(text)
        self.headings: list[Heading] = []
        self._lines = [0, *(found.end() for found in re.finditer("\n", text))]
        self._hidden = ""
        self._heading: int | None = None
        self.feed(text)
        self.close()

    def _at(self) -> int:
        line, column = self.getpos()
        return self._lines[line - 1] + column

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.shown[self._at() : self._at() + len(data)] = data

    def handle_entityref(self, name: str) -> None:
        character = unescape(f"&{name};")
        self.handle_data(character if character != f"&{name};" else f"&{name}")

    def handle_charref(self, name: str) -> None:
        self.handle_data(unescape(f"&#{name};"))

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._break(tag)
        if tag in _HIDDEN:
            self._hidden = self._hidden or tag
        elif tag in _HEADINGS:
            self._heading = self._at()

    def handle_endtag(self, tag: str) -> None:
        if tag == self._hidden:
            self._hidden = ""
        if tag in _HEADINGS and self._heading is not None:
            title = "".join(self.shown[self._heading : self._at()]).replace(COVER, "")
            self.headings.append((self._heading, " ".join(title.split())))
            self._heading = None
        self._break(tag)

    def _break(self, tag: str) -> None:
        """Let a tag that is not within a line end the paragraph."""
        if tag not in _INLINE:
            self.shown[self._at() : self._at() + 2] = "\n\n"


MOST = 10_000  # characters of a block, at most: about 2,000 distinct strings to link
_PARAGRAPH_END = re.compile(r"\n\s*\n|\r\n\s*\r\n")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a text, or all of it."""

    text: str  # what is read; markup is covered
    written: str  # the same part as it is written
    start: int  # where it starts in the text, as offsets of the options count
    abbreviations: tuple[Abbreviation, ...]  # those of the whole text; offsets are relative to this part
    headings: tuple[Heading, ...]  # the last one before it, and its own; likewise
    spans: tuple[Span, ...] | None  # the places of its mentions if they are known
    is_last: bool


class Utf16:
    """Offsets in a text in UTF-16 code units, as JavaScript, Java and C# count, and in characters."""

    def __init__(self, text: str) -> None:
        self._wide = [i for i, character in enumerate(text) if character > "\uffff"]
        self._units = [at + n for n, at in enumerate(self._wide)]

    def units(self, offset: int) -> int:
        """The offset in code units."""
        return offset + bisect_left(self._wide, offset)

    def characters(self, offset: int) -> int:
        """The offset in characters; within a character, that of its start."""
        return offset - bisect_left(self._units, offset)


def read_blocks(
    text: str | DocLike, options: AnnotateOptions, spans: Iterable[GivenSpan] | None = None
) -> Iterator[Block]:
    """The blocks of a text; one if its mentions are known, or linked together. Raises as `read_text`, `read_spans`."""
    written, own_spans = read_text(text)
    is_utf16 = options.offsets == "utf-16"
    in_characters = Utf16(written).characters if is_utf16 and spans is not None else None
    given = own_spans if spans is None else spans
    places = None if given is None else tuple(read_spans(written, given, in_characters))
    read, headings = cover(written, options.markup)
    abbreviations = find_abbreviations(read)
    starts = [0] if places is not None or options.document else _starts(read)
    n_units = 0
    for start, end in zip(starts, [*starts[1:], len(read)], strict=True):
        part = written[start:end]
        first = max(0, bisect_right(headings, start, key=lambda one: one[0]) - 1)
        own_headings = headings[first : bisect_left(headings, end, key=lambda one: one[0])]
        yield Block(
            read[start:end],
            part,
            n_units,
            tuple(
                Abbreviation(one.short, one.long, one.short_start - start, one.long_start - start)
                for one in abbreviations
                if len(starts) == 1 or one.short in part
            ),
            tuple((at - start, title) for at, title in own_headings),
            places,
            end == len(read),
        )
        n_units += Utf16(part).units(len(part)) if is_utf16 else len(part)


def _starts(text: str) -> list[int]:
    """Where the blocks of a text start: after a paragraph that ends late in the one before, else after a sentence."""
    starts = [0]
    while len(text) - starts[-1] > MOST:
        first, last = starts[-1] + MOST // 2, starts[-1] + MOST
        patterns = (_PARAGRAPH_END, SENTENCE_END, _SPACE)
        ends = (max((found.end() for found in p.finditer(text, first, last)), default=None) for p in patterns)
        starts.append(next((end for end in ends if end is not None), last))
    return starts


def take_blocks(blocks: Iterator[Block], n: int, n_characters: int) -> list[Block]:
    """The next blocks that are worked on together: up to n, fewer where they have so many characters."""
    taken, length = list[Block](), 0
    for block in islice(blocks, n):
        taken.append(block)
        length += len(block.text)
        if length >= n_characters:
            break
    return taken


def finished(block: Block, found: Sequence[Annotation], options: AnnotateOptions) -> list[Annotation]:
    """The annotations of a block with what its text says of them, and with offsets in the whole text."""
    described = with_assertions(block.text, found, options.triggers, options.assertions, block.headings)
    units: Callable[[int], int] = Utf16(block.written).units if options.offsets == "utf-16" else int
    return [
        replace(
            one,
            text=block.written[one.start : one.end],
            start=block.start + units(one.start),
            end=block.start + units(one.end),
            sentence=(block.start + units(one.sentence[0]), block.start + units(one.sentence[1])),
        )
        for one in described
    ]


def of_texts(
    blocks: Iterable[Block],
    annotated: Callable[[Iterable[Block]], Iterable[list[Annotation]]],
    on_progress: Callable[[int], None] | None = None,
) -> Iterator[list[Annotation]]:
    """The annotations of each text, from the blocks of some texts and what annotates blocks, in order. `on_progress` is
    called after each block with the bytes that are annotated, in UTF-8.
    """
    ahead: deque[tuple[bool, int]] = deque()

    def noted() -> Iterator[Block]:
        for block in blocks:
            ahead.append((block.is_last, len(block.written.encode("utf-8", "surrogatepass"))))
            yield block

    n_done, found = 0, list[Annotation]()
    for some in annotated(noted()):
        is_last, n_bytes = ahead.popleft()
        n_done += n_bytes
        if on_progress is not None:
            on_progress(n_done)
        found += some
        if is_last:
            yield found
            found = []


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage of a file, with the number of its line, from 1, and the places of its mentions if they are known. That
    of a whole file has its line ends as they are, so that offsets match the file.
    """

    line: int
    text: str
    id: str | int | None = None
    ents: tuple[Span, ...] | None = None


def format_of(name: str) -> PassageFormat:
    """The format that the ending of a file suggests."""
    return "jsonl" if name.lower().endswith((".jsonl", ".ndjson")) else "lines"


def read_passages(
    file: BinaryIO,
    name: str,
    kind: PassageFormat | None = None,
    *,
    offsets: OffsetUnit = "characters",
    spans_key: str = "spans",
) -> Iterator[Passage]:
    """Yield the passages of a file in constant memory. Blank lines are counted and yield nothing. Raises FormatError at
    a line that is not UTF-8, longer than `MAX_LINE_BYTES`, or not an object with a text; InputError if a whole file is
    not UTF-8, or longer than `MAX_PASSAGE_BYTES`. The format is by default `format_of` the name. `spans_key` names a
    list of the places of mentions: mappings with `start` and `end`, as `offsets` counts, and maybe a `label`.
    """
    kind = kind or format_of(name)
    if kind == "whole":
        content = file.read(MAX_PASSAGE_BYTES + 1)
        if len(content) > MAX_PASSAGE_BYTES:
            message = f"longer than {MAX_PASSAGE_BYTES:,} bytes, the maximum for one passage. Split it, as by chapters"
            raise InputError(name, None, message)
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            message = f"not UTF-8 at byte {error.start}. Convert it, for example with iconv"
            raise InputError(name, None, message) from error
        yield Passage(1, text)
        return
    for number, line in read_text_lines(file, name):
        if not line.strip():
            continue
        if kind == "lines":
            yield Passage(number, line)
            continue
        try:
            yield _parse(line, number, offsets, spans_key)
        except ValueError as error:
            raise FormatError(
                name, number, f"{error}. A line looks like this: {_EXAMPLE.replace('SPANS', spans_key)}"
            ) from error


def _parse(line: str, number: int, offsets: OffsetUnit, spans_key: str) -> Passage:
    """The passage of a line of JSON. Raises ValueError if it is none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(row, dict) or not isinstance(row.get("text"), str):
        raise ValueError("not an object with a text")  # noqa: TRY004 - of a file, as the others
    key, text, spans = row.get("id"), row["text"], row.get(spans_key)
    if not isinstance(key, (str, int, type(None))) or isinstance(key, bool):
        raise ValueError(f"the id is {json.dumps(key)[:50]}. Give a string or an integer, or leave it out")  # noqa: TRY004
    if not isinstance(spans, (list, type(None))):
        raise ValueError(f"not an object with a text and {spans_key}, which are a list")  # noqa: TRY004
    in_characters = Utf16(text).characters if offsets == "utf-16" else None
    return Passage(number, text, key, None if spans is None else tuple(read_spans(text, spans, in_characters)))


_EXAMPLE = '{"id": "report-7", "text": "She read the NYTimes.", "SPANS": [{"start": 13, "end": 20}]}'
