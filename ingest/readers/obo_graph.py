"""Read ontologies in OBO Graph JSON (obographs), as ontologies ship it beside OBO and OWL: the same entities.

::

    {"graphs": [{
      "nodes": [{"id": "http://purl.obolibrary.org/obo/MADE_0001", "lbl": "sore left toe", "type": "CLASS",
                 "meta": {"definition": {"val": "A toe that hurts."},
                          "synonyms": [{"pred": "hasExactSynonym", "val": "toe pain, left"}],
                          "xrefs": [{"val": "OTHER:77"}], "deprecated": false}}],
      "edges": [{"sub": "http://.../MADE_0001", "pred": "is_a", "obj": "http://.../MADE_0002"}]}]}

The parts are as in OBO (`ingest.readers.obo`): ``lbl`` is the canonical name, synonyms with a requested scope are
aliases, ``is_a`` edges give the types, deprecated nodes are excluded. Only nodes that are classes are entities.

The file is read as a stream, one node or edge in memory at a time, twice: the first pass finds edges and replaced ids.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ingest.base.format import Head, PathLike
from ingest.base.reader_base import ReaderBase
from ingest.io import limits
from ingest.io.report import NO_ID, NO_NAME, NUL_CHARACTER, ReadReport
from ingest.readers.obo import check_scopes
from ingest.readers.ontology import NOT_A_TERM, OBSOLETE, SCOPES, ClassTree, Term, clean, short_id
from pearl_qdrant.errors import FormatError

if TYPE_CHECKING:
    from ingest.base.type_map import TypeMap
    from ingest.formats import ReadOptions
    from ingest.io.source import ByteSource
    from pearl_qdrant.records import Entity

_IN_OBO = "http://www.geneontology.org/formats/oboInOwl#"
_NAMESPACE, _ALT_ID = _IN_OBO + "hasOBONamespace", _IN_OBO + "hasAlternativeId"
_REPLACED_BY = ("http://purl.obolibrary.org/obo/IAO_0100001", "IAO:0100001")
_ALTERNATIVE = ("http://purl.obolibrary.org/obo/IAO_0000118", "IAO:0000118")
_SCOPE_OF = {f"has{scope.title()}Synonym": scope for scope in SCOPES}

_IS_GRAPH = re.compile(rb'\s*\{(?:(?!"nodes"|"graphs").)*"(?:graphs|nodes)"\s*:\s*\[\s*\{', re.DOTALL)
_KEYS = re.compile(
    rb'"(?:lbl|edges|propertyChainAxioms|logicalDefinitionAxioms|equivalentNodesSets|basicPropertyValues)"'
)
_SPACE = re.compile(r"[ \t\r\n]*")


def detect(head: Head) -> bool:
    """Whether a file begins like OBO Graph JSON."""
    return head.data.lstrip()[:1] == b"{" and bool(_IS_GRAPH.match(head.data) and _KEYS.search(head.data))


def open_reader(paths: Sequence[PathLike], options: ReadOptions, type_map: TypeMap | None) -> OboGraphReader:
    """A reader of OBO Graph JSON. Raises as `OboGraphReader`."""
    return OboGraphReader(paths, options, type_map)


class OboGraphReader(ReaderBase):
    """An ontology in one or several files of OBO Graph JSON; a `Reader`. A row of its report is a node."""

    def __init__(self, paths: Sequence[PathLike], options: ReadOptions, type_map: TypeMap | None = None) -> None:
        """Open the files; arguments as of `OboReader`, errors too."""
        super().__init__(type_map=type_map, limit=options.limit)
        self._scopes = check_scopes(options.scopes)
        self._links = options.links
        self._tree: ClassTree | None = None
        self._kinds = ("",)  # of nodes that are terms; early files do not tell
        self._sources = self.open_sources(paths)

    def read_rows(self, report: ReadReport) -> Iterator[Entity]:
        """One entity for each good term."""
        tree = self._tree = self._tree or self._read_tree()
        for source in self._sources:
            n_nodes = report.rows
            for line, kind, node in read_elements(source):
                if kind == "nodes":
                    report.rows += 1
                    report.place = source.path, line
                    term = self._parse_node(node, report)
                    if term is not None:
                        yield term.make_entity(tree, self.type_map, report, links=self._links)
            if report.rows == n_nodes:
                raise FormatError(source.path, None, "has no nodes. Is this OBO Graph JSON?")
            report.notes.append(f"{source.path}: OBO Graph JSON")

    def _read_tree(self) -> ClassTree:
        """Ancestors and replaced ids of all files."""
        tree = ClassTree()
        for source in self._sources:
            for _, kind, found in read_elements(source):
                if kind == "edges" and _text(found, "pred") in ("is_a", "subClassOf"):
                    child, parent = _text(found, "sub"), _text(found, "obj")
                    if child and parent:
                        tree.add(short_id(child), short_id(parent))
                elif kind == "nodes" and _text(found, "type") == "CLASS":
                    self._kinds = ("CLASS",)
                if kind == "nodes" and (meta := _map(found, "meta")).get("deprecated") is True:
                    for new in _values(meta, "basicPropertyValues", *_REPLACED_BY):
                        tree.replace(short_id(_text(found, "id")), short_id(new))
        return tree.finish()

    def _parse_node(self, node: Any, report: ReadReport) -> Term | None:
        """The term of a node; None if it is bad or excluded, which is counted."""
        node_id, meta = short_id(_text(node, "id")), _map(node, "meta")
        name = clean(_text(node, "lbl"))
        if not node_id:
            report.skip_here(NO_ID, str(node)[:200])
        elif "\0" in node_id or "\0" in name:
            report.skip_here(NUL_CHARACTER, node_id)
        elif _text(node, "type") not in self._kinds:
            report.filter_out(NOT_A_TERM)
        elif meta.get("deprecated") is True:
            report.filter_out(OBSOLETE)
        elif not name:
            report.filter_out(NO_NAME)
        else:
            names = [name, *self._read_synonyms(meta, report), *_values(meta, "basicPropertyValues", *_ALTERNATIVE)]
            return Term(
                node_id,
                [name for name in names if name and "\0" not in name],
                next(_values(meta, "basicPropertyValues", _NAMESPACE), ""),
                clean(_text(meta.get("definition"), "val")).replace("\0", "") or None,
                self._tree.parents(node_id) if self._tree else (),
                map(short_id, _values(meta, "basicPropertyValues", _ALT_ID)),
                _values(meta, "xrefs"),
            )
        return None

    def _read_synonyms(self, meta: dict[str, Any], report: ReadReport) -> Iterator[str]:
        """Synonyms with the requested scopes; the others are counted."""
        for pred in dict.fromkeys(_text(one, "pred") for one in _list(meta, "synonyms")):
            scope = _SCOPE_OF.get(pred.rpartition("#")[2], "RELATED")
            found = list(_values(meta, "synonyms", pred))
            if scope in self._scopes:
                yield from found
            else:
                report.filter_out(f"{scope.lower()}_synonym", len(found))


def _map(found: Any, key: str) -> dict[str, Any]:
    value = found.get(key) if isinstance(found, dict) else None
    return value if isinstance(value, dict) else {}


def _list(found: dict[str, Any], key: str) -> list[Any]:
    value = found.get(key)
    return value if isinstance(value, list) else []


def _text(found: Any, key: str) -> str:
    value = found.get(key) if isinstance(found, dict) else None
    # Lone surrogates are no text that could be stored.
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _values(meta: dict[str, Any], key: str, *predicates: str) -> Iterator[str]:
    """Values of a list of a node, those with one of the predicates if there are any."""
    for one in _list(meta, key):
        if (not predicates or _text(one, "pred") in predicates) and (value := clean(_text(one, "val"))):
            yield value.replace("\0", "")


def read_elements(source: ByteSource) -> Iterator[tuple[int, str, Any]]:
    """The nodes and edges of all graphs of a file: line, "nodes" or "edges", and the object.

    Raises:
        FormatError: If the file is damaged, not JSON, or a part of it is too large.
        InputError: If it cannot be read.
    """
    stream = _JsonStream(source)
    for key in stream.members():
        if key == "graphs":
            for _ in stream.elements():
                for inner in stream.members():
                    yield from stream.read_list(inner)
        else:
            yield from stream.read_list(key)  # a graph without a document around it
    stream.end()


class _JsonStream:
    """Reads JSON piece by piece; only what `value` returns is held in memory."""

    def __init__(self, source: ByteSource) -> None:
        self._path = source.path
        self._chunks = source.chunks()
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._parse = json.JSONDecoder().raw_decode
        self._text, self._place, self._line = "", 0, 1
        self._is_ended = False

    def read_list(self, key: str) -> Iterator[tuple[int, str, Any]]:
        """The elements of the value that comes next, if it is the list of nodes or edges; else skip it."""
        if key in ("nodes", "edges") and self._peek() == "[":
            for _ in self.elements():
                yield self._line, key, self._value()
        else:
            self._skip(4)

    def members(self) -> Iterator[str]:
        """Keys of an object; the caller consumes each value."""
        for _ in self._parts("{", "}"):
            key = self._value()
            self._take(":")
            yield str(key)

    def elements(self) -> Iterator[None]:
        """Once for each element of a list; the caller consumes it."""
        return self._parts("[", "]")

    def end(self) -> None:
        """Check that nothing follows."""
        if self._peek():
            raise self._error("the JSON ends, and more text follows")

    def _parts(self, opening: str, closing: str) -> Iterator[None]:
        self._take(opening)
        if self._peek() == closing:
            self._place += 1
            return
        while True:
            yield
            if self._peek() == closing:
                self._place += 1
                return
            self._take(",")

    def _skip(self, depth: int) -> None:
        """Consume a value without holding it, as far as its outer levels are lists and objects."""
        first = self._peek()
        if depth and first in ("{", "["):
            for _ in self.members() if first == "{" else self.elements():
                self._skip(depth - 1)
        else:
            self._value()

    def _value(self) -> Any:
        """The next value, whole."""
        self._peek()
        while True:
            try:
                value, end = self._parse(self._text, self._place)
            except (ValueError, RecursionError) as error:  # ValueError: an integer of over 4,300 digits
                size = len(self._text) - self._place
                if size > limits.MAX_ITEM_BYTES:
                    raise self._error(f"a value has over {limits.MAX_ITEM_BYTES:,} characters") from error
                if not isinstance(error, json.JSONDecodeError) or not self._fill(2 * size):
                    raise self._error("is not JSON, or ends early") from error
                continue
            if end == len(self._text) and self._fill(1):  # a number may go on
                continue
            self._place = end
            return value

    def _take(self, sign: str) -> None:
        found = self._peek()
        if found != sign:
            raise self._error(f"expected {sign!r}, found {found or 'the end of the file'!r}. Is this OBO Graph JSON?")
        self._place += 1

    def _peek(self) -> str:
        """The next character that is not space; empty at the end."""
        while True:
            space = _SPACE.match(self._text, self._place)
            self._place = space.end() if space else self._place
            if self._place < len(self._text):
                return self._text[self._place]
            if not self._fill(1):
                return ""

    def _fill(self, n_chars: int) -> bool:
        """Read on until there are this many more characters; False if nothing was left."""
        if self._is_ended:
            return False
        self._line += self._text.count("\n", 0, self._place)
        parts, size = [self._text[self._place :]], 0
        try:
            while size < n_chars and not self._is_ended:
                chunk = next(self._chunks, b"")
                self._is_ended = not chunk
                parts.append(self._decode(chunk, final=not chunk))
                size += len(parts[-1])
        except UnicodeDecodeError as error:
            raise self._error(f"is not valid UTF-8 ({error.reason})") from error
        self._text, self._place = "".join(parts), 0
        return size > 0

    def _error(self, message: str) -> FormatError:
        return FormatError(self._path, self._line + self._text.count("\n", 0, self._place), message)
