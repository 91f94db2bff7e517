"""Read any RDF: ontologies in OWL, thesauri in SKOS, YAGO 4 and 4.5, Wikidata's truthy dump, and names in general.

The triples come from pyoxigraph, `rdf_entities` makes entities of them. Files, folders and zips of one base are read
together: what several files say of a subject is joined.

N-Triples and N-Quads are parsed in blocks of lines. A block with a bad line is parsed line by line, so that the line is
counted with its place, and reading goes on. In the other syntaxes the first error ends the reading, with its line. What
pyoxigraph leaves to its caller is bounded while the file is fed to it: text without the end of a statement, and in XML
nesting and entities that expand. Well-known prefixes need no declaration.

The input is read twice at least. The first pass, once for a reader, finds the vocabulary, the classes with those above
them, and the subjects whose statements are not adjacent: 8 bytes for each run of statements about one subject, 12 for
each edge between classes. In later passes a subject whose statements are adjacent is an entity at once. The statements
of the others that matter wait in a temporary SQLite database on disk; they become entities at the end, in the order of
their first statements. In Wikidata's dump all statements about an item are adjacent, so that nothing is kept of it.

The canonical name is a label in the first requested language that has one, then one without a language; an entity
without either keeps a name in another language. ``en-GB`` counts as ``en``. Other languages are left out; the language
``all`` makes them aliases.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np
import pyoxigraph
from pyoxigraph import Literal, NamedNode, Quad

from ingest.base.format import PathLike, ReadOptions
from ingest.base.reader import Hashes, Reader, RowStore, store_scattered
from ingest.base.type_map import TypeMap
from ingest.io import limits, reasons
from ingest.io.encoding import HEAD_BYTES, BadLine, Utf8Source, byte_lines, check_encoding, check_is_text, describe_text
from ingest.io.report import ReadReport
from ingest.io.streams import ByteSource, list_inputs
from ingest.readers import rdf_entities as known
from ingest.readers.json_records import is_lines
from ingest.readers.signs import JSON_LD, N_TRIPLES, PREFIXES, RDF_ENDING, RDF_XML, TURTLE, find_root, find_syntax
from ingest.readers.wikidata import ClassTypeFinder, check_languages, class_numbers
from pearl_qdrant.errors import FormatError, OptionError
from pearl_qdrant.records import Entity

Run = tuple[str, list[known.Fact]]  # a subject and what is said of it in one place

# Files of YAGO that name nothing. In Turtle the taxonomy has the classes of the schema, too.
_UNUSED = re.compile(r"yago.*(?:wd-facts|annotated-facts|meta|shapes|statistics|log|schema\.ttl)\b", re.IGNORECASE)
_OLD_YAGO = re.compile(r"yago-wd-", re.IGNORECASE)


class RdfReader(Reader):
    """A base in RDF, in one or several files; a `Reader`. A row of its report is a statement that matters."""

    def __init__(self, paths: Sequence[PathLike], options: ReadOptions, type_map: TypeMap | None = None) -> None:
        """Open the files, folders and zips, and find their syntaxes; ``-`` is standard input. Raises FormatError if a
        path cannot be opened, or a file is not RDF; ValueError if an option makes no sense.
        """
        super().__init__(type_map=type_map, limit=options.limit)
        self._options = options
        check_languages(options.languages)
        given = options.label_properties, options.alias_properties, options.type_properties
        self._added = [known.expand(names) for names in given]
        self._vocabulary: known.Vocabulary | None = None
        try:
            self._files = self._find_files(paths)
        except BaseException:
            self.close()
            raise

    def read(self, report: ReadReport, *, scattered: Hashes | None = None) -> Iterator[Entity]:
        """Entities, each id once; see `Reader.read`. The statements of an id are joined already, but for Wikidata."""
        if scattered is None and not self._find_vocabulary().profile.is_items:
            scattered = np.empty(0, dtype=np.uint64)
        yield from super().read(report, scattered=scattered)

    def read_rows(self, report: ReadReport) -> Iterator[Entity]:
        vocabulary = self._find_vocabulary()
        maker = known.EntityMaker(vocabulary, self._options, type_map=self.type_map, report=report)
        report.notes.extend(f"{source.path}: {syntax}, {maker.profile.title}" for source, syntax in self._files)
        try:
            yield from self._read_entities(maker, report)
        finally:
            report.notes.extend(maker.notes())  # also where the limit ends the pass early

    def _find_files(self, paths: Sequence[PathLike]) -> list[tuple[ByteSource, str]]:
        """The files with their syntaxes, in the order of the paths; those of a folder or zip by name."""
        if not paths:
            raise ValueError("nothing to read: no path was given")
        found = [(file, syntax) for path in paths for file, syntax in self._open(str(path)) if syntax]
        names = [re.split(r"[!/\\]", source.path)[-1] for source, _ in found]
        self._is_named_by_id = not any(map(_OLD_YAGO.match, names))  # in YAGO 4 the file of labels decides
        used = [one for one, name in zip(found, names, strict=True) if len(found) == 1 or not _UNUSED.match(name)]
        if not used:
            seen = ", ".join(names[:20]) or "no RDF"
            raise FormatError(str(paths[0]), None, f"has no file of RDF that names anything. There is: {seen}")
        return used

    def _open(self, path: str) -> Iterator[tuple[ByteSource, str | None]]:
        """The files under a path, zips in a folder included; what was named itself, or by its ending, must be RDF."""
        outer = list_inputs(path, n_levels=1)
        names = [inner for one in outer for inner in ([one] if one == path else list_inputs(one))]
        for source in self.open_sources(names) if names else ():
            head = Utf8Source(source).head(HEAD_BYTES)
            must_be = names == [path] or RDF_ENDING.search(source.path)
            syntax = check_syntax(source.path, head) if must_be else find_syntax(head)
            yield source if syntax in (None, RDF_XML) else self.as_text(source), syntax  # XML names its encoding itself

    def _find_vocabulary(self) -> known.Vocabulary:
        """What a first pass over all files finds. Raises as `read`."""
        if self._vocabulary is None:
            wanted = frozenset().union(*(one.extend(*self._added).properties() for one in known.profiles().values()))
            found = known.Vocabulary(self._added[0])
            for source, syntax in self._files:
                for subject, facts in _read_runs(source, syntax, wanted, ReadReport(max_errors=None), found):
                    found.add(subject, facts)
            found.finish(self._added, is_named_by_id=self._is_named_by_id)
            self._check(found)
            if found.profile.is_items:
                numbers = class_numbers(self._options.classes)
                found.finder = ClassTypeFinder(found.items.finish(), type_map=self.type_map, wanted=numbers)
            self._vocabulary = found
        return self._vocabulary

    def _check(self, found: known.Vocabulary) -> None:
        """Refuse files without a name, and options that the vocabulary does not have."""
        (source, syntax), profile = self._files[0], found.profile
        if profile.is_items and self._options.links:
            raise FormatError(source.path, None, "to keep the links between items, read the JSON dump")
        naming = (*profile.labels, *profile.aliases, *(profile.types if profile.is_named_by_id else ()))
        if found.counts.keys().isdisjoint(naming):
            used = ", ".join(name for name, _ in found.seen.most_common(8)) or "no statement"
            message = f"is {syntax} in which nothing has a name by a known property. It has: {used}"
            raise FormatError(
                source.path, None, f"{message}. Name the property of the names.", option="label_properties"
            )

    def _read_entities(self, maker: known.EntityMaker, report: ReadReport) -> Iterator[Entity]:
        """One entity for each subject: those with adjacent statements first."""
        wanted = maker.profile.properties()
        with RowStore() as store:
            for number, (source, syntax) in enumerate(self._files):
                read = _read_runs(source, syntax, wanted, report, None)
                adjacent = store_scattered(
                    ((number, known.entity_id(subject), facts) for subject, facts in read),
                    self._find_vocabulary().scattered,
                    store,
                    id_of=itemgetter(1),
                )
                for _, subject, facts in adjacent:
                    report.place = source.path, facts[0][3]
                    entity = maker.make(subject, facts)
                    if entity is not None:
                        yield entity
            for subject, records in groupby(store.rows(), itemgetter(1)):
                entity = maker.make(subject, self._join(subject, records, report))
                if entity is not None:
                    yield entity

    def _join(
        self, subject: str, records: Iterable[tuple[int, str, list[known.Fact]]], report: ReadReport
    ) -> list[known.Fact]:
        """The statements of a subject from several places, up to the limits."""
        joined = list[known.Fact]()
        for number, _, facts in records:
            path = self._files[number][0].path
            if not joined:
                report.place = path, facts[0][3]
            for fact in facts:
                if len(joined) >= limits.MAX_ROWS:
                    report.skip(reasons.TOO_MANY_ROWS, path=path, line=fact[3], text=f"{subject} {fact[1]}")
                else:
                    joined.append(fact)
        return joined


def _read_runs(
    source: ByteSource, syntax: str, wanted: frozenset[str], report: ReadReport, found: known.Vocabulary | None
) -> Iterator[Run]:
    """Statements with the wanted properties, those of one subject together as long as they are adjacent; `rows` of the
    report counts them, and those beyond the limits of an entity are skipped. In the first pass `found` sees the others.
    """
    last, facts = "", list[known.Fact]()
    for quad, line in read_triples(source, syntax, report):
        predicate = quad.predicate.value
        if predicate not in wanted:
            if found is not None:
                found.see(predicate, quad)
            continue
        node, target = quad.subject, quad.object
        if type(node) is not NamedNode:
            if predicate == known.LABEL:
                report.filter_out(reasons.BLANK_NODE)
            continue
        if not isinstance(target, (NamedNode, Literal)):
            continue
        # The first pass looks at links only.
        is_passed = found is not None and type(target) is Literal and predicate != known.DEPRECATED
        language = (target.language or "").lower() if isinstance(target, Literal) else None
        text, language = ("", "") if is_passed else (target.value, language)
        report.rows += 1
        subject = node.value
        if subject != last:
            if facts:
                yield last, facts
            last, facts = subject, []
        if "\0" in text or "\0" in subject:
            report.skip(reasons.NUL_CHARACTER, path=source.path, line=line, text=f"{subject} {text}")
        elif len(facts) >= limits.MAX_ROWS:
            report.skip(reasons.TOO_MANY_ROWS, path=source.path, line=line, text=f"{subject} {text}")
        else:
            facts.append((predicate, text, language, line))
    if facts:
        yield last, facts


# Syntaxes


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
    """The syntax of a file. Raises FormatError if it is none that is read here; names what it is where it can."""
    if found := find_syntax(data):
        return found
    check_is_text(path, data.strip())
    kind = describe_text(data)
    message = f"is not RDF but {kind}" if kind else "is not RDF"
    raise FormatError(path, None, f"{message}. RDF is read as Turtle, TriG, N-Triples, N-Quads, RDF/XML and JSON-LD")


def read_triples(source: ByteSource, syntax: str, report: ReadReport) -> Iterator[tuple[Quad, int]]:
    """Triples in their order, each with the line at which it was read; exact in N-Triples, else some lines later.
    Raises FormatError if the file is damaged, or an error in it is not that of a line of N-Triples; InputError if it
    cannot be read; TooManyErrorsError if there are more bad lines than the report allows.
    """
    if syntax == JSON_LD and len(source.head(HEAD_BYTES).split(b"\n{", 1)) > 1 and is_lines(source.head(HEAD_BYTES)):
        return _read_documents(source, report)
    return _read_rows(source, report) if syntax == N_TRIPLES else _read_stream(source, syntax)


def _read_documents(source: ByteSource, report: ReadReport) -> Iterator[tuple[Quad, int]]:
    """Triples of JSON-LD with a document a line."""
    form = pyoxigraph.RdfFormat.JSON_LD
    for number, line in byte_lines(source, max_bytes=limits.MAX_ITEM_BYTES):
        if isinstance(line, BadLine):
            report.skip(line.reason, path=source.path, line=number, text=line.text)
        elif line.strip():
            try:
                found = list(pyoxigraph.parse(line, format=form, base_iri=known.BASE, lenient=True))
            except SyntaxError as error:
                if "LoadDocumentCallback" in str(error.msg):
                    raise FormatError(source.path, number, _REMOTE) from error
                report.skip(reasons.BAD_TRIPLE, path=source.path, line=number, text=line.decode("utf-8", "replace"))
            else:
                yield from ((quad, number) for quad in found)


def _read_rows(source: ByteSource, report: ReadReport) -> Iterator[tuple[Quad, int]]:
    """Triples of N-Triples and N-Quads, by batches of lines."""
    batch, size = list[tuple[int, bytes | BadLine]](), 0
    for numbered in byte_lines(source, max_bytes=limits.MAX_LINE_BYTES):
        batch.append(numbered)
        size += len(numbered[1]) if isinstance(numbered[1], bytes) else 0
        if size > _BATCH:
            yield from _parse_batch(batch, source.path, report)
            batch, size = [], 0
    yield from _parse_batch(batch, source.path, report)


def _parse_batch(batch: list[tuple[int, bytes | BadLine]], path: str, report: ReadReport) -> Iterator[tuple[Quad, int]]:
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
            reason = reasons.NUL_CHARACTER if b"\0" in line else None
            if reason is None and (quads := _parse(line)):
                yield from ((quad, number) for quad in quads)
            elif row.startswith(b"<<"):
                report.filter_out(reasons.ROW_ABOUT_A_ROW)
            else:
                text_of_line = line.decode("utf-8", "replace")
                is_damaged = "\ufffd" in text_of_line and "\ufffd".encode() not in line
                report.rows += 1
                reason = reason or (reasons.INVALID_UTF8 if is_damaged else reasons.BAD_TRIPLE)
                report.skip(reason, path=path, line=number, text=text_of_line)


def _parse(rows: bytes) -> list[Quad]:
    """The triples of rows of N-Quads; none if one is bad."""
    try:
        return list(pyoxigraph.parse(rows, format=pyoxigraph.RdfFormat.N_QUADS, lenient=True))
    except (SyntaxError, MemoryError):
        return []


def _read_stream(source: ByteSource, syntax: str) -> Iterator[tuple[Quad, int]]:
    formats = pyoxigraph.RdfFormat
    form = {TURTLE: formats.TRIG, RDF_XML: formats.RDF_XML, JSON_LD: formats.JSON_LD}[syntax]
    feed = _Feed(source, syntax)
    try:
        for quad in pyoxigraph.parse(feed, format=form, base_iri=known.BASE, lenient=True):  # type: ignore[arg-type]
            feed.n_open = 0
            if feed.depth and type(quad.subject) is NamedNode:
                feed.depth = 0
            yield quad, feed.line
    except SyntaxError as error:
        raise _explain(source.path, syntax, error, feed) from error
    except MemoryError as error:
        raise FormatError(source.path, feed.line, f"this {syntax} has a word that is too long ({error})") from error
    if syntax == RDF_XML and not feed.is_closed:
        raise FormatError(source.path, feed.line, "this RDF/XML ends early: its root is not closed. Fetch it again")


def _explain(path: str, syntax: str, error: SyntaxError, feed: _Feed) -> FormatError:
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
            yield from source.chunks()
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
