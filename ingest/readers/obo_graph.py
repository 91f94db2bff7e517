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

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ingest.io.report import NO_ID, NO_NAME, NUL_CHARACTER, ReadReport
from ingest.readers.json_records import read_values
from ingest.readers.ontology import NOT_A_TERM, OBSOLETE, SCOPES, ClassTree, OntologyReader, Term, clean, short_id
from pearl_qdrant.errors import FormatError

if TYPE_CHECKING:
    from ingest.io.source import ByteSource

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

    def read_tree(self) -> ClassTree:
        """Ancestors and replaced ids of all files."""
        tree = ClassTree()
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

    def read_terms(self, source: ByteSource, tree: ClassTree, report: ReadReport) -> Iterator[Term | None]:
        """The terms of a file."""
        n_before = report.rows
        for line, _, _, node in read_values(source, *_NODES):
            report.rows += 1
            report.place = source.path, line
            yield self._parse_node(node, tree, report)
        if report.rows == n_before:
            raise FormatError(source.path, None, "has no nodes. Is this OBO Graph JSON?")
        report.notes.append(f"{source.path}: OBO Graph JSON")

    def _parse_node(self, node: Any, tree: ClassTree, report: ReadReport) -> Term | None:
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
        """Synonyms with the requested scopes; the others are counted."""
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
