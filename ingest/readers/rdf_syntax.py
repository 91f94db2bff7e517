"""The triples of RDF in any syntax as a stream, by pyoxigraph.

N-Triples and N-Quads are parsed in blocks of lines. A block with a bad line is parsed line by line, so that the line is
counted with its place, and reading goes on. In the other syntaxes the first error ends the reading, with its line.

What pyoxigraph leaves to its caller is bounded here, while the file is fed to it: text without the end of a statement,
and in XML nesting and entities that expand. Well-known prefixes need no declaration.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

import pyoxigraph

from ingest.io import limits
from ingest.io.encoding import HEAD_BYTES, BadLine, Utf8Source, byte_lines, check_encoding, check_is_text, describe_text
from ingest.io.report import INVALID_UTF8, NUL_CHARACTER, ReadReport
from ingest.io.streams import ByteSource
from ingest.readers.signs import JSON_LD, N_TRIPLES, PREFIXES, RDF_XML, TURTLE, find_root, find_syntax
from pearl_qdrant.errors import FormatError, OptionError

BAD_TRIPLE = "bad_triple"
ROW_ABOUT_A_ROW = "row_about_a_row"

BASE = "file:///"  # before a relative IRI; it is removed from ids again
MAX_STATEMENT_BYTES = 1 << 22  # bytes without the end of a statement, such as a literal without its closing quote
MAX_NESTING = 10_000  # elements of XML within one another; the parser's time grows with the square

MAX_ENTITY_LENGTH = 256  # characters that an entity of XML stands for; ontologies declare their namespaces so
_BATCH = 1 << 16  # bytes of lines of N-Triples that are parsed at once
_PIECE = 1 << 10  # bytes that the other parsers get at once; the place of a triple is known to these
_ENTITY = re.compile(rb"<!ENTITY\s+(?:%\s+)?([^\s\"'<>]+)\s+(?:\"([^\"]*)\"|'([^']*)'|(SYSTEM|PUBLIC))")
_REFERENCE = re.compile(rb"&([^;&\s]+);")
_XML_ENCODING = re.compile(rb"\A\s*<\?xml[^>]*?\sencoding\s*=\s*[\"']([A-Za-z0-9._-]+)[\"'][^>]*\?>")
_REMOTE = (
    "this JSON-LD names a context on the web, and nothing is fetched. Write the context into the file, or expand it "
    "first (jsonld expand)"
)


def check_syntax(path: str, data: bytes) -> str:
    """The syntax of a file. Raises FormatError if it is none that is read here; names what it is where that can be
    told.
    """
    if found := find_syntax(data):
        return found
    check_is_text(path, data.strip())
    kind = describe_text(data)
    message = f"is not RDF but {kind}" if kind else "is not RDF"
    raise FormatError(path, None, f"{message}. RDF is read as Turtle, TriG, N-Triples, N-Quads, RDF/XML and JSON-LD")


def read_triples(source: ByteSource, syntax: str, report: ReadReport) -> Iterator[tuple[pyoxigraph.Quad, int]]:
    """Triples in their order, each with the line at which it was read; exact in N-Triples, else some lines later.
    Raises FormatError if the file is damaged, or an error in it is not that of a line of N-Triples; InputError if it
    cannot be read; TooManyErrorsError if there are more bad lines than the report allows.
    """
    return _read_rows(source, report) if syntax == N_TRIPLES else _read_stream(source, syntax)


def _read_rows(source: ByteSource, report: ReadReport) -> Iterator[tuple[pyoxigraph.Quad, int]]:
    """Triples of N-Triples and N-Quads, by batches of lines."""
    batch, size = list[tuple[int, bytes | BadLine]](), 0
    for numbered in byte_lines(Utf8Source(source, "utf-8"), max_bytes=limits.MAX_LINE_BYTES):
        batch.append(numbered)
        size += len(numbered[1]) if isinstance(numbered[1], bytes) else 0
        if size > _BATCH:
            yield from _parse_batch(batch, source.path, report)
            batch, size = [], 0
    yield from _parse_batch(batch, source.path, report)


def _parse_batch(
    batch: list[tuple[int, bytes | BadLine]], path: str, report: ReadReport
) -> Iterator[tuple[pyoxigraph.Quad, int]]:
    """The triples of some lines: of all at once, or line by line if one is bad, which can swallow others."""
    lines = [line for _, line in batch if isinstance(line, bytes)]
    text = b"\n".join(lines)
    found = _parse(text) if len(lines) == len(batch) and b"\0" not in text else []
    if len(found) == len(batch):
        yield from zip(found, (number for number, _ in batch), strict=True)
        return
    for number, line in batch:
        if isinstance(line, BadLine):
            report.rows += 1
            report.skip(line.reason, path=path, line=number, text=line.text)
        elif (row := line.strip())[:1] not in (b"", b"#"):
            reason = NUL_CHARACTER if b"\0" in line else None
            if reason is None and (quads := _parse(line)):
                yield from ((quad, number) for quad in quads)
            elif row.startswith(b"<<"):
                report.filter_out(ROW_ABOUT_A_ROW)
            else:
                text_of_line = line.decode("utf-8", "replace")
                is_damaged = "\ufffd" in text_of_line and "\ufffd".encode() not in line
                report.rows += 1
                reason = reason or (INVALID_UTF8 if is_damaged else BAD_TRIPLE)
                report.skip(reason, path=path, line=number, text=text_of_line)


def _parse(rows: bytes) -> list[pyoxigraph.Quad]:
    """The triples of rows of N-Quads; none if one is bad."""
    try:
        return list(pyoxigraph.parse(rows, format=pyoxigraph.RdfFormat.N_QUADS, lenient=True))
    except (SyntaxError, MemoryError):
        return []


def _read_stream(source: ByteSource, syntax: str) -> Iterator[tuple[pyoxigraph.Quad, int]]:
    """Triples of the other syntaxes."""
    formats = pyoxigraph.RdfFormat
    form = {TURTLE: formats.TRIG, RDF_XML: formats.RDF_XML, JSON_LD: formats.JSON_LD}[syntax]
    feed = _Feed(source, syntax)
    named = pyoxigraph.NamedNode
    try:
        for quad in pyoxigraph.parse(feed, format=form, base_iri=BASE, lenient=True):  # type: ignore[arg-type]
            feed.n_open = 0
            if feed.depth and type(quad.subject) is named:
                feed.depth = 0
            yield quad, feed.line
    except SyntaxError as error:
        raise _explain(source.path, syntax, error, feed) from error
    except MemoryError as error:
        raise FormatError(source.path, feed.line, f"this {syntax} has a word that is too long ({error})") from error
    if syntax == RDF_XML and not feed.is_closed:
        raise FormatError(source.path, feed.line, "this RDF/XML ends early: its root is not closed. Fetch it again")


def _explain(path: str, syntax: str, error: SyntaxError, feed: _Feed) -> FormatError:
    """The error of a parser in our words."""
    if "LoadDocumentCallback" in str(error.msg):
        return FormatError(path, None, _REMOTE)
    message = re.sub(r"^Parser error (?:at|between) .*?: ", "", str(error.msg))
    where = f"column {error.offset}: " if error.offset and (error.lineno or 1) > 1 else ""
    advice = " Check it: robot validate, or rapper -c" if syntax == RDF_XML else ""
    return FormatError(path, error.lineno or feed.line, f"{where}this {syntax} cannot be read: {message}.{advice}")


class _Feed:
    """A file as pyoxigraph reads it, within bounds: the line that was reached, bytes since the last triple, and of XML
    how deep the elements are and whether the root was closed.
    """

    def __init__(self, source: ByteSource, syntax: str) -> None:
        self.line, self.n_open, self.depth, self.is_closed = 1, 0, 0, False
        self._path, self._syntax = source.path, syntax
        self._closing = b"</"
        self._chunks = self._decode(source)
        self._rest, self._place, self._last, self._tail = b"", 0, b"", b""

    def read(self, n_bytes: int = -1) -> bytes:
        """The next bytes, at most as many as asked for."""
        if self._place >= len(self._rest):
            self._rest, self._place = next(self._chunks, b""), 0
        # More of what goes on without an end: the parser begins it anew with each piece.
        size = max(_PIECE, self.n_open // 4)
        size = min(n_bytes, size) if n_bytes > 0 else size
        data = self._rest[self._place : self._place + size]
        self._place += len(data)
        self.line += data.count(b"\n")
        self.n_open += len(data)
        if self._syntax == RDF_XML:
            self._measure(data)
        if self.n_open > MAX_STATEMENT_BYTES:
            raise self._error(f"no statement ends within {MAX_STATEMENT_BYTES:,} bytes")
        if self.depth > MAX_NESTING:
            raise self._error(f"is nested more than {MAX_NESTING:,} deep")
        return data

    def _measure(self, data: bytes) -> None:
        """Follow the depth of XML, and its end. Brackets in comments count too, so it is an estimate."""
        joined = self._last + data
        self.depth += data.count(b"<") - 2 * joined.count(b"</") - joined.count(b"/>")
        self.depth = max(self.depth - joined.count(b"<!") - joined.count(b"<?"), 0)
        self._tail += data
        self.is_closed = self.is_closed or self._closing in self._tail
        self._tail = self._tail[-len(self._closing) :]
        self._last = data[-1:]

    def _decode(self, source: ByteSource) -> Iterator[bytes]:
        """The file in UTF-8 without a byte order mark; with the prefixes that it may have forgotten to declare."""
        if self._syntax != RDF_XML:
            if self._syntax == TURTLE:  # on the first line, so that the others keep their numbers
                yield "".join(f"@prefix {name}: <{iri}> . " for name, iri in PREFIXES.items()).encode()
            yield from Utf8Source(source, "utf-8").chunks()
            return
        declared = _XML_ENCODING.match(source.head(HEAD_BYTES).removeprefix(codecs.BOM_UTF8))
        name = declared[1].decode() if declared else "utf-8"
        try:
            chunks = Utf8Source(source, check_encoding(name)).chunks()
        except OptionError as error:
            message = f"declares the encoding {name}, which is not known here. Convert it: iconv -t UTF-8"
            raise self._error(message) from error
        head = b""
        while len(head) < HEAD_BYTES and (chunk := next(chunks, b"")):
            head += chunk
        yield self._complete(_XML_ENCODING.sub(b"", head, count=1))  # the parser would believe the declaration
        tail = b""
        for chunk in chunks:
            if b"<!ENTITY" in tail + chunk:
                raise self._error("declares an entity in a way that is not known here, or after its root")
            tail = chunk[-8:]
            yield chunk

    def _complete(self, head: bytes) -> bytes:
        """The beginning of RDF/XML with well-known prefixes declared, having looked that no entity expands."""
        root = find_root(head)
        if root is None:
            raise self._error("no root element was found in the first 64 KiB")
        lengths: dict[bytes, int] = {}
        for name, double, single, outside in _ENTITY.findall(head, 0, root.start()):
            value = double or single
            lengths[name] = len(value) + sum(lengths.get(inner, 0) for inner in _REFERENCE.findall(value))
            if outside or lengths[name] > MAX_ENTITY_LENGTH:
                what = f"is of another file, or stands for over {MAX_ENTITY_LENGTH} characters"
                raise self._error(f"has an entity '{name.decode('utf-8', 'replace')[:60]}' that {what}")
        if head.count(b"<!ENTITY") > len(_ENTITY.findall(head, 0, root.start())):
            raise self._error("declares an entity in a way that is not known here, or after its root")
        self._closing = b"</" + root[1]
        tag = head[root.end() : max(head.find(b">", root.end()), root.end())]
        self.is_closed = tag.rstrip().endswith(b"/")
        declared = set(re.findall(rb"xmlns:([\w.-]+)\s*=", tag))
        missing = "".join(f' xmlns:{name}="{iri}"' for name, iri in PREFIXES.items() if name.encode() not in declared)
        return head[: root.end()] + missing.encode() + head[root.end() :]

    def _error(self, message: str) -> FormatError:
        return FormatError(self._path, self.line, f"this {self._syntax} {message}")
