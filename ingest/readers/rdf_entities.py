"""Entities from the statements about a subject: languages, names, types, and what is no entity."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from ingest.base.format import ReadOptions
from ingest.base.languages import language_code
from ingest.base.reader import HashSet, clean
from ingest.base.type_map import ClassGraph, TypeMap, nearest_types
from ingest.io import limits, reasons
from ingest.io.report import ReadReport
from ingest.readers.signs import PREFIXES, VOCABULARIES
from ingest.readers.wikidata import FALLBACK, MULTILINGUAL, ClassTypeFinder, ClassTypes, check_languages, item_number
from pearl_qdrant.records import LINKS_FIELD, Entity

if TYPE_CHECKING:
    from pyoxigraph import Quad


_CURIE = re.compile(
    r"https?://(?:purl\.obolibrary\.org/obo|www\.ebi\.ac\.uk/efo|www\.orpha\.net/ORDO)/([A-Za-z]\w*)_([0-9A-Za-z]+)"
)


def short_id(iri: str) -> str:
    """The id of a term as OBO writes it: ``UO:0000001`` for ``http://purl.obolibrary.org/obo/UO_0000001``."""
    match = _CURIE.fullmatch(iri) if "_" in iri else None
    return f"{match[1]}:{match[2]}" if match else iri


def expand(names: Iterable[str]) -> tuple[str, ...]:
    """Full IRIs of properties of an option. Raises ValueError if one has neither an IRI nor a well-known prefix."""
    found = []
    for name in names:
        bare = name.strip().removeprefix("<").removesuffix(">")
        prefix, colon, local = bare.partition(":")
        if not colon or (prefix not in PREFIXES and "/" not in local and prefix != "urn"):
            known = ", ".join(sorted(PREFIXES))
            raise ValueError(f"not a property: {name}. Give its IRI, or a name with one of the prefixes {known}")
        found.append(bare if local.startswith("//") or prefix not in PREFIXES else PREFIXES[prefix] + local)
    return tuple(found)


WIKIDATA, YAGO = PREFIXES["wd"], PREFIXES["yago"]
RDF_TYPE, LABEL, LITERAL_FORM, DEPRECATED, NOTATION = expand(
    "rdf:type rdfs:label skosxl:literalForm owl:deprecated skos:notation".split()
)
SUBCLASS_OF, CONCEPT, WIKIDATA_TYPE, WIKIDATA_PARENT = expand("rdfs:subClassOf skos:Concept wdt:P31 wdt:P279".split())
ALT_ID, XREF, NAMESPACE = expand(f"oboInOwl:{name}" for name in ("hasAlternativeId", "hasDbXref", "hasOBONamespace"))
BASE = "file:///"  # before a relative IRI; it is removed from ids again
_TERMS = {what: expand(names.split()) for what, names in VOCABULARIES["terms"].items()}
REPLACED_BY, SAME_AS = frozenset(_TERMS["replaced_by"]), frozenset(_TERMS["same_as"])
CLASS = _TERMS["classes"][0]
CLASSES, PROPERTIES = frozenset(_TERMS["classes"]), frozenset(_TERMS["properties"])
NO_ENTITIES = frozenset(_TERMS["no_entities"])
"""Classes of what organises a vocabulary and is not in it."""

_TYPE_SPACES = (*_TERMS["spaces_of_types"], *_TERMS["vocabularies"])
_EMPTY_TYPES = frozenset("Thing Resource NamedIndividual Concept Class Item".split())
_ID_SPACES = (WIKIDATA, YAGO, BASE)


@dataclass(frozen=True, slots=True)
class Profile:
    """How the entities of a vocabulary are read.

    Attributes:
        title: For notes and errors.
        labels: Properties of the canonical name, the preferred one first.
        aliases: Properties of other names, each with a scope of `SCOPES`, or "".
        descriptions: Properties of the description, the preferred one first.
        types: Properties whose values are types.
        parents: Properties whose values are above the entity, and types of it, too.
        children: Properties whose values are below it.
        is_ontology: Its entities are classes, and are made as those of OBO.
        is_named_by_id: An entity with a type and without a name in the requested languages has its id as its name;
            else any other language will do.
        is_sorted: Of several labels in a language the first one in the alphabet is the canonical name.
        other_languages: Such names are taken where there is no other.
        is_items: Its entities are the items of Wikidata.
    """

    title: str
    labels: tuple[str, ...]
    aliases: Mapping[str, str]
    descriptions: tuple[str, ...]
    types: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    is_ontology: bool = False
    is_named_by_id: bool = False
    is_sorted: bool = False
    other_languages: bool = True
    is_items: bool = False

    def extend(self, labels: Iterable[str], aliases: Iterable[str], types: Iterable[str]) -> Profile:
        """The same with further properties before its own."""
        return replace(
            self,
            labels=tuple(dict.fromkeys((*labels, *self.labels))),
            aliases={**dict.fromkeys(aliases, ""), **self.aliases},
            types=tuple(dict.fromkeys((*types, *self.types))),
        )

    def properties(self) -> frozenset[str]:
        found = {*self.labels, *self.aliases, *self.descriptions, *self.types, *self.parents, *self.children}
        return frozenset(found | {RDF_TYPE, DEPRECATED, ALT_ID, XREF, NAMESPACE, NOTATION} | SAME_AS | REPLACED_BY)


@lru_cache(maxsize=1)
def profiles() -> Mapping[str, Profile]:
    """The vocabularies of the table that ships, by name: wikidata, yago, ontology, skos, and names for all others."""
    expanded = {
        name: {
            key: dict(zip(expand(value), value.values(), strict=True)) if isinstance(value, dict) else
            expand(value) if isinstance(value, list) else value
            for key, value in one.items()
        }
        for name, one in VOCABULARIES["profiles"].items()
    }  # fmt: skip
    return msgspec.convert(expanded, type=dict[str, Profile])


def entity_id(iri: str) -> str:
    """The id of an entity: as OBO writes it, the local name in Wikidata and YAGO, else the IRI."""
    for space in _ID_SPACES:
        if iri.startswith(space) and len(iri) > len(space):
            return iri[len(space) :]
    return short_id(iri)


def type_name(iri: str) -> str:
    """The name of a class: its local name in well-known vocabularies, else its id; empty for one that says nothing."""
    for space in _TYPE_SPACES:
        if iri.startswith(space):
            local = iri[len(space) :]
            return "" if local in _EMPTY_TYPES else local
    return entity_id(iri)


_MARKED = re.compile(r"_u([0-9A-Fa-f]{4,8})_")
_NUMBERED = re.compile(r"_Q[0-9]+$")


def name_of_id(local: str) -> str:
    """An id of YAGO as text: ``_u0028_`` and ``%28`` become a bracket, ``_`` a space; a Wikidata id at the end goes."""
    from urllib.parse import unquote

    text = _MARKED.sub(_decode, unquote(local) if "%" in local else local)
    return (_NUMBERED.sub("", text) or text).replace("_", " ").strip()


def _decode(match: re.Match[str]) -> str:
    code = int(match[1], 16)
    return chr(code) if 0x20 <= code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF else match[0]


Fact = tuple[str, str, str | None, int]
"""A statement without its subject: predicate, value, language in lower case, line. The language is "" for a literal
without one, None for an IRI."""

_ALL_LANGUAGES = frozenset({"all", "*"})
_WIKIDATA_ITEM = re.compile(r"https?://www\.wikidata\.org/entity/(Q[1-9][0-9]*)")
_GENERIC, _GENERIC_LABEL = "_generic_instance", "Generic instance"
_MAX_CACHED = 1 << 14
_LABEL, _ALIAS, _ABOUT = range(3)
_MAX_SEEN = 1_000  # different properties that are remembered for a message, and subjects that show a vocabulary

_Text = tuple[int, int, str, str, bool, str]
"""A name or description: place of its language and property, and its text where that counts; then its language,
whether it is taken as an alias, and its text."""


class Vocabulary:
    """What a first pass finds: the properties that are looked at, statements by property of those that some profile
    knows and of others, whether some class of an ontology has a label, classes and those above them, classes of
    Wikidata and their types, text and language of labels that are nodes of their own (SKOS-XL) by IRI, and the ids of
    subjects whose statements are not adjacent.
    """

    def __init__(self, labels: Sequence[str] = ()) -> None:
        self.profile, self._skos = profiles()["names"], profiles()["skos"]
        self._labels = frozenset((*profiles()["ontology"].labels, *labels))
        self.counts, self.seen, self._n = Counter[str](), Counter[str](), Counter[str]()
        self.has_classes = False
        self.tree, self._concepts = ClassGraph[str](), ClassGraph[str]()
        self.items = ClassGraph[int](is_numbered=True)
        self.finder: ClassTypeFinder | None = None
        self.labels: dict[str, tuple[str, str]] = {}
        self.scattered, self._ids, self._keeps_ids = HashSet(), HashSet(), True

    def see(self, predicate: str, quad: Quad) -> None:
        """Take a statement that matters in no vocabulary."""
        if predicate in self.seen or len(self.seen) < _MAX_SEEN:
            self.seen[predicate] += 1
        if predicate == LITERAL_FORM:
            node, text = getattr(quad.subject, "value", ""), quad.object
            self.labels[node] = getattr(text, "value", ""), (getattr(text, "language", "") or "").lower()

    def add(self, subject: str, facts: Sequence[Fact]) -> None:
        """Take the adjacent statements of a subject that matter in some vocabulary."""
        identity, counts = entity_id(subject), self.counts
        if self._keeps_ids:
            self._ids.add(identity)
        classes = set()
        for predicate, value, language, _ in facts:
            counts[predicate] += 1
            if predicate == RDF_TYPE:
                classes.add(value)
            elif language is None:
                self._add_edge(subject, predicate, value)
        names = {fact[0] for fact in facts}
        if not names.isdisjoint(REPLACED_BY):
            is_gone = any(fact[0] == DEPRECATED and is_true(fact[1]) for fact in facts)
            for predicate, value, _, _ in facts:
                if predicate in REPLACED_BY and (is_gone or predicate.endswith("isReplacedBy")):
                    self.tree.replace(identity, entity_id(value))
        self._count(subject, classes, has_label=not names.isdisjoint(self._labels))

    def _add_edge(self, subject: str, predicate: str, value: str) -> None:
        """Take a statement whose value is no literal."""
        if predicate == WIKIDATA_PARENT:
            lower, upper = item_number(entity_id(subject)), item_number(entity_id(value))
            if lower and upper:
                self.items.add(lower, upper)
            return
        is_down, is_class = predicate in self._skos.children, predicate == SUBCLASS_OF
        if is_down or is_class or predicate in self._skos.parents:
            below, above = map(type_name, (value, subject) if is_down else (subject, value))
            if below and above:
                (self.tree if is_class else self._concepts).add(below, above)

    def _count(self, subject: str, classes: set[str], *, has_label: bool) -> None:
        n = self._n
        n["subjects"] += 1
        n["items"] += subject.startswith(WIKIDATA)
        n["yago"] += subject.startswith(YAGO)
        if not CLASSES.isdisjoint(classes):
            n["classes"] += 1
            self.has_classes = self.has_classes or has_label
        elif CONCEPT in classes:
            n["concepts"] += 1
        elif not PROPERTIES.isdisjoint(classes):
            n["properties"] += 1
        elif any(not name.startswith(_TERMS["vocabularies"]) for name in classes):
            n["instances"] += 1
        if n["subjects"] == _MAX_SEEN and self._choose().is_items:
            self._keeps_ids, self._ids = False, HashSet()  # the largest base of all

    def _choose(self) -> Profile:
        n, counts, found = self._n, self.counts, profiles()
        items, skos = found["wikidata"], self._skos
        if counts.keys() & {*items.types, *items.parents} or n["items"] * 2 > n["subjects"]:
            return items
        if n["yago"] and n["yago"] * 4 >= n["subjects"]:
            return found["yago"]
        if n["classes"] and n["classes"] >= max(n["concepts"], n["instances"]):
            return found["ontology"]
        signs = {*skos.parents, *skos.children, *skos.labels} - {LABEL}
        n_skos = sum(counts[name] for name in signs)
        n_names = sum(counts[name] for name in found["names"].labels if name not in signs)
        if n_skos and (n["concepts"] >= n["instances"] if n["concepts"] else n_skos > n_names):
            return skos
        return found["ontology" if n["properties"] and not n["instances"] else "names"]

    def finish(self, added: Sequence[tuple[str, ...]], *, is_named_by_id: bool) -> None:
        """Choose the vocabulary, with further properties of labels, aliases and types, and index what was taken."""
        chosen = self._choose()
        is_named_by_id = chosen.is_named_by_id and is_named_by_id
        self.profile = replace(chosen.extend(*added), is_named_by_id=is_named_by_id)
        if chosen is self._skos:
            self._concepts.replaced = self.tree.replaced
            self.tree = self._concepts
        self.tree.finish()
        if not chosen.is_items:
            self.scattered = HashSet(self._ids.repeated())
        self._concepts, self._ids = ClassGraph(), HashSet()


def is_true(value: str) -> bool:
    """Whether a literal is the truth value true."""
    return value.strip().lower() in ("true", "1")


class EntityMaker:
    """Makes entities from statements. Those that exclude a subject are counted in the report."""

    def __init__(self, vocabulary: Vocabulary, options: ReadOptions, *, type_map: TypeMap, report: ReadReport) -> None:
        self.profile = profile = vocabulary.profile
        self._known, self._report, self._type_map = vocabulary, report, type_map
        self._scopes, self._links, self._classes = options.scopes or ("EXACT",), options.links, options.classes
        languages = check_languages(options.languages)
        self._takes_all = not _ALL_LANGUAGES.isdisjoint(languages)
        self._languages = [language for language in languages if language not in _ALL_LANGUAGES] or ["en"]
        self._rank = lru_cache(maxsize=_MAX_CACHED)(self._find_rank)
        self._known_types = lru_cache(maxsize=_MAX_CACHED)(self._find_types)
        self._slots = {name: (_ABOUT, place) for place, name in enumerate(profile.descriptions)}
        self._slots |= dict.fromkeys(profile.aliases, (_ALIAS, 0))
        self._slots |= {name: (_LABEL, place) for place, name in enumerate(profile.labels)}
        if profile.is_ontology and profile.descriptions[0] in vocabulary.counts:
            self._slots.pop(profile.descriptions[-1])  # comments are notes there, beside definitions
        self._type_properties = {RDF_TYPE, *profile.types}
        self._n_by_id = self._n_foreign = 0

    def make(self, identity: str, facts: Sequence[Fact]) -> Entity | None:
        """The entity of a subject with this id, or None if it is excluded."""
        reason = self._find_reason(identity, facts)
        if reason is None:
            names, languages, description = self._find_names(identity, facts)
            if names:
                return self._make_entity(identity, facts, names, languages, description)
            reason = reasons.NO_LABEL if self.profile.is_items else reasons.NO_NAME
            if not any(fact[0] in self._slots or fact[0] in self._type_properties for fact in facts):
                return None  # something only says what is above it
        self._report.filter_out(reason)
        return None

    def notes(self) -> Iterator[str]:
        if self._n_by_id:
            yield f"{self._n_by_id:,} entities have no name in these languages; their ids are used as names"
        if self._n_foreign:
            yield f"{self._n_foreign:,} entities have no name in these languages; they keep one in another language"

    def _find_reason(self, identity: str, facts: Sequence[Fact]) -> str | None:
        """Why a subject is no entity, or None."""
        if self.profile.is_items:
            return self._find_classes(facts).reason if item_number(identity) else reasons.NOT_AN_ITEM
        if any(fact[0] == DEPRECATED and is_true(fact[1]) for fact in facts):
            return reasons.OBSOLETE
        classes = {fact[1] for fact in facts if fact[0] == RDF_TYPE}
        if not NO_ENTITIES.isdisjoint(classes):
            return reasons.NOT_A_TERM
        is_class = not CLASSES.isdisjoint(classes)
        if self.profile.is_ontology:
            return reasons.NOT_A_TERM if self._known.has_classes and not is_class else None
        if identity.endswith(_GENERIC) or any(fact[1] == _GENERIC_LABEL for fact in facts):
            return reasons.GENERIC_INSTANCE
        is_structure = is_class or not PROPERTIES.isdisjoint(classes)
        return reasons.NOT_A_TERM if is_structure and CONCEPT not in classes else None

    def _find_names(self, identity: str, facts: Sequence[Fact]) -> tuple[list[str], dict[str, str], str | None]:
        """All names, the canonical one first, their languages, and the description; no names if there is none."""
        labels, aliases, abouts = self._find_texts(facts)
        chosen = next((some[0] for some in (labels, aliases) if some and some[0][4]), None)
        if chosen is None or self.profile.is_items:
            chosen = next(iter(labels if self.profile.is_items else (*labels, *aliases)), None)
        if chosen and self.profile.is_sorted and not labels:
            chosen = min(aliases, key=lambda one: (one[0], one[5]))
        language = chosen[3] if chosen else ""
        taken = [one for one in (*labels, *aliases) if one[4] or one[3] == language]
        n_other = len(labels) + len(aliases) - len(taken)
        if n_other:
            self._report.filter_out(reasons.OTHER_LANGUAGE, n_other)
        about = next((one[5] for one in abouts if one[4] or one[3] == language), None)
        if chosen is not None:
            self._n_foreign += not chosen[4] and self.profile.other_languages
            return list(dict.fromkeys(one[5] for one in (chosen, *taken))), _languages_of(taken), about
        if not self.profile.is_named_by_id or not any(fact[0] in self.profile.types for fact in facts):
            return [], {}, about
        self._n_by_id += 1
        return [name_of_id(identity) or identity], {}, about

    def _find_texts(self, facts: Sequence[Fact]) -> tuple[list[_Text], list[_Text], list[_Text]]:
        """Labels, other names and descriptions, each in order; what is in languages that are not taken is counted."""
        texts: tuple[list[_Text], list[_Text], list[_Text]] = [], [], []
        scopes, is_by_text = self.profile.aliases, self.profile.is_sorted
        for predicate, value, language, _ in facts:
            slot = self._slots.get(predicate)
            if slot is None:
                continue
            if language is None:
                value, language = self._known.labels.get(value, ("", ""))
            scope = scopes[predicate] if slot[0] == _ALIAS else ""
            if scope and scope not in self._scopes:
                self._report.filter_out(f"{scope.lower()}_synonym")
            elif text := clean(value):
                rank = self._rank(language)
                if rank is not None:
                    sorted_by = text if is_by_text and slot[0] == _LABEL else ""
                    texts[slot[0]].append((rank[0], slot[1], sorted_by, language, rank[1], text))
                elif slot[0] != _ABOUT:
                    self._report.filter_out(reasons.OTHER_LANGUAGE)
        for found in texts:
            if len(found) > 1:
                found.sort(key=lambda one: one[:3])
        return texts

    def _find_rank(self, tag: str) -> tuple[int, bool] | None:
        """The place of a language, lower is better, and whether its names are aliases; None if it is not taken."""
        n, is_items, tag = 2 * len(self._languages), self.profile.is_items, language_code(tag)
        for place, language in enumerate(self._languages):
            if tag == language:
                return 2 * place, True
            if tag.startswith(language + "-") and not is_items:
                return 2 * place + 1, True
        if is_items and tag in (MULTILINGUAL, FALLBACK):
            return n + (tag == FALLBACK), tag == MULTILINGUAL or self._takes_all
        if not tag and not is_items:
            return n, True
        if self._takes_all and tag:
            return n + 2, True
        return (n + 2, False) if self.profile.other_languages else None

    def _make_entity(
        self,
        identity: str,
        facts: Sequence[Fact],
        names: Sequence[str],
        languages: Mapping[str, str],
        description: str | None,
    ) -> Entity | None:
        """The entity, or None if it is of another class than the requested ones."""
        profile, tree = self.profile, self._known.tree
        if profile.is_items:
            found, make = self._find_classes(facts), self._report.make_entity
            return make(identity, names, found.kb_types, found.types, description, languages=languages)
        extra = _find_extra(facts)
        above = [
            type_name(fact[1])
            for name in profile.parents
            for fact in facts
            if fact[0] == name and fact[2] is None
        ]  # fmt: skip
        parents = [parent for parent in dict.fromkeys(above) if parent and parent != identity]
        if profile.children:  # what is above may say so itself
            parents += [parent for parent in tree.parents(identity) if parent not in above and parent != identity]
        alt_ids = list(tree.replaced.get(identity, ()))
        if profile.is_ontology:
            values = {
                name: [fact[1] for fact in facts if fact[0] == name and fact[1]] for name in (NAMESPACE, ALT_ID, XREF)
            }
            kb_types = tuple(name for name in tree.walk_up(parents, limits.MAX_KB_TYPES)[0] if name != identity)
            kb_types = (*kb_types, *values[NAMESPACE][:1])
            types = self._type_map.map_types(kb_types)
            alt_ids = [*map(short_id, values[ALT_ID]), *alt_ids]
        else:
            own = [fact[1] if fact[2] is not None else type_name(fact[1]) for fact in facts if fact[0] in profile.types]
            kb_types, types = self._known_types(tuple(dict.fromkeys(filter(None, (*own, *parents)))))
            kb_types = tuple(name for name in kb_types if name != identity) if identity in kb_types else kb_types
        if alt_ids:
            extra["alt_ids"] = "|".join(dict.fromkeys(alt_ids))
        if parents and self._links:
            extra[LINKS_FIELD] = "|".join(parents)
        if profile.is_ontology and values[XREF]:
            extra["xrefs"] = "|".join(dict.fromkeys(map(short_id, values[XREF])))
        entity = self._report.make_entity(identity, names, kb_types, types, description, extra, languages=languages)
        if self._classes and set(self._classes).isdisjoint((identity, *entity.kb_types)):
            self._report.filter_out(reasons.OTHER_CLASS)
            return None
        return entity

    def _find_classes(self, facts: Sequence[Fact]) -> ClassTypes:
        """What the classes tell that an item of Wikidata is an instance of, or a subclass of; as from its JSON dump."""
        numbers = [
            dict.fromkeys(item_number(entity_id(fact[1])) for fact in facts if fact[0] == name and fact[2] is None)
            for name in (WIKIDATA_TYPE, WIKIDATA_PARENT)
        ]
        instance_of, subclass_of = (tuple(filter(None, found)) for found in numbers)
        assert self._known.finder is not None, "the first pass makes it for Wikidata"
        return self._known.finder.find(instance_of, subclass_of)

    def _find_types(self, own: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Native types with those above them, and coarse types."""
        walk, most = self._known.tree.walk_up, limits.MAX_KB_TYPES
        each = (nearest_types(*walk((name,), most), self._coarse_type) for name in own[:most])
        return tuple(walk(own, most)[0]), tuple(dict.fromkeys(chain.from_iterable(each)))

    def _coarse_type(self, native: str) -> str | None:
        """The coarse type of a native type; one with an IRI is looked up by the last part of it, too."""
        found = self._type_map.coarse_type(native)
        return found or (self._type_map.coarse_type(re.split("[/#]", native)[-1]) if "://" in native else None)


def _languages_of(texts: Iterable[_Text]) -> dict[str, str]:
    """The language of each text that has one: the first requested one, or the first stated one."""
    languages: dict[str, str] = {}
    for one in sorted(texts, key=lambda one: one[0]):
        if one[3]:
            languages.setdefault(one[5], one[3])
    return languages


def _find_extra(facts: Sequence[Fact]) -> dict[str, str]:
    extra: dict[str, str] = {}
    for predicate, value, _, _ in facts:
        if predicate in SAME_AS and (match := _WIKIDATA_ITEM.fullmatch(value)):
            extra.setdefault("wikidata_id", match[1])
        elif predicate == NOTATION and (text := clean(value)):
            extra["notation"] = f"{extra['notation']}|{text}" if "notation" in extra else text
    return extra
