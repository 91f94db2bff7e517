r"""Regular expressions for the terms of N-Triples and Turtle, over bytes, and their escapes."""

from __future__ import annotations

import re

_IRI = rb'<[^\x00-\x20<>"]*>'
_SUBJECT = rb"(?:" + _IRI + rb'|[^\x00-\x20<>"@#][^\x00-\x20<>"]*)'
# A prefixed name does not end with a dot: the dot ends the row.
_NAME = rb'[^\x00-\x20<>"]*[^\x00-\x20<>".]'
_TAIL = rb"(?:@([A-Za-z]+(?:-[A-Za-z0-9]+)*)|\^\^(?:" + _IRI + rb"|" + _NAME + rb"))?"
_TAIL += rb"[ \t]*\.[ \t\r]*(?:#[^\n]*)?"
_VALUE = rb"(?:(" + _IRI + rb"|" + _NAME + rb')[ \t]*\.[ \t\r]*(?:#[^\n]*)?|"([^"\\\n]*(?:\\[^\n][^"\\\n]*)*)"(' + _TAIL
_VALUE += rb"))"

OBJECT = re.compile(_VALUE)
ROW = re.compile(rb"[ \t]*(" + _SUBJECT + rb")[ \t]+(" + _IRI + rb'|[^\x00-\x20<>"]+)[ \t]+([^\x00-\x20][^\n]*)')
WHOLE_ROW = re.compile(rb"[^\n]*\.[ \t\r]*(?:#[^\n]*)?")

PREFIX = re.compile(
    rb"\s*(?:@prefix[ \t]+([^\s:]*):[ \t]*(" + _IRI + rb")[ \t]*\.|(?i:prefix)[ \t]+([^\s:]*):[ \t]*(" + _IRI + rb"))"
    rb"\s*(?:#.*)?"
)
# A word with a colon after its first character. It is the first colon, so that there is only one way to match.
_STATEMENT_CONTINUES = re.compile(rb"(?:.*[;,\[(]|[^\s<>\"][^\s<>\":]*:[^\s<>\"]*)\s*(?:#.*)?", re.DOTALL)
STATEMENT_ENDS = re.compile(rb".*\.\s*(?:#.*)?", re.DOTALL)

LOCAL_ESCAPE = re.compile(r"\\(.)")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_ESCAPED = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f", '"': '"', "'": "'", "\\": "\\"}
_LAST_CODE_POINT = 0x10FFFF


class BadTermError(ValueError):
    """A term with an unknown prefix or an invalid escape."""


def is_continued(text: bytes) -> bool:
    """Whether a line can end like this inside a statement; an unclosed quote is damage."""
    return _STATEMENT_CONTINUES.fullmatch(text) is not None and not text.replace(b'\\"', b"").count(b'"') % 2


def unescape(text: str) -> str:
    r"""Undo ``\t``, ``\"``, ``\u00e9``, ``\U0001F600``; two surrogates become one character."""
    plain = _ESCAPE.sub(_character, text)
    try:
        plain.encode("utf-8")
    except UnicodeEncodeError:
        try:
            plain = plain.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError as error:
            raise BadTermError from error
    return plain


def _character(match: re.Match[str]) -> str:
    """The character of one escape."""
    number = match[1] or match[2]
    if number is None:
        found = _ESCAPED.get(match[3])
        if found is None:
            raise BadTermError
        return found
    code = int(number, 16)
    if code > _LAST_CODE_POINT:
        raise BadTermError
    return chr(code)
