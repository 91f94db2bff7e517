"""Read items of Wikidata's JSON: dumps of any year, answers of the API, single items, and simplified items.

::

    [
    {"type":"item","id":"Q42","labels":{"en":{"language":"en","value":"Douglas Adams"}, ...}, ...},
    {"type":"property","id":"P31", ...}
    ]

A dump has one entity a line, with or without an array around them. Items that are printed over several lines,
``{"entities": {...}}`` as the API answers, and labels that are plain strings (as wikibase-sdk simplifies them) are read
too. Only items are entities, not properties and lexemes; docs/bases/wikidata.md says how their names are chosen.

Types: `kb_types` are the classes of which the item is an instance (P31) or a subclass (P279), and all their ancestors,
nearest first, at most `limits.MAX_ANCESTORS`. Statements of deprecated rank do not count; if there are preferred
statements, only these count. Coarse types come from the nearest classes that are in the type map.

The input is read once for the classes, searching for "P279" and parsing little else, and once for each pass. Memory: 8
bytes for each class edge (some 40 MB for all of Wikidata), the ids of the classes that occur, and the longest line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

from ingest.base.format import PathLike, ReadOptions
from ingest.base.languages import language_code
from ingest.base.reader import Reader, clean
from ingest.base.type_map import ClassGraph, TypeMap, nearest_types
from ingest.io import limits, reasons
from ingest.io.encoding import BOM, HEAD_BYTES, BadLine, check_is_text
from ingest.io.report import ReadReport
from ingest.io.streams import ByteSource
from ingest.readers.json_records import is_lines, read_records
from ingest.readers.signs import VOCABULARIES
from pearl_qdrant.errors import FormatError, OptionError
from pearl_qdrant.records import LINKS_FIELD, Entity

MAX_LINKS = 64  # links kept of an item, those of its first properties
_EXCERPT = 1 << 8
_LANGUAGE = re.compile(r"[A-Za-z][A-Za-z0-9-]*|\*")


class WikidataReader(Reader):
    """Wikidata in one or several files of JSON; a `Reader`."""

    def __init__(self, paths: Sequence[PathLike], options: ReadOptions, type_map: TypeMap | None = None) -> None:
        """Open the files; standard input and pipes are copied to a temporary file now. Raises FormatError if a file
        does not exist, is a directory, or may not be read; ValueError or OptionError if an option makes no sense.
        """
        super().__init__(type_map=type_map, limit=options.limit)
        self._options = options
        self._classes = class_numbers(options.classes)
        self._wanted = check_languages(options.languages)
        self._languages = tuple(dict.fromkeys((*self._wanted, MULTILINGUAL, FALLBACK)))
        self._finder: ClassTypeFinder | None = None
        self._sources = tuple(map(self.as_text, self.open_sources(paths)))

    def read_classes(self) -> ClassTypeFinder:
        """The classes of all files, from a pass over them that is made once. Raises as `read_runs`."""
        if self._finder is None:
            graph = ClassGraph[int](is_numbered=True)
            for source in self._sources:
                _read_class_edges(source, graph)
            self._finder = ClassTypeFinder(graph.finish(), type_map=self.type_map, wanted=self._classes)
        return self._finder

    def read_rows(self, report: ReadReport) -> Iterator[Entity]:
        """One entity for each wanted item of all files. A single file may have none."""
        rows_before, finder = report.rows, self.read_classes()
        for source in self._sources:
            for number, record in _records(source):
                report.rows += 1
                report.place = source.path, number
                if isinstance(record, BadLine):
                    report.skip_here(record.reason, record.text)
                elif (entity := self._make_entity(record, finder, report)) is not None:
                    yield entity
        if report.rows == rows_before:
            raise FormatError(self._sources[0].path, None, "has no entity. Is this JSON of Wikidata?")

    def _make_entity(self, row: dict[str, Any], finder: ClassTypeFinder, report: ReadReport) -> Entity | None:
        """The entity of an object of any of the forms; None if there is none, which is counted."""
        kind, id_ = row.get("type"), row.get("id")
        number = item_number(id_)
        if kind not in ("item", None) or (kind is None and isinstance(id_, str) and not number):
            report.filter_out(reasons.NOT_AN_ITEM)
            return None
        try:
            labels, descriptions = (
                {key: _text(terms[key]) for key in self._languages if key in terms}
                for terms in (_map(row.get("labels")), _map(row.get("descriptions")))
            )
            named = _map(row.get("aliases"))
            aliases = {key: _texts(named[key]) for key in self._languages if key in named}
            claims = _map(row.get("claims"))
            classes, above = (_numbers(claims.get(key)) for key in (INSTANCE_OF, SUBCLASS_OF))
            linked = chain.from_iterable(map(_numbers, claims.values())) if self._options.links else ()
            links = tuple(dict.fromkeys(linked))[:MAX_LINKS]
            n_pages = len(row.get("sitelinks") or ())
        except (TypeError, AttributeError, KeyError):
            number = 0
        if not number:
            report.skip_here(reasons.NOT_AN_ENTITY if item_number(id_) else reasons.NO_ID, str(row)[:_EXCERPT])
            return None
        types = finder.find(classes, above)
        language_of = self._find_names(labels, aliases)
        names = list(language_of)
        reason = types.reason
        if reason is None and self._options.require_sitelink and not n_pages:
            reason = reasons.NO_SITELINK
        if reason is None and not names:
            reason = reasons.NO_LABEL
        if reason is not None:
            report.filter_out(reason)
            return None
        if any("\0" in name for name in names):
            report.skip_here(reasons.NUL_CHARACTER, f"{id_} {names[0]}")
            return None
        extra = {"sitelinks": str(n_pages)}
        if links:
            extra[LINKS_FIELD] = "|".join(f"Q{one}" for one in links)
        texts = (clean(descriptions.get(key, "")) for key in self._languages)
        description = next((text for text in texts if text and "\0" not in text), None)
        return report.make_entity(
            str(id_), names, types.kb_types, types.types, description, extra, float(n_pages), language_of
        )

    def _find_names(self, labels: dict[str, str], aliases: dict[str, list[str]]) -> dict[str, str]:
        """All names with their languages, the canonical one first; empty if there is no label."""
        cleaned = {key: name for key in self._languages if (name := clean(labels.get(key, "")))}
        if not cleaned:
            return {}
        language = next(iter(cleaned))
        wanted = dict.fromkeys((language, *self._wanted, MULTILINGUAL))
        found = [(cleaned[key], key) for key in wanted if key in cleaned]
        found += [(clean(name), key) for key in wanted for name in aliases.get(key, ())]
        names: dict[str, str] = {}
        for name, key in found:
            if name:
                names[name] = min(names.get(name, key), key, key=self._languages.index)
        return names


# The forms of JSON


def _records(source: ByteSource, *, wanted: bytes = b"") -> Iterator[tuple[int, dict[str, Any] | BadLine]]:
    """Objects of a file with their lines, or their numbers in a document; see `read_records` for `wanted`."""
    head = source.head(HEAD_BYTES)
    check_is_text(source.path, head)
    text = head.removeprefix(BOM).lstrip()
    prefix = None
    if re.match(rb'\{\s*"(?:entities|success|searchinfo)"', text):
        prefix = "entities.*" if re.search(rb'"entities"\s*:\s*\{', text) else "entities.item"
    elif not is_lines(head):
        prefix = "item" if text.startswith(b"[") else ""
    return read_records(source, prefix=prefix, wanted=wanted)


def _map(value: Any) -> dict[str, Any]:
    """An object; an empty one may be written as an empty list."""
    return value if isinstance(value, dict) else {} if not value else value["\0"]


def _text(term: Any) -> str:
    text = term["value"] if isinstance(term, dict) else term
    if not isinstance(text, str):
        raise TypeError
    return text


def _texts(terms: Any) -> list[str]:
    return [_text(one) for one in (terms if isinstance(terms, list) else [terms])]


def _numbers(statements: Any) -> tuple[int, ...]:
    """Item numbers of the statements of the best rank, in any of the forms."""
    found = [one for one in statements or () if not isinstance(one, dict) or one.get("rank") != "deprecated"]
    best = [one for one in found if isinstance(one, dict) and one.get("rank") == "preferred"] or found
    return tuple(dict.fromkeys(filter(None, map(_number_of, best))))


def _number_of(statement: Any) -> int:
    """The item that a statement names; 0 if it names none. Simplified ones are ids, alone or as a value."""
    if not isinstance(statement, dict):
        return item_number(statement)
    snak = statement.get("mainsnak")
    if snak is None:
        return item_number(statement.get("value"))
    value = snak["datavalue"]["value"] if snak.get("snaktype") == "value" and snak.get("datavalue") else None
    if not isinstance(value, dict):
        return 0
    is_old = value.get("id") is None and value.get("entity-type") == "item"
    return item_number(f"Q{value.get('numeric-id')}" if is_old else value.get("id"))


def _read_class_edges(source: ByteSource, graph: ClassGraph[int]) -> None:
    """Add the classes of a file, by their numbers, with direct parents; bad lines are skipped and not counted."""
    record: Any
    for _, record in _records(source, wanted=f'"{SUBCLASS_OF}"'.encode()):
        try:
            number, above = item_number(record.get("id")), _numbers(_map(record.get("claims")).get(SUBCLASS_OF))
        except (TypeError, AttributeError, KeyError):
            continue
        for parent in above if number else ():
            graph.add(number, parent)


INSTANCE_OF, SUBCLASS_OF = "P31", "P279"

MULTILINGUAL, FALLBACK = "mul", "en"
"""The language code of names that are the same in all languages, and the last language that is tried."""

MAX_KB_TYPES = 64  # Native types kept of an entity. Farther ancestors are abstract ones that nearly every entity has.

INTERNAL_CLASSES = frozenset(int(key[1:]) for key in VOCABULARIES["internal_pages"])
"""Pages of the Wikimedia projects, which texts do not mention."""

_MAX_NUMBER = (1 << 31) - 1
_ITEM = re.compile(r"Q([1-9][0-9]{0,9})")
_CACHED = 16_384


@dataclass(frozen=True, slots=True)
class ClassTypes:
    """Ids of classes and of their ancestors, nearest first, at most `MAX_KB_TYPES`; coarse types; and why an instance
    of them is left out: it is an internal page of the Wikimedia projects, or of none of the requested classes.
    """

    kb_types: tuple[str, ...]
    types: tuple[str, ...]
    reason: str | None


class ClassTypeFinder:
    """Finds the `ClassTypes` of classes; the last ones are cached."""

    def __init__(self, graph: ClassGraph[int], *, type_map: TypeMap, wanted: frozenset[int]) -> None:
        """`wanted` are the numbers of the classes to read, all if empty."""
        self._graph, self._wanted = graph, wanted
        # Most items share their classes with many others.
        self.find = lru_cache(maxsize=_CACHED)(self._find)
        self._find_coarse = lru_cache(maxsize=_CACHED)(
            lambda number: nearest_types(*self._graph.walk_up((number,), limits.MAX_ANCESTORS), self._type_of)
        )
        self._name = lru_cache(maxsize=_CACHED)("Q{}".format)
        self._type_of = lru_cache(maxsize=_CACHED)(lambda number: type_map.coarse_type(f"Q{number}"))

    def _find(self, classes: tuple[int, ...], superclasses: tuple[int, ...]) -> ClassTypes:
        """The properties of an item that is an instance of some classes and a subclass of others; both may be empty."""
        own = tuple(dict.fromkeys((*classes, *superclasses)))
        found = self._graph.walk_up(own, limits.MAX_ANCESTORS)[0]
        of_instance = found if not superclasses else self._graph.walk_up(classes, limits.MAX_ANCESTORS)[0]
        reason = reasons.OTHER_CLASS if self._wanted and self._wanted.isdisjoint(found) else None
        if not INTERNAL_CLASSES.isdisjoint(of_instance):
            reason = reasons.WIKIMEDIA_INTERNAL
        kb_types = tuple(map(self._name, found[:MAX_KB_TYPES]))
        types = tuple(dict.fromkeys(chain.from_iterable(map(self._find_coarse, own[:MAX_KB_TYPES]))))
        return ClassTypes(kb_types, types, reason)


def check_languages(languages: Sequence[str]) -> tuple[str, ...]:
    """The requested languages in lower case, by default English. Raises ValueError if one is no code of a language."""
    found = tuple(dict.fromkeys(map(language_code, languages or ("en",))))
    if not all(map(_LANGUAGE.fullmatch, found)):
        raise ValueError(f"not codes of languages: {found!r}. Give codes like en, fi, zh-hans")
    return found


def class_numbers(names: Iterable[str]) -> frozenset[int]:
    """Numbers of classes that an option names. Raises OptionError if one is no id of Wikidata."""
    if wrong := [name for name in names if not item_number(name)]:
        raise OptionError("classes", f"not the id of a class: {', '.join(wrong)}. Give ids like Q5")
    return frozenset(map(item_number, names))


def item_number(text: object) -> int:
    """The number in the id of an item ("Q42" is 42), or 0 if it is not one."""
    match = _ITEM.fullmatch(text) if isinstance(text, str) else None
    number = int(match[1]) if match else 0
    return number if number <= _MAX_NUMBER else 0
