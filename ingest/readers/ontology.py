"""What all forms of an ontology share: ids, the tree of its terms, and how a term becomes an entity.

OBO, OBO Graph JSON and OWL of one ontology give the same entities: ids as OBO writes them, aliases by scope, and as
native types the ids of the ancestors, nearest first, and then the namespace.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

from ingest.base.ancestors import ClassGraph
from ingest.base.format import Scope
from ingest.base.reader import Reader
from ingest.base.type_map import TypeMap
from ingest.io import limits
from ingest.io.report import ReadReport
from pearl_qdrant.records import LINKS_FIELD, Entity

if TYPE_CHECKING:
    from ingest.base.format import PathLike
    from ingest.formats import ReadOptions
    from ingest.io.source import ByteSource

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


class ClassTree:
    """Parents by class and ids that were replaced: 12 bytes an edge, and the ids of the parents.

    A class is known by a 64-bit hash of Python, with a new seed in each process, so that nobody can make two collide.

    Attributes:
        replaced: Obsolete ids by the id that replaces them.
    """

    def __init__(self) -> None:
        self.replaced: dict[str, list[str]] = {}
        self._children, self._parents = array("q"), array("i")
        self._numbers: dict[str, int] = {}
        self._graph = ClassGraph[str]((), (), ())

    def add(self, child: str, parent: str) -> None:
        """Add an edge."""
        self._children.append(hash(child))
        self._parents.append(self._numbers.setdefault(parent, len(self._numbers)))

    def replace(self, old: str, new: str) -> None:
        """Note that an obsolete id was replaced by another one."""
        self.replaced.setdefault(new, []).append(old)

    def finish(self) -> ClassTree:
        """Index the edges; no more can be added. A class keeps its parents in the order in which they were added."""
        self._graph = ClassGraph(self._children, self._parents, list(self._numbers))
        self._children, self._parents, self._numbers = array("q"), array("i"), {}
        return self

    def parents(self, child: str) -> tuple[str, ...]:
        """Direct parents."""
        return self._graph.parents(child)

    def walk_up(self, classes: Iterable[str]) -> tuple[list[str], list[int]]:
        """Classes and their ancestors, at most `MAX_KB_TYPES`; see `ingest.base.ancestors.walk_up`."""
        return self._graph.walk_up(classes, limits.MAX_KB_TYPES)


@dataclass(slots=True)
class Term:
    """A term of an ontology.

    Attributes:
        id: As OBO writes it.
        names: The canonical name first.
        namespace: A last type; may be empty.
        description: Its definition.
        parents: Ids of its direct parents.
        alt_ids: Other ids that it had.
        xrefs: Ids in other bases.
        extra: Further fields.
        languages: The languages of names, as in `Entity`.
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

    def make_entity(self, tree: ClassTree, type_map: TypeMap, report: ReadReport, *, links: bool) -> Entity:
        """The entity; names beyond the limit are counted. `links` keeps the ids of the direct parents."""
        names = report.bound_names(self.id, list(dict.fromkeys(self.names)))
        parents = [parent for parent in dict.fromkeys(self.parents) if parent != self.id]
        ancestors = [above for above in tree.walk_up(parents)[0] if above != self.id]
        kb_types = (*ancestors, self.namespace) if self.namespace else tuple(ancestors)
        extra = dict(self.extra)
        if alt_ids := dict.fromkeys([*self.alt_ids, *tree.replaced.get(self.id, ())]):
            extra["alt_ids"] = "|".join(alt_ids)
        if parents and links:
            extra[LINKS_FIELD] = "|".join(parents)
        if xrefs := "|".join(dict.fromkeys(self.xrefs)):
            extra["xrefs"] = xrefs
        types = type_map.map_types(kb_types)
        return Entity(self.id, names[0], names[1:], kb_types, types, self.description, extra, languages=self.languages)


def check_scopes(scopes: Sequence[str]) -> frozenset[str]:
    """The requested scopes of synonyms; EXACT by default. Raises ValueError if there is no such scope."""
    if unknown := sorted(set(scopes) - set(SCOPES)):
        raise ValueError(f"unknown scope of a synonym: {', '.join(unknown)}. There are: {', '.join(SCOPES)}")
    return frozenset(scopes or ("EXACT",))


class OntologyReader(Reader):
    """What the readers of OBO and of OBO Graph JSON share.

    Attributes:
        scopes: Of the synonyms that are names.
        sources: The files.
    """

    def __init__(self, paths: Sequence[PathLike], options: ReadOptions, type_map: TypeMap | None = None) -> None:
        """Open the files. Raises FormatError if a file does not exist, is a directory, or may not be read.

        Args:
            paths: Files to read one after the other; ``-`` is standard input.
            options: `limit`, `scopes` of synonyms that are aliases (EXACT by default), and `links`.
            type_map: From ids and namespaces to coarse types; the shipped one by default.
        """
        super().__init__(type_map=type_map, limit=options.limit)
        self.scopes, self._links = check_scopes(options.scopes), options.links
        self._tree: ClassTree | None = None
        self.sources = self.open_sources(paths)

    @abstractmethod
    def read_tree(self) -> ClassTree:
        """Ancestors and replaced ids of all files."""

    @abstractmethod
    def read_terms(self, source: ByteSource, tree: ClassTree, report: ReadReport) -> Iterator[Term | None]:
        """The terms of a file; None for one that is bad or excluded, which is counted. Raises as `read`."""

    def read_rows(self, report: ReadReport) -> Iterator[Entity]:
        """One entity for each good term."""
        tree = self._tree = self._tree or self.read_tree()
        for source in self.sources:
            for term in self.read_terms(source, tree, report):
                if term is not None:
                    yield term.make_entity(tree, self.type_map, report, links=self._links)
