r"""Read RDF triples from N-Triples, and from Turtle with one triple a line, as YAGO and Wikidata ship them.

    <http://...> <http://...> "text"@en .          N-Triples, separated by spaces or tabs
    yago:Paris	rdfs:label	"Paris"@en	.          Turtle, after lines like: @prefix yago: <http://...> .

A block of lines is searched, split (`ingest.readers.rdf.filter`) and decoded at once; only rows of an uncommon form are
read one by one. Most rows of a dump are not wanted: they are skipped if they have three words and end with a dot. Any
other line that is not a triple is counted. A statement over several lines (``;``, ``,``, ``[ ]``, as in the schema of
YAGO) and a row about a row (``<< s p o >>``) are counted in `ReadReport.filtered`.

Not supported: escapes inside a predicate, relative IRIs (``@base`` is a bad row), literals in quotes other than ``"``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from ingest.io import limits
from ingest.io.lines import BadLine, line_blocks
from ingest.io.report import INVALID_UTF8, NUL_CHARACTER, TOO_MANY_ROWS, ReadReport
from ingest.io.streams import ByteSource
from ingest.readers.rdf.filter import RowFilter
from ingest.readers.rdf.terms import (
    LOCAL_ESCAPE,
    OBJECT,
    PREFIX,
    ROW,
    STATEMENT_ENDS,
    WHOLE_ROW,
    BadTermError,
    is_continued,
    unescape,
)
from pearl_qdrant.errors import FormatError

BAD_TRIPLE = "bad_triple"
OTHER_LANGUAGE = "other_language"
ROW_ABOUT_A_ROW = "row_about_a_row"
STATEMENT_OVER_LINES = "statement_over_lines"
TOO_MANY_PREFIXES = "too_many_prefixes"

RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"

MAX_PREFIXES = 1_000
"""Prefixes of a file; real ones declare a few dozen."""

_BOM = b"\xef\xbb\xbf"
_MAX_CACHED = 1 << 14
_MAX_CACHED_LENGTH = 1 << 10

_OTHER = "other"
"""Stands for a language that is not requested; compared by identity."""

Fact = tuple[str, str, str | None, int]
"""A row without its subject: predicate (one of the requested IRIs), object, language, line number from 1.

The object is an IRI or blank node, written like a subject, or the unescaped text of a literal. The language is a tag in
lower case, "" for a literal without one, None if the object is not a literal. A plain tuple is fast to make.
"""

Subject = tuple[str, list[Fact]]
"""Rows of one subject: its IRI without angle brackets, prefix expanded; a blank node as ``_:b1``."""


def read_subjects(
    source: ByteSource,
    predicates: Collection[str],
    report: ReadReport,
    *,
    languages: Collection[str] | None = None,
) -> Iterator[Subject]:
    """Rows with one of the predicates, in the order of the file, adjacent rows of one subject together.

    Args:
        source: N-Triples or line-based Turtle, compressed or not.
        predicates: Full IRIs, without angle brackets.
        report: `rows` counts the rows with these predicates. `skipped` counts bad rows (``bad_triple``,
            ``invalid_utf8``, ``nul_character``), lines that are not triples (``bad_triple``, ``line_too_long``) and
            rows of a subject beyond `ingest.io.limits` (``too_many_rows``). `filtered` counts excluded rows.
            Well-formed rows with other predicates are not counted.
        languages: Literals with another language tag are excluded; those without a tag are always included. None:
            all languages. "en" is not "en-gb".

    Raises:
        FormatError: If the file is empty, damaged, or not text.
        InputError: If reading fails.
        TooManyErrorsError: If there are more bad rows than the report allows.
    """
    last, facts, n_bytes = "", list[Fact](), 0
    for subject, more in _read_parts(source, _Parser(source.path, predicates, report, languages), report):
        report.rows += len(more)
        if subject != last:
            if facts:
                yield last, facts
            last, facts, n_bytes = subject, [], 0
            if len(more) <= limits.MAX_ROWS:  # from one block, which has few bytes
                facts, n_bytes = more, -1
                continue
        if n_bytes < 0:
            n_bytes = sum(len(fact[1]) for fact in facts)
        n_taken, n_bytes = _join(facts, more, n_bytes)
        for _, value, _, line in more[n_taken:]:
            report.skip(TOO_MANY_ROWS, path=source.path, line=line, text=f"{subject} {value}")
    if facts:
        yield last, facts


def _join(facts: list[Fact], more: list[Fact], n_bytes: int) -> tuple[int, int]:
    """Add rows to those of a subject up to the limits; returns how many were added, and the bytes of all."""
    for n_taken, fact in enumerate(more):
        n_bytes += len(fact[1])
        if n_bytes > limits.MAX_ENTITY_BYTES or len(facts) >= limits.MAX_ROWS:
            return n_taken, n_bytes
        facts.append(fact)
    return len(more), n_bytes


def _read_parts(source: ByteSource, parser: _Parser, report: ReadReport) -> Iterator[Subject]:
    """Rows by subject; the end of a block and an uncommon row also end a group."""
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
        self._prefixes: dict[str, str] = {}
        self._spelled_with: dict[str, list[str]] = {}
        self._is_in_statement = False
        self._words: dict[str, str] = {}
        self._tails: dict[str, str] = {}
        self._spellings = {f"<{iri}>": iri for iri in self._wanted}
        if RDF_TYPE in self._wanted:
            self._spellings["a"] = RDF_TYPE
        self._filter: RowFilter | None = None

    def parse(self, block: bytes, line: int) -> Iterator[Subject]:  # noqa: C901 - a call a row would cost a third
        """Wanted rows of whole lines, the first of which has this number.

        Rows of the common form come cut; what is not settled so goes to `_read_line`.
        """
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
        if b"\0" in block:
            yield from self._read_lines(block.split(b"\n"), line)
            return
        if self._filter is None:
            self._filter = RowFilter(self._spellings)
        cutter, spellings, tails, words = self._filter, self._spellings, self._tails, self._words
        rows, n_other = cutter.cut(block), 0
        last, subject, facts = "", "", list[Fact]()
        try:
            for number, word, spelling, value, tail in rows:
                if word != last:
                    if facts:
                        self._is_in_statement = False
                        yield subject, facts
                    last, subject, facts = word, self._read_word(word), []
                predicate = spellings.get(spelling)
                if predicate is None:
                    if word:
                        continue
                elif subject:
                    if value[0] == '"':
                        language = tails.get(tail)
                        if language is _OTHER:
                            n_other += 1
                            continue
                        if language is not None:
                            facts.append((predicate, value[1:], language, number + line))
                            continue
                    elif found := words.get(value) or self._read_object(value):
                        facts.append((predicate, found, None, number + line))
                        continue
                if facts:
                    self._is_in_statement = False
                    yield subject, facts
                last, subject, facts = "", "", []
                yield from self._read_lines((rows.line(number),), number + line)
                if self._filter is not cutter:  # a prefix was declared: what follows was cut by other words
                    yield from self._read_lines(rows.lines_after(number), number + line + 1)
                    return
            if facts:
                self._is_in_statement = False
                yield subject, facts
        finally:
            self._report.rows += n_other
            if n_other:
                self._report.filter_out(OTHER_LANGUAGE, n_other)

    def _read_lines(self, lines: Iterable[bytes], first: int) -> Iterator[Subject]:
        """Wanted rows of lines, read one by one."""
        for line, row in enumerate(lines, first):
            found = self._read_line(row, line)
            if found is not None:
                yield found

    def _read_word(self, raw: str) -> str:
        """The full IRI or blank node of a word without quotes and escapes; empty if it is not sound."""
        if raw[:1] == "<":
            return raw[1:-1] if raw.find("<", 1) < 0 and raw.find(">") == len(raw) - 1 else ""
        prefix, colon, local = raw.partition(":")
        namespace = self._prefixes.get(prefix)
        if not colon or "<" in raw or ">" in raw:
            return ""
        return raw if prefix == "_" else "" if namespace is None else namespace + local

    def _read_object(self, raw: str) -> str:
        """The same for an object; cached, since classes repeat often."""
        found = "" if raw[-1] == "." else self._read_word(raw)
        if len(self._words) >= _MAX_CACHED:
            self._words.clear()
        if len(raw) <= _MAX_CACHED_LENGTH:
            self._words[raw] = found
        return found

    def _read_line(self, row: bytes, line: int) -> Subject | None:
        """The row of a line, if it is wanted; counts bad and excluded rows."""
        parts = ROW.fullmatch(row)
        if parts is None:
            self._read_other_line(row, line)
            return None
        predicate = self._spellings.get(parts[2].decode("utf-8", "replace"))
        if predicate is None:
            if parts[3] == b"." or not WHOLE_ROW.fullmatch(parts[3]):
                self._read_other_line(row, line)
            return None
        was_in_statement, self._is_in_statement = self._is_in_statement, False
        value = OBJECT.fullmatch(parts[3])
        if value is None and self._prefixes and (was_in_statement or is_continued(parts[3])):
            self._count_statement_line(parts[3])
            return None
        reason = NUL_CHARACTER if b"\0" in row else BAD_TRIPLE
        if value is not None and reason == BAD_TRIPLE:
            try:
                text, language = self._read_value(value)
                subject = self._read_resource(parts[1])
                if language is not _OTHER:
                    return subject, [(predicate, text, language, line)]
                self._report.rows += 1
                self._report.filter_out(OTHER_LANGUAGE)
                return None
            except UnicodeDecodeError:
                reason = INVALID_UTF8
            except BadTermError:
                reason = BAD_TRIPLE
        self._report.rows += 1
        self._skip(reason, line, row)
        return None

    def _read_value(self, value: re.Match[bytes]) -> tuple[str, str | None]:
        """Object and language as in `Fact`, or `_OTHER`; raises `BadTermError` or UnicodeDecodeError."""
        if value[1] is not None:
            return self._read_resource(value[1]), None
        language = "" if value[4] is None else value[4].decode("ascii").lower()
        if language and self._languages is not None and language not in self._languages:
            language = _OTHER
        if len(self._tails) >= _MAX_CACHED:
            self._tails.clear()
        if len(value[3]) <= _MAX_CACHED_LENGTH:
            self._tails[value[3].decode("utf-8", "replace")] = language
        text = value[2].decode("utf-8")
        if "\\" in text:
            text = unescape(text)
            if "\0" in text:
                raise BadTermError
        return text, language

    def _read_resource(self, raw: bytes) -> str:
        """A full IRI or a blank node; raises as `_read_value`."""
        word = raw.decode("utf-8")
        if word[:1] == "<":
            iri = unescape(word[1:-1]) if "\\" in word else word[1:-1]
            if "\0" in iri:
                raise BadTermError
            return iri
        prefix, colon, local = word.partition(":")
        if prefix == "_":
            return word
        namespace = self._prefixes.get(prefix)
        if not colon or namespace is None:
            raise BadTermError
        return namespace + (LOCAL_ESCAPE.sub(r"\1", local) if "\\" in local else local)

    def _read_other_line(self, text: bytes, line: int) -> None:
        """Handle a line that is not a triple."""
        content = text.strip()
        if not content or content.startswith(b"#"):
            return
        prefix = PREFIX.fullmatch(content)
        if content.startswith(b"<<"):
            self._report.filter_out(ROW_ABOUT_A_ROW)
        elif prefix:
            name, namespace = prefix.group(1, 2) if prefix[2] is not None else prefix.group(3, 4)
            if not self._declare(name.decode("utf-8", "replace"), namespace[1:-1].decode("utf-8", "replace")):
                self._report.rows += 1
                self._skip(TOO_MANY_PREFIXES, line, text)
        elif self._prefixes and (self._is_in_statement or is_continued(content)):
            self._count_statement_line(content)
        else:
            self._report.rows += 1
            self._skip(NUL_CHARACTER if b"\0" in content else BAD_TRIPLE, line, text)

    def _declare(self, prefix: str, namespace: str) -> bool:
        """Remember a prefix, and how the requested predicates are written with it; False if there are too many."""
        if prefix not in self._prefixes and len(self._prefixes) >= MAX_PREFIXES:
            return False
        for spelling in self._spelled_with.pop(prefix, ()):
            del self._spellings[spelling]
        self._prefixes[prefix] = namespace
        found = {f"{prefix}:{iri.removeprefix(namespace)}": iri for iri in self._wanted if iri.startswith(namespace)}
        if namespace and found:
            self._spelled_with[prefix] = list(found)
            self._spellings.update(found)
        self._words.clear()
        # A new one is made when a block is split: a file may declare more prefixes than it has rows.
        self._filter = None
        return True

    def _count_statement_line(self, text: bytes) -> None:
        """Count a line of a statement over several lines."""
        self._is_in_statement = STATEMENT_ENDS.fullmatch(text) is None
        self._report.filter_out(STATEMENT_OVER_LINES)

    def _skip(self, reason: str, line: int, text: bytes) -> None:
        self._report.skip(reason, path=self._path, line=line, text=text.decode("utf-8", "replace"))
