"""Ontologies in OBO and OBO Graph JSON, as the statements that OWL would make of their terms.

`rdf_entities` makes the entities, so that OBO, OBO Graph JSON and OWL of one ontology give the same ones: ids as OBO
writes them, aliases by scope, and as native types the ids of the ancestors, nearest first, and then the namespace.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args

from ingest.base.format import PathLike, ReadOptions, Scope
from ingest.base.reader import Reader, clean
from ingest.base.type_map import TypeMap
from ingest.io import limits, reasons
from ingest.io.encoding import BadLine, read_lines
from ingest.io.report import ReadReport
from ingest.io.streams import ByteSource
from ingest.readers import rdf_entities as known
from ingest.readers.json_records import read_values
from ingest.readers.signs import PREFIXES
from pearl_qdrant.errors import FormatError
from pearl_qdrant.records import Entity

SCOPES: tuple[Scope, ...] = get_args(Scope)
T = TypeVar("T")

_PROFILE = known.profiles()["ontology"]
_DEFINITION, _ALTERNATIVE = known.expand(("obo:IAO_0000115", "obo:IAO_0000118"))
(_REPLACED_BY,) = known.expand(("obo:IAO_0100001",))
_SYNONYM_OF = {scope: name for name, scope in reversed([*_PROFILE.aliases.items()]) if scope}


class OntologyReader(Reader):
    """What the readers of OBO and of OBO Graph JSON share: the files, and how statements become entities."""

    def __init__(self, paths: Sequence[PathLike], options: ReadOptions, type_map: TypeMap | None = None) -> None:
        """Open the files; ``-`` is standard input. Raises FormatError as `open_sources`."""
        super().__init__(type_map=type_map, limit=options.limit)
        self._options = options
        self._known: known.Vocabulary | None = None
        self.sources = tuple(map(self.as_text, self.open_sources(paths)))

    @abstractmethod
    def read_facts(self, source: ByteSource, report: ReadReport) -> Iterator[tuple[str, list[known.Fact]]]:
        """The id of each term of a file and what is said of it, at the report's `place`; of an obsolete one no more
        than that, and what replaces it. Raises as `read`.
        """

    def read_tree(self, source: ByteSource, found: known.Vocabulary) -> None:
        """Take what is above the terms of a file, and what replaces them."""
        for term, facts in self.read_facts(source, ReadReport(max_errors=None)):
            _add_to_tree(found, term, facts)

    def read_rows(self, report: ReadReport) -> Iterator[Entity]:
        if self._known is None:
            found = known.Vocabulary()
            for source in self.sources:
                self.read_tree(source, found)
            found.profile, self._known = _PROFILE, found
            found.tree.finish()
        maker = known.EntityMaker(self._known, self._options, type_map=self.type_map, report=report)
        for source in self.sources:
            for term, facts in self.read_facts(source, report):
                if not any(fact[0] == known.LABEL and fact[1] for fact in facts):  # a synonym is not the name
                    facts = [fact for fact in facts if fact[0] not in _PROFILE.aliases]
                entity = maker.make(term, facts)
                if entity is not None:
                    yield entity


def _add_to_tree(found: known.Vocabulary, term: str, facts: Sequence[known.Fact]) -> None:
    for name, value, _, _ in facts:
        if name == known.SUBCLASS_OF and (above := known.type_name(value)):
            found.tree.add(term, above)
        elif name == _REPLACED_BY:
            found.tree.replace(term, known.entity_id(value))


_TERM = "Term"
_SYNONYMS: dict[str, str] = {"synonym": "", **{f"{scope.lower()}_synonym": scope for scope in SCOPES}}
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

    def read_facts(self, source: ByteSource, report: ReadReport) -> Iterator[tuple[str, list[known.Fact]]]:
        namespace, n_terms = "", 0
        for stanza in read_stanzas(source, _TREE_TAGS if self._known is None else _TAGS, report):
            if not stanza.kind:
                namespace = next((plain_value(v) for _, tag, v in stanza.tags if tag == "default-namespace"), "")
                continue
            report.rows += 1
            if stanza.kind != _TERM:
                report.filter_out(reasons.NOT_A_TERM)
                continue
            n_terms += 1
            report.place = source.path, stanza.line
            term = next((first_id(value) for _, tag, value in stanza.tags if tag == "id"), "")
            if term:
                yield term, self._facts_of(source.path, stanza, namespace, report)
            else:
                report.skip_here(reasons.NO_ID, f"[{stanza.kind}]")
        if not n_terms:
            raise FormatError(source.path, None, "has no [Term] stanza. Is this an OBO file?")
        report.notes.append(f"{source.path}: OBO")

    def _facts_of(self, path: str, stanza: Stanza, namespace: str, report: ReadReport) -> list[known.Fact]:
        is_gone = any(tag == "is_obsolete" and known.is_true(first_id(value)) for _, tag, value in stanza.tags)
        facts: list[known.Fact] = [(known.RDF_TYPE, known.CLASS, None, stanza.line)]
        for number, tag, value in stanza.tags:
            if tag in _SYNONYMS and not is_gone:
                if (parsed := quoted_value(value)) is None:
                    report.skip(reasons.BAD_SYNONYM, path=path, line=number, text=f"{tag}: {value}")
                    continue
                given = parsed[1].split(None, 1)[0] if parsed[1].strip() else ""
                scope = _SYNONYMS[tag] or (given if given in SCOPES else "RELATED")
                facts.append((_SYNONYM_OF[scope], parsed[0], "", number))
            elif tag in _PROPERTIES and is_gone == (tag in ("is_obsolete", "replaced_by")):
                name, read, language = _PROPERTIES[tag]
                facts.append((name, read(value), language, number))
        if namespace and not any(fact[0] == known.NAMESPACE for fact in facts):
            facts.append((known.NAMESPACE, namespace, "", stanza.line))
        return facts


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
            report.skip(reasons.MALFORMED_LINE, path=source.path, line=number, text=line)
        elif len(stanza.tags) < limits.MAX_ROWS:
            stanza.tags.append((number, tag, value.strip()))
        else:
            report.skip(reasons.TOO_MANY_ROWS, path=source.path, line=number, text=line)
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
    return known.short_id(_unescape(match[0])) if match else ""


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


_PROPERTIES: dict[str, tuple[str, Callable[[str], str], str | None]] = {
    "name": (known.LABEL, plain_value, ""),
    "namespace": (known.NAMESPACE, plain_value, ""),
    "def": (_DEFINITION, lambda value: (quoted_value(value) or ("", ""))[0], ""),
    "alt_id": (known.ALT_ID, first_id, ""),
    "xref": (known.XREF, lambda value: plain_value(value.partition(' "')[0]), ""),
    "is_a": (known.SUBCLASS_OF, first_id, None),
    "is_obsolete": (known.DEPRECATED, first_id, ""),
    "replaced_by": (_REPLACED_BY, first_id, None),
}
"""By tag, the property that OWL has for it, what reads its value, and the language of that, None for an id."""

_TREE_TAGS = frozenset(("id", "is_a", "is_obsolete", "replaced_by"))
_TAGS = frozenset(("id", "default-namespace", *_SYNONYMS, *_PROPERTIES))


# A graph may also have no document around it.
_NODES, _EDGES = ("graphs.item.nodes.item", "nodes.item"), ("graphs.item.edges.item", "edges.item")


class OboGraphReader(OntologyReader):
    """An ontology in one or several files of OBO Graph JSON; a `Reader`. A row of its report is a node."""

    _kinds = ("",)  # of nodes that are terms; early files do not tell

    def read_tree(self, source: ByteSource, found: known.Vocabulary) -> None:
        for line, path, _, one in read_values(source, *_NODES, *_EDGES):
            term = _id(one, "sub" if path in _EDGES else "id")
            if path in _EDGES:
                parent = _id(one, "obj")
                if term and parent and _text(one, "pred") in ("is_a", "subClassOf"):
                    found.tree.add(term, parent)
                continue
            if _text(one, "type") == "CLASS":
                self._kinds = ("CLASS",)
            if term and _get(one, "meta", dict).get("deprecated") is True:
                _add_to_tree(found, term, self._facts_of(term, one, line))

    def read_facts(self, source: ByteSource, report: ReadReport) -> Iterator[tuple[str, list[known.Fact]]]:
        n_before = report.rows
        for line, _, _, node in read_values(source, *_NODES):
            report.rows += 1
            report.place = source.path, line
            term = known.short_id(_text(node, "id"))
            if not term:
                report.skip_here(reasons.NO_ID, str(node)[:200])
            elif "\0" in term or "\0" in _text(node, "lbl"):
                report.skip_here(reasons.NUL_CHARACTER, term)
            elif _text(node, "type") not in self._kinds:
                report.filter_out(reasons.NOT_A_TERM)
            else:
                yield term, self._facts_of(term, node, line)
        if report.rows == n_before:
            raise FormatError(source.path, None, "has no nodes. Is this OBO Graph JSON?")
        report.notes.append(f"{source.path}: OBO Graph JSON")

    def _facts_of(self, term: str, node: dict[str, Any], line: int) -> list[known.Fact]:
        meta = _get(node, "meta", dict)
        values = [(_full(_text(one, "pred")), _value(one)) for one in _get(meta, "basicPropertyValues", list)]
        facts: list[tuple[str, str]] = [(known.RDF_TYPE, known.CLASS)]
        if meta.get("deprecated") is True:
            facts += [(known.DEPRECATED, "true"), *((name, value) for name, value in values if name == _REPLACED_BY)]
        else:
            facts += [(known.LABEL, clean(_text(node, "lbl"))), (_DEFINITION, _value(meta.get("definition")))]
            facts += [(known.SUBCLASS_OF, parent) for parent in self._known.tree.parents(term)] if self._known else []
            for one in _get(meta, "synonyms", list):
                name = known.expand((f"oboInOwl:{_text(one, 'pred').rpartition('#')[2]}",))[0]
                facts.append((name if name in _PROFILE.aliases else _SYNONYM_OF["RELATED"], _value(one)))
            facts += [one for one in values if one[0] in (_ALTERNATIVE, known.NAMESPACE, known.ALT_ID)]
            facts += [(known.XREF, _value(one)) for one in _get(meta, "xrefs", list)]
        is_link = (known.SUBCLASS_OF, _REPLACED_BY)
        return [(name, value, None if name in is_link else "", line) for name, value in facts if value]


def _get(found: Any, key: str, kind: type[T]) -> T:
    """The value of an object if it is of this kind; an empty one if not."""
    value = found.get(key) if isinstance(found, dict) else None
    return value if isinstance(value, kind) else kind()


def _text(found: Any, key: str) -> str:
    return _get(found, key, str)


def _id(found: Any, key: str) -> str:
    """An id of an edge or node; "" for none, or one with NUL, whose node is skipped and counted."""
    text = _text(found, key)
    return "" if "\0" in text else known.short_id(text)


def _value(found: Any) -> str:
    return clean(_text(found, "val")).replace("\0", "")


def _full(name: str) -> str:
    """The IRI of a property, which may be written as an id of OBO."""
    return PREFIXES["obo"] + name.replace(":", "_") if name.startswith("IAO:") else name
