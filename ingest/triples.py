r"""RDF triples out of N-Triples, and out of Turtle that has one triple a line, as YAGO and Wikidata ship them.

    <http://...> <http://...> "text"@en .          N-Triples, cut by spaces or tabs
    yago:Paris	rdfs:label	"Paris"@en	.          Turtle, after lines like: @prefix yago: <http://...> .

Most rows of a dump are not wanted, so that a block of lines is searched as bytes, by one compiled expression which
knows the wanted predicates and languages, and only what it finds is decoded. The same expression stops at each line
that is no triple, whatever its predicate: nothing is passed over unseen. A statement over several lines (``;``,
``,``, ``[ ]``, as in YAGO's schema) and a row about a row (``<< s p o >>``) are counted in `ReadReport.filtered`.

Not undone: escapes inside a predicate, relative IRIs (``@base`` is a bad row), literals in other quotes than ``"``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from ingest.lines import BadLine, line_blocks
from ingest.reader import INVALID_UTF8, NUL_CHARACTER, ReadReport
from ingest.streams import ByteSource
from ingest.triple_filter import RowFilter
from ingest.triple_terms import (
    LOCAL_ESCAPE,
    OBJECT,
    PREFIX,
    RESOURCE,
    ROW,
    STATEMENT_ENDS,
    WHOLE_ROW,
    BadTermError,
    decode,
    goes_on,
    unescape,
)
from pearl_qdrant.errors import FormatError

BAD_TRIPLE = "bad_triple"
OTHER_LANGUAGE = "other_language"
ROW_ABOUT_A_ROW = "row_about_a_row"
STATEMENT_OVER_LINES = "statement_over_lines"

RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"

_BOM = b"\xef\xbb\xbf"
_MAX_CACHED = 1 << 14
_DOT = ord(".")

# What the end of a literal may say instead of a language; compared by identity.
_UNKNOWN, _OTHER = "unknown", "other"


class Triple(NamedTuple):
    """One row.

    Attributes:
        subject: IRI without angle brackets, prefix expanded; a blank node as ``_:b1``.
        predicate: One of the wanted IRIs.
        object: IRI or blank node likewise, or the text of a literal with its escapes undone.
        language: Language tag in lower case, or None.
        is_literal: Whether `object` is a literal.
        line: Line number from 1.
    """

    subject: str
    predicate: str
    object: str
    language: str | None
    is_literal: bool
    line: int


def read_triples(
    source: ByteSource,
    predicates: Collection[str],
    report: ReadReport,
    *,
    languages: Collection[str] | None = None,
) -> Iterator[Triple]:
    """Triples with one of the predicates, in the order of the file.

    Args:
        source: N-Triples or line-based Turtle, compressed or not.
        predicates: Full IRIs, without angle brackets.
        report: `rows` grows by the rows with these predicates, `skipped` by the bad ones (``bad_triple``,
            ``invalid_utf8``, ``nul_character``) and by lines that are no triple (``bad_triple``, ``line_too_long``),
            `filtered` by what is passed over on purpose. Well-formed rows with other predicates are not counted.
        languages: Literals with another language tag are passed over; those without a tag always come. None takes
            all. "en" is not "en-gb".

    Raises:
        FormatError: If the file is empty, no text, or damaged.
        InputError: If reading fails.
        TooManyErrorsError: If there are more bad rows than the report allows.
    """
    parser = _Parser(source.path, predicates, report, languages)
    line = 1
    try:
        for block in line_blocks(source):
            if isinstance(block, BadLine):
                report.skip(block.reason, path=source.path, line=line, text=block.text)
                line += 1
                continue
            if line == 1:
                block = block.removeprefix(_BOM)
            yield from parser.parse(block, line)
            line += block.count(b"\n") + 1
    except FormatError as error:
        if error.line is not None or line == 1:
            raise
        message = str(error).removeprefix(f"{source.path}: ")
        raise FormatError(source.path, line - 1, f"after this line, {message}") from error


class _Parser:
    """What one pass over a file knows: its prefixes, and what it has read already."""

    def __init__(
        self, path: str, predicates: Collection[str], report: ReadReport, languages: Collection[str] | None
    ) -> None:
        self._path = path
        self._report = report
        self._wanted = sorted(predicates)
        self._languages = None if languages is None else {language.lower() for language in languages}
        self._prefixes: dict[bytes, str] = {}
        self._is_in_statement = False
        # Whether most rows of the last block were not wanted, so that it is worth while to pass over them at once.
        self._is_sparse = True
        self._objects: dict[bytes, str] = {}
        self._tails: dict[bytes, str | None] = {}
        self._spell()

    def parse(self, block: bytes, line: int) -> Iterator[Triple]:  # noqa: C901 - a call a row would cost a third
        """Wanted triples of whole lines, the first of which has this number.

        Most lines are told by cutting them at spaces and quotes; what that does not settle goes to `_read_line`.
        """
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
        is_plain = b"@prefix" not in block and b"<<" not in block and b"\0" not in block
        last_raw, subject, n_wanted, n_other = b"", "", 0, 0
        find_predicate, find_tail, find_object = self._spellings.get, self._tails.get, self._objects.get
        new = tuple.__new__
        try:
            rows = self._filter.select(block) if is_plain and self._is_sparse else enumerate(block.split(b"\n"))
            for number, row in rows:
                number += line
                parts = row.split(None, 2)
                if is_plain and len(parts) == 3:
                    raw, spelling, rest = parts
                    predicate = find_predicate(spelling)
                    if predicate is None:
                        if rest[-1] == _DOT and rest != b".":
                            continue
                    elif (found := find_object(rest)) is not None or (
                        b'"' not in rest and (found := self._read_plain_object(rest)) is not None
                    ):
                        if raw == last_raw or (subject := self._read_subject(raw)):
                            last_raw, self._is_in_statement = raw, False
                            n_wanted += 1
                            yield new(Triple, (subject, predicate, found, None, False, number))
                            continue
                    elif len(pieces := rest.split(b'"')) == 3:
                        before, text, tail = pieces
                        language = find_tail(tail, _UNKNOWN)
                        if language is _OTHER and not before and text[-1:] != b"\\":
                            n_other += 1
                            continue
                        is_sound = language is not _UNKNOWN and not before and b"\\" not in text
                        if is_sound and (raw == last_raw or (subject := self._read_subject(raw))):
                            value = decode(text)
                            if value is not None:
                                last_raw, self._is_in_statement = raw, False
                                n_wanted += 1
                                yield new(Triple, (subject, predicate, value, language, True, number))
                                continue
                last_raw = b""
                triple = self._read_line(row, number)
                find_predicate = self._spellings.get
                if triple is not None:
                    yield triple
        finally:
            self._report.rows += n_wanted + n_other
            self._is_sparse = 2 * (n_wanted + n_other) < block.count(b"\n")
            if n_other:
                self._report.leave_out(OTHER_LANGUAGE, n_other)

    def _read_subject(self, raw: bytes) -> str:
        """A sound subject, or nothing."""
        try:
            prefix, _, local = raw.partition(b":")
            if prefix in self._prefixes and len(local.translate(None, b'<>"\\')) == len(local):
                return self._prefixes[prefix] + local.decode("utf-8")
            return self._read_resource(raw) if RESOURCE.fullmatch(raw) else ""
        except (UnicodeDecodeError, BadTermError):
            return ""

    def _read_plain_object(self, rest: bytes) -> str | None:
        """The object of a row that goes on with a resource, a space and a dot; None if it is not so simple."""
        parts = rest.split()
        if len(parts) != 2 or parts[1] != b"." or parts[0][-1] == _DOT:
            return None
        found = self._read_subject(parts[0])
        if not found:
            return None
        if len(self._objects) >= _MAX_CACHED:
            self._objects.clear()
        self._objects[rest] = found
        return found

    def _read_line(self, row: bytes, line: int) -> Triple | None:
        """The triple of a line, if it is one that is wanted; counts what is bad and what is passed over."""
        parts = ROW.fullmatch(row)
        if parts is None:
            self._read_other_line(row, line)
            return None
        predicate = self._spellings.get(parts[2])
        if predicate is None:
            if parts[3] == b"." or not WHOLE_ROW.fullmatch(parts[3]):
                self._read_other_line(row, line)
            return None
        was_in_statement, self._is_in_statement = self._is_in_statement, False
        value = OBJECT.fullmatch(parts[3])
        if value is None and self._prefixes and (was_in_statement or goes_on(parts[3])):
            self._pass_over(parts[3])
            return None
        self._report.rows += 1
        reason = NUL_CHARACTER if b"\0" in row else BAD_TRIPLE
        if value is not None and reason == BAD_TRIPLE:
            try:
                return self._make_triple(parts[1], predicate, value, line)
            except UnicodeDecodeError:
                reason = INVALID_UTF8
            except BadTermError:
                reason = BAD_TRIPLE
        self._skip(reason, line, row)
        return None

    def _make_triple(self, subject: bytes, predicate: str, value: re.Match[bytes], line: int) -> Triple | None:
        """A sound row, or None for another language; raises `BadTermError` or UnicodeDecodeError."""
        if value[1] is not None:
            return Triple(self._read_resource(subject), predicate, self._read_resource(value[1]), None, False, line)
        language = None if value[4] is None else value[4].decode("ascii").lower()
        if self._languages is not None and language is not None and language not in self._languages:
            language = _OTHER
        if len(self._tails) >= _MAX_CACHED:
            self._tails.clear()
        self._tails[value[3]] = language
        if language is _OTHER:
            self._report.leave_out(OTHER_LANGUAGE)
            return None
        text = value[2].decode("utf-8")
        if "\\" in text:
            text = unescape(text)
            if "\0" in text:
                raise BadTermError
        return Triple(self._read_resource(subject), predicate, text, language, True, line)

    def _read_resource(self, raw: bytes) -> str:
        """An IRI in full, or a blank node."""
        if raw[:1] == b"<":
            iri = raw[1:-1].decode("utf-8")
            return unescape(iri) if "\\" in iri else iri
        prefix, colon, local = raw.partition(b":")
        if prefix == b"_":
            return raw.decode("utf-8")
        namespace = self._prefixes.get(prefix)
        if not colon or namespace is None:
            raise BadTermError
        return namespace + (LOCAL_ESCAPE.sub(rb"\1", local) if b"\\" in local else local).decode("utf-8")

    def _read_other_line(self, text: bytes, line: int) -> None:
        """A line that is no triple."""
        content = text.strip()
        if not content or content.startswith(b"#"):
            return
        prefix = PREFIX.fullmatch(content)
        if content.startswith(b"<<"):
            self._report.leave_out(ROW_ABOUT_A_ROW)
        elif prefix:
            name, namespace = prefix.group(1, 2) if prefix[2] is not None else prefix.group(3, 4)
            self._prefixes[name] = namespace.decode("utf-8", "replace")
            self._objects.clear()
            self._spell()
        elif self._prefixes and (self._is_in_statement or goes_on(content)):
            self._pass_over(content)
        else:
            self._report.rows += 1
            self._skip(NUL_CHARACTER if b"\0" in content else BAD_TRIPLE, line, text)

    def _spell(self) -> None:
        """Note how the wanted predicates are written with the prefixes so far."""
        self._spellings = {b"<" + iri.encode() + b">": iri for iri in self._wanted}
        for prefix, namespace in self._prefixes.items():
            for iri in self._wanted:
                if namespace and iri.startswith(namespace):
                    self._spellings[prefix + b":" + iri.removeprefix(namespace).encode()] = iri
        if RDF_TYPE in self._wanted:
            self._spellings[b"a"] = RDF_TYPE
        self._filter = RowFilter(self._spellings)

    def _pass_over(self, text: bytes) -> None:
        """Count a line of a statement over several lines."""
        self._is_in_statement = STATEMENT_ENDS.fullmatch(text) is None
        self._report.leave_out(STATEMENT_OVER_LINES)

    def _skip(self, reason: str, line: int, text: bytes) -> None:
        self._report.skip(reason, path=self._path, line=line, text=text.decode("utf-8", "replace"))
