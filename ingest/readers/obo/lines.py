r"""Parse the syntax of OBO 1.2 and 1.4: stanzas of ``tag: value`` lines, comments, trailing modifiers, escapes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ingest.io import limits
from ingest.io.lines import BadLine, read_lines
from ingest.io.report import TOO_MANY_ROWS, ReadReport
from ingest.io.streams import ByteSource
from pearl_qdrant.errors import FormatError

TERM = "Term"

MALFORMED_LINE = "malformed_line"

_MAX_BRACES = 8
_MAX_MODIFIERS = 1 << 16  # characters; real ones have about a hundred
_COMMENT = re.compile(r"\s!(?:\s|$)")
# There is only one way to match these expressions, so a mismatch is found in linear time.
_QUOTED = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"')
_MODIFIER = rf'[^\s="{{}},][^\s="{{}}]*\s*=\s*(?:{_QUOTED.pattern}|[^\s",{{}}]+(?=[\s,}}]))\s*(?:,\s*)?'
_MODIFIERS = re.compile(rf"\{{\s*(?:{_MODIFIER})*\}}")
_ESCAPE = re.compile(r"\\(.)")
_BLANKS = {"n": " ", "t": " ", "W": " "}
_SPACE = re.compile(r"[\t ]+")


@dataclass(slots=True)
class Stanza:
    """One block of a file.

    Attributes:
        kind: The text in the brackets, such as ``Term``; empty for the header.
        line: Number of its first line.
        tags: Its lines with a requested tag: number, tag, and value as written.
    """

    kind: str
    line: int
    tags: list[tuple[int, str, str]] = field(default_factory=list)


def read_stanzas(source: ByteSource, wanted: frozenset[str], report: ReadReport) -> Iterator[Stanza]:
    """The header and all stanzas of a file, with the requested tags only.

    Raises:
        FormatError: If the file is damaged, or does not begin like OBO.
        InputError: If it cannot be read.
        TooManyErrorsError: If there are more bad lines than the report allows.
    """
    stanza, n_bytes = Stanza("", 1), 0
    is_begun = False
    for number, line in read_lines(source):
        if isinstance(line, BadLine):
            report.skip(line.reason, path=source.path, line=number, text=line.text)
            continue
        line = line.strip()
        if not line or line[0] == "!":
            continue
        if line[0] == "[" and (end := line.find("]")) > 1:
            yield stanza
            stanza, n_bytes, is_begun = Stanza(line[1:end], number), 0, True
            continue
        tag, colon, value = line.partition(":")
        if tag not in wanted and colon:
            is_begun = True
            continue
        if not colon:
            if not is_begun:
                raise FormatError(source.path, number, "is neither 'tag: value' nor '[Term]'. Is this an OBO file?")
            report.skip(MALFORMED_LINE, path=source.path, line=number, text=line)
        elif len(stanza.tags) < limits.MAX_ROWS and (n_bytes := n_bytes + len(line)) <= limits.MAX_ENTITY_BYTES:
            stanza.tags.append((number, tag, value.strip()))
        else:
            report.skip(TOO_MANY_ROWS, path=source.path, line=number, text=line)
        is_begun = True
    yield stanza


def is_obsolete(stanza: Stanza) -> bool:
    """Whether the term of a stanza is marked as obsolete."""
    return any(tag == "is_obsolete" and first_word(value).lower() == "true" for _, tag, value in stanza.tags)


def plain_value(value: str) -> str:
    """A value without quotes: comment and modifiers removed, unescaped, on one line."""
    if " !" in value or "\t!" in value:
        value = _COMMENT.split(value, maxsplit=1)[0].rstrip()
    if value.endswith("}"):
        value = _cut_modifiers(value)
    return unescape(value)


def first_word(value: str) -> str:
    """The id that a value begins with."""
    words = value.split(None, 1)
    return unescape(words[0]) if words else ""


def quoted_value(value: str) -> tuple[str, str] | None:
    """The text of a quoted value and the rest after it; None if the quotes are wrong."""
    match = _QUOTED.match(value)
    return None if match is None else (unescape(match[1]), value[match.end() :])


def unescape(text: str) -> str:
    r"""Undo the escapes: ``\n``, ``\t`` and ``\W`` become a space, any other escaped character stands for itself."""
    if "\\" in text:
        text = _ESCAPE.sub(lambda match: _BLANKS.get(match[1], match[1]), text)
    if "  " in text or "\t" in text:
        text = _SPACE.sub(" ", text)
    return text.strip()


def _cut_modifiers(value: str) -> str:
    """Remove ``{key="value", ...}`` at the end; other braces are part of a name."""
    start = -1
    for _ in range(_MAX_BRACES):
        start = value.find(" {", start + 1)
        if start < 0:
            break
        if len(value) - start <= _MAX_MODIFIERS and _MODIFIERS.fullmatch(value, start + 1):
            return value[:start].rstrip()
    return value
