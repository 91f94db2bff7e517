"""Make an `Entity` from the rows of one subject of YAGO."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from ingest.base.ancestors import nearest_types
from ingest.base.type_map import TypeMap
from ingest.io import limits
from ingest.io.report import NO_NAME, ReadReport
from ingest.readers.rdf.triples import RDF_TYPE, Fact
from ingest.readers.yago.names import ClassTree, local_name, name_text
from pearl_qdrant.records import Entity

LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
COMMENT = "http://www.w3.org/2000/01/rdf-schema#comment"
SUBCLASS_OF = "http://www.w3.org/2000/01/rdf-schema#subClassOf"
SAME_AS = "http://www.w3.org/2002/07/owl#sameAs"

# Releases differ in how they write the address of schema.org.
_ALTERNATES = ("http://schema.org/alternateName", "https://schema.org/alternateName")
_DESCRIPTIONS = (COMMENT, "http://schema.org/description", "https://schema.org/description")

_SLOT = {LABEL: 0, **dict.fromkeys(_ALTERNATES, 1), **dict.fromkeys(_DESCRIPTIONS, 2)}

WANTED = frozenset((*_SLOT, RDF_TYPE, SAME_AS))

GENERIC_INSTANCE = "generic_instance"
BLANK_NODE = "blank_node"

_GENERIC_SUFFIX = "_generic_instance"
_GENERIC_LABEL = "Generic instance"
_WIKIDATA = ("http://www.wikidata.org/entity", "https://www.wikidata.org/entity")
_MAX_CACHED = 1 << 16
_MAX_CACHED_LENGTH = 1 << 10  # characters of the classes of an entity
_NOTHING = (0, None)


class EntityMaker:
    """Makes entities from rows."""

    def __init__(self, classes: ClassTree, type_map: TypeMap, languages: Sequence[str], report: ReadReport) -> None:
        """Keep classes, type map and languages; excluded subjects are counted in the report."""
        self._classes = classes
        self._type_map = type_map
        self._rank: dict[str | None, int] = {}
        for language in languages:
            self._rank.setdefault(language.lower(), len(self._rank))
        self._report = report
        self._types: dict[tuple[str, ...], tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self._n_named_by_id = 0

    def make(self, subject: str, facts: Iterable[Fact], classes: Sequence[str], wikidata_number: int) -> Entity | None:
        """The entity of these rows, or None if it is excluded.

        Args:
            subject: Its IRI.
            facts: Its rows.
            classes: IRIs of further classes.
            wikidata_number: The number in the Wikidata id, such as 90 for Q90; 0 for none.
        """
        labels: list[tuple[int, str]] = []
        alternates: list[tuple[int, str]] = []
        descriptions: list[tuple[int, str]] = []
        own_classes: list[str] = []
        wikidata_id = f"Q{wikidata_number}" if wikidata_number else ""
        rank, n_ranks = self._rank, len(self._rank)
        lists = (labels, alternates, descriptions)
        for predicate, value, language, _ in facts:
            if language is not None:
                slot = _SLOT.get(predicate)
                if slot is not None and (text := value.strip()):
                    lists[slot].append((rank.get(language, n_ranks), text))
            elif predicate == RDF_TYPE:
                own_classes.append(value)
            elif predicate == SAME_AS and not wikidata_id:
                wikidata_id = find_wikidata_id(value)
        all_classes = (*own_classes, *classes)
        kb_types, types = self._types.get(all_classes) or self._find_types(all_classes)
        entity_id = local_name(subject)
        if subject.startswith("_:"):
            reason = BLANK_NODE
        elif entity_id.endswith(_GENERIC_SUFFIX) or (len(labels) == 1 and labels[0][1] == _GENERIC_LABEL):
            reason = GENERIC_INSTANCE
        else:
            names = (labels[0][1],) if len(labels) == 1 and not alternates else _order(labels, alternates)
            if not names and kb_types:
                names = (name_text(entity_id) or entity_id,)
                self._n_named_by_id += 1
            if names and entity_id:
                names = self._report.bound_names(entity_id, names)
                description = (descriptions[0] if len(descriptions) == 1 else min(descriptions, default=_NOTHING))[1]
                extra = {"wikidata_id": wikidata_id} if wikidata_id else {}
                return Entity(entity_id, names[0], names[1:], kb_types, types, description, extra)
            reason = NO_NAME
        self._report.filter_out(reason)
        return None

    def notes(self) -> list[str]:
        """Notes for the user."""
        if not self._n_named_by_id:
            return []
        return [f"{self._n_named_by_id:,} entities have no name in these languages; their ids are used as names"]

    def _find_types(self, classes: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Native types with their ancestors, and coarse types, of the IRIs of classes; cached."""
        if len(self._types) >= _MAX_CACHED:
            self._types.clear()
        own = list(dict.fromkeys(filter(None, map(local_name, classes))))
        kb_types, heights = self._classes.walk_up(own)
        if len(own) == 1:
            types = nearest_types(kb_types, heights, self._type_map.coarse_type)
        else:
            types = tuple(dict.fromkeys(chain.from_iterable(map(self._find_coarse_types, own[: limits.MAX_KB_TYPES]))))
        found = tuple(kb_types), types
        if sum(map(len, classes)) <= _MAX_CACHED_LENGTH:
            self._types[classes] = found
        return found

    def _find_coarse_types(self, name: str) -> tuple[str, ...]:
        return nearest_types(*self._classes.walk_up((name,)), self._type_map.coarse_type)


def find_wikidata_id(iri: str) -> str:
    """``Q90`` from the address of an item, or an empty string."""
    namespace, _, item = iri.rpartition("/")
    is_item = namespace in _WIKIDATA and item[:1] == "Q" and item.isascii() and item[1:].isdigit()
    return item if is_item else ""


def _order(labels: list[tuple[int, str]], alternates: list[tuple[int, str]]) -> tuple[str, ...]:
    """Names, each once: the canonical one, then labels and alternate names, by language."""
    labels.sort()
    first = labels or ([min(alternates)] if alternates else [])
    return tuple(dict.fromkeys([text for _, text in first + alternates]))
