"""What all forms of an ontology share: ids, the tree of its terms, and how a term becomes an entity.

OBO, OBO Graph JSON and OWL of one ontology give the same entities: ids as OBO writes them, aliases by scope, and as
native types the ids of the ancestors, nearest first, and then the namespace.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from ingest.base.format import PathLike, ReadOptions, Scope
from ingest.base.reader import Reader
from ingest.base.type_map import ClassGraph, TypeMap
from ingest.io import limits
from ingest.io.encoding import BadLine, read_lines
from ingest.io.report import NO_ID, NO_NAME, NUL_CHARACTER, TOO_MANY_ROWS, ReadReport
from ingest.io.streams import ByteSource
from ingest.readers.json_records import read_values
from pearl_qdrant.errors import FormatError
from pearl_qdrant.records import LINKS_FIELD, Entity

SCOPES: tuple[Scope, ...] = get_args(Scope)
OBSOLETE = "obsolete"
NOT_A_TERM = "not_a_term"

_CURIE = re.compile(
    r"https?://(?:purl\.obolibrary\.org/obo|www\.ebi\.ac\.uk/efo|www\.orpha\.net/ORDO)/([A-Za-z]\w*)_([0-9A-Za-z]+)"
)
_BREAKS = re.compile(r"[\t\n\r ]+")


def short_id(iri: str) -> str:
    """The id of a term as OBO writes it: ``UO:0000001`` for ``http://purl.obolibrary.org/obo/UO_0000001``."""
    match = _CURIE.fullmatch(iri) if "_" in iri else None
    return f"{match[1]}:{match[2]}" if match else iri


def clean(text: str) -> str:
    """A name on one line, without space around it."""
    is_uneven = "\n" in text or "\t" in text or "\r" in text or "  " in text
    return _BREAKS.sub(" ", text).strip() if is_uneven else text.strip()


@dataclass(slots=True)
class Term:
    """A term of an ontology: its id as OBO writes it, its names (the canonical one first), a namespace as last type,
    its definition, direct parents, other ids that it had, ids in other bases, further fields, and the languages of
    names.
    """

    id: str
    names: Sequence[str]
    namespace: str = ""
    description: str | None = None
    parents: Sequence[str] = ()
    alt_ids: Iterable[str] = ()
    xrefs: Iterable[str] = ()
    extra: dict[str, str] = field(default_factory=dict)
    languages: Mapping[str, str] = field(default_factory=dict)

    def make_entity(self, tree: ClassGraph[str], type_map: TypeMap, report: ReadReport, *, links: bool) -> Entity:
        """The entity; names beyond the limit are counted. `links` keeps the ids of the direct parents."""
        parents = [parent for parent in dict.fromkeys(self.parents) if parent != self.id]
        ancestors = [above for above in tree.walk_up(parents, limits.MAX_KB_TYPES)[0] if above != self.id]
        kb_types = (*ancestors, self.namespace) if self.namespace else tuple(ancestors)
        extra = dict(self.extra)
        if alt_ids := dict.fromkeys([*self.alt_ids, *tree.replaced.get(self.id, ())]):
            extra["alt_ids"] = "|".join(alt_ids)
        if parents and links:
            extra[LINKS_FIELD] = "|".join(parents)
        if xrefs := "|".join(dict.fromkeys(self.xrefs)):
            extra["xrefs"] = xrefs
        names, types = list(dict.fromkeys(self.names)), type_map.map_types(kb_types)
        return report.make_entity(self.id, names, kb_types, types, self.description, extra, None, self.languages)


class OntologyReader(Reader):
    """What the readers of OBO and of OBO Graph JSON share: the files, and the scopes of the synonyms that are names."""

    def __init__(self, paths: Sequence[PathLike], options: ReadOptions, type_map: TypeMap | None = None) -> None:
        """Open the files; ``-`` is standard input. Raises FormatError as `open_sources`."""
        super().__init__(type_map=type_map, limit=options.limit)
        self.scopes, self._links = frozenset(options.scopes or ("EXACT",)), options.links
        self._tree: ClassGraph[str] | None = None
        self.sources = tuple(map(self.as_text, self.open_sources(paths)))

    @abstractmethod
    def read_tree(self) -> ClassGraph[str]:
        """Ancestors and replaced ids of all files."""

    @abstractmethod
    def read_terms(self, source: ByteSource, tree: ClassGraph[str], report: ReadReport) -> Iterator[Term | None]:
        """The terms of a file; None for one that is bad or excluded, which is counted. Raises as `read`."""

    def read_rows(self, report: ReadReport) -> Iterator[Entity]:
        tree = self._tree = self._tree or self.read_tree()
        for source in self.sources:
            for term in self.read_terms(source, tree, report):
                if term is not None:
                    yield term.make_entity(tree, self.type_map, report, links=self._links)


BAD_SYNONYM = "bad_synonym"
MALFORMED_LINE = "malformed_line"

_TERM = "Term"
_OLD_SYNONYMS = {f"{scope.lower()}_synonym": scope for scope in SCOPES}
_TREE_TAGS = frozenset({"id", "is_a", "is_obsolete", "replaced_by"})
_TAGS = frozenset(
    {"id", "name", "namespace", "default-namespace", "alt_id", "def", "synonym", "xref", "is_a", "is_obsolete"}
    | set(_OLD_SYNONYMS)
)
_MAX_BRACES = 8
_MAX_MODIFIERS = 1 << 16  # characters; real ones have about a hundred
_COMMENT = re.compile(r"\s!(?:\s|$)")
# There is only one way to match these expressions, so a mismatch is found in linear time.
_QUOTED = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"')
_MODIFIER = rf'[^\s="{{}},][^\s="{{}}]*\s*=\s*(?:{_QUOTED.pattern}|[^\s",{{}}]+(?=[\s,}}]))\s*(?:,\s*)?'
_MODIFIERS = re.compile(rf"\{{\s*(?:{_MODIFIER})*\}}")
_SCOPED = rf"(?:{'|'.join(SCOPES)})\b"
_AFTER_QUOTED = re.compile(rf"\s*(?:$|[\[{{!]|{_SCOPED}|[\w:-]+\s*\[)")
# For quotes that were not escaped: up to the last quote that a scope or references follow.
_LOOSE = re.compile(rf'"(.*)"(?=\s*(?:{_SCOPED}[^"\[]*)?(?:[\[{{!].*)?$)')
_ID = re.compile(r"(?:[^\s!{\\]|\\.)+")
_ESCAPE = re.compile(r"\\(.)")
_BLANKS = {"n": " ", "t": " ", "W": " "}
_SPACE = re.compile(r"[\t ]+")


@dataclass(slots=True)
class Stanza:
    """A block of a file: the text in the brackets ("" for the header), its first line, and its (line, tag, value)."""

    kind: str
    line: int
    tags: list[tuple[int, str, str]] = field(default_factory=list)


class OboReader(OntologyReader):
    """An ontology in one or several OBO files; a `Reader`. A row of its report is a stanza."""

    def read_tree(self) -> ClassGraph[str]:
        tree = ClassGraph[str]()
        for source in self.sources:
            for stanza in read_stanzas(source, _TREE_TAGS, ReadReport(max_errors=None)):
                if stanza.kind == _TERM:
                    term_id = next((first_id(value) for _, tag, value in stanza.tags if tag == "id"), "")
                    is_gone = _is_obsolete(stanza)
                    for _, tag, value in stanza.tags:
                        if tag == "is_a" and not is_gone and (parent := first_id(value)):
                            tree.add(term_id, parent)
                        elif tag == "replaced_by" and is_gone and term_id:
                            tree.replace(term_id, first_id(value))
        return tree.finish()

    def read_terms(self, source: ByteSource, tree: ClassGraph[str], report: ReadReport) -> Iterator[Term | None]:
        namespace, n_terms = "", 0
        for stanza in read_stanzas(source, _TAGS, report):
            if not stanza.kind:
                namespace = next((plain_value(v) for _, tag, v in stanza.tags if tag == "default-namespace"), "")
                continue
            report.rows += 1
            if stanza.kind != _TERM:
                report.filter_out(NOT_A_TERM)
                continue
            n_terms += 1
            report.place = source.path, stanza.line
            yield self._parse_term(source.path, stanza, namespace, report)
        if not n_terms:
            raise FormatError(source.path, None, "has no [Term] stanza. Is this an OBO file?")
        report.notes.append(f"{source.path}: OBO")

    def _parse_term(self, path: str, stanza: Stanza, namespace: str, report: ReadReport) -> Term | None:
        """The term of a stanza; None if it is bad or excluded, which is counted."""
        values: dict[str, list[str]] = {}
        for _, tag, value in stanza.tags:
            values.setdefault(tag, []).append(value)
        term_id = first_id(values.get("id", [""])[0])
        if not term_id:
            report.skip(NO_ID, path=path, line=stanza.line, text=f"[{stanza.kind}]")
            return None
        if _is_obsolete(stanza):
            report.filter_out(OBSOLETE)
            return None
        names = [name for name in map(plain_value, values.get("name", ())) if name]
        if not names:
            report.filter_out(NO_NAME)
            return None
        names += self._read_synonyms(path, stanza, report)
        definition = quoted_value(values["def"][0]) if "def" in values else None
        return Term(
            term_id,
            names,
            plain_value(values["namespace"][0]) if "namespace" in values else namespace,
            (definition[0] or None) if definition else None,
            [parent for parent in map(first_id, values.get("is_a", ())) if parent],
            [other for other in map(first_id, values.get("alt_id", ())) if other],
            [other for value in values.get("xref", ()) if (other := plain_value(value.partition(' "')[0]))],
        )

    def _read_synonyms(self, path: str, stanza: Stanza, report: ReadReport) -> Iterator[str]:
        for number, tag, value in stanza.tags:
            if tag == "synonym" or tag in _OLD_SYNONYMS:
                parsed = quoted_value(value)
                if parsed is None:
                    report.skip(BAD_SYNONYM, path=path, line=number, text=f"{tag}: {value}")
                    continue
                text, rest = parsed
                given = rest.split(None, 1)[0] if rest.strip() else ""
                scope = _OLD_SYNONYMS.get(tag) or (given if given in SCOPES else "RELATED")
                if scope not in self.scopes:
                    report.filter_out(f"{scope.lower()}_synonym")
                elif text:
                    yield text


def read_stanzas(source: ByteSource, wanted: frozenset[str], report: ReadReport) -> Iterator[Stanza]:
    """The header and all stanzas of a file, with the requested tags only. Raises FormatError if the file is damaged, or
    does not begin like OBO; InputError if it cannot be read; TooManyErrorsError if there are more bad lines than the
    report allows.
    """
    stanza, is_begun = Stanza("", 1), False
    for number, line in _whole_lines(source, report):
        if not line or line[0] == "!":
            continue
        if line[0] == "[" and (end := line.find("]")) > 1:
            yield stanza
            stanza, is_begun = Stanza(line[1:end], number), True
            continue
        tag, colon, value = line.partition(":")
        if tag not in wanted and colon:
            is_begun = True
            continue
        if not colon:
            if not is_begun:
                raise FormatError(source.path, number, "is neither 'tag: value' nor '[Term]'. Is this an OBO file?")
            report.skip(MALFORMED_LINE, path=source.path, line=number, text=line)
        elif len(stanza.tags) < limits.MAX_ROWS:
            stanza.tags.append((number, tag, value.strip()))
        else:
            report.skip(TOO_MANY_ROWS, path=source.path, line=number, text=line)
        is_begun = True
    yield stanza


def _whole_lines(source: ByteSource, report: ReadReport) -> Iterator[tuple[int, str]]:
    """Lines without space around them; one that ends with a backslash is joined to the next one."""
    parts: list[str] = []
    first = n_chars = 0
    for number, line in read_lines(source):
        if isinstance(line, BadLine):
            report.skip(line.reason, path=source.path, line=number, text=line.text)
            continue
        line = line.strip()
        if line[-1:] == "\\" and (len(line) - len(line.rstrip("\\"))) % 2 and n_chars < limits.MAX_LINE_BYTES:
            first = first if parts else number
            parts.append(line[:-1])
            n_chars += len(line)
        elif parts:
            yield first, "".join([*parts, line])
            parts, n_chars = [], 0
        else:
            yield number, line
    if parts:
        yield first, "".join(parts)


def _is_obsolete(stanza: Stanza) -> bool:
    return any(tag == "is_obsolete" and first_id(value).lower() == "true" for _, tag, value in stanza.tags)


def plain_value(value: str) -> str:
    """A value without quotes: comment and modifiers removed, unescaped, on one line."""
    if " !" in value or "\t!" in value:
        value = _COMMENT.split(value, maxsplit=1)[0].rstrip()
    if value.endswith("}"):
        value = _cut_modifiers(value)
    return _unescape(value)


def first_id(value: str) -> str:
    """The id that a value begins with; a comment or modifiers may follow without a space."""
    match = _ID.match(value)
    return short_id(_unescape(match[0])) if match else ""


def quoted_value(value: str) -> tuple[str, str] | None:
    """The text of a quoted value and the rest after it; None if the quotes are wrong."""
    match = _QUOTED.match(value)
    if match is None or not _AFTER_QUOTED.match(value, match.end()):
        match = _LOOSE.match(value) or match
    return None if match is None else (_unescape(match[1]), value[match.end() :])


def _unescape(text: str) -> str:
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


_IN_OBO = "http://www.geneontology.org/formats/oboInOwl#"
_NAMESPACE, _ALT_ID = _IN_OBO + "hasOBONamespace", _IN_OBO + "hasAlternativeId"
_REPLACED_BY = ("http://purl.obolibrary.org/obo/IAO_0100001", "IAO:0100001")
_ALTERNATIVE = ("http://purl.obolibrary.org/obo/IAO_0000118", "IAO:0000118")
_SCOPE_OF = {f"has{scope.title()}Synonym": scope for scope in SCOPES}

# A graph may also have no document around it.
_NODES, _EDGES = ("graphs.item.nodes.item", "nodes.item"), ("graphs.item.edges.item", "edges.item")


class OboGraphReader(OntologyReader):
    """An ontology in one or several files of OBO Graph JSON; a `Reader`. A row of its report is a node."""

    _kinds = ("",)  # of nodes that are terms; early files do not tell

    def read_tree(self) -> ClassGraph[str]:
        tree = ClassGraph[str]()
        for source in self.sources:
            for _, path, _, found in read_values(source, *_NODES, *_EDGES):
                if path in _EDGES:
                    child, parent = _id(found, "sub"), _id(found, "obj")
                    if child and parent and _text(found, "pred") in ("is_a", "subClassOf"):
                        tree.add(child, parent)
                    continue
                if _text(found, "type") == "CLASS":
                    self._kinds = ("CLASS",)
                old = _id(found, "id")
                if old and (meta := _map(found, "meta")).get("deprecated") is True:
                    for new in _values(meta, "basicPropertyValues", *_REPLACED_BY):
                        tree.replace(old, short_id(new))
        return tree.finish()

    def read_terms(self, source: ByteSource, tree: ClassGraph[str], report: ReadReport) -> Iterator[Term | None]:
        n_before = report.rows
        for line, _, _, node in read_values(source, *_NODES):
            report.rows += 1
            report.place = source.path, line
            yield self._parse_node(node, tree, report)
        if report.rows == n_before:
            raise FormatError(source.path, None, "has no nodes. Is this OBO Graph JSON?")
        report.notes.append(f"{source.path}: OBO Graph JSON")

    def _parse_node(self, node: Any, tree: ClassGraph[str], report: ReadReport) -> Term | None:
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
                tree.parents(node_id),
                map(short_id, _values(meta, "basicPropertyValues", _ALT_ID)),
                _values(meta, "xrefs"),
            )
        return None

    def _read_synonyms(self, meta: dict[str, Any], report: ReadReport) -> Iterator[str]:
        for pred in dict.fromkeys(_text(one, "pred") for one in _list(meta, "synonyms")):
            scope = _SCOPE_OF.get(pred.rpartition("#")[2], "RELATED")
            found = list(_values(meta, "synonyms", pred))
            if scope in self.scopes:
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
    return value if isinstance(value, str) else ""


def _id(found: Any, key: str) -> str:
    """An id of an edge or node; "" for none, or one with NUL, whose node is skipped and counted."""
    text = _text(found, key)
    return "" if "\0" in text else short_id(text)


def _values(meta: dict[str, Any], key: str, *predicates: str) -> Iterator[str]:
    """Values of a list of a node, those with one of the predicates if there are any."""
    for one in _list(meta, key):
        if (not predicates or _text(one, "pred") in predicates) and (value := clean(_text(one, "val"))):
            yield value.replace("\0", "")
