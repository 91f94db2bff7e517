"""Read Wikidata's JSON dump, whole, in part or in several shards; `ingest.readers.rdf` reads the truthy triples.

``latest-all.json`` (see `ingest.readers.wikidata.json_dump`) and JSON Lines; plain or compressed.

Names: the canonical name is the label in the first requested language that has one, else the label in ``mul`` (names
that are the same in all languages), else the English one. An item without any of these is excluded. Aliases are its
other labels, and all aliases in the requested languages, in ``mul``, and in the language of the canonical name.

Types: `kb_types` are the classes of which the item is an instance (P31) or a subclass (P279), and all their ancestors,
nearest first, at most `MAX_KB_TYPES`. Statements of deprecated rank do not count; if there are preferred statements,
only these count. Coarse types come from the nearest classes that are in the type map.

Only items are entities, not properties and lexemes. `extra` has ``sitelinks``, the number of pages about the item
(JSON only), ``language`` if the canonical name is not in the first requested language, and, if requested,
``links_to``, the ids of the items that its statements name.

The input is read several times: once for the classes, once for a reader, which searches for "P279" and parses little
else; once for each call of `read` or `read_runs`, and once more for `read` without `scattered`. So a load reads it
three times: classes, scan, entities. Nothing is stored on disk. Memory: 8 bytes for each class edge (some 40 MB for all
of Wikidata, twice that while they are sorted), the ids of the classes that occur, and the longest line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import BinaryIO

from ingest.base.reader_base import ReaderBase
from ingest.base.type_map import TypeMap
from ingest.io.report import NUL_CHARACTER, ReadReport
from ingest.io.streams import STDIN, ByteSource, Source
from ingest.readers.wikidata.items import MULTILINGUAL, Item, languages_in_order
from ingest.readers.wikidata.json_dump import ItemDecoder, read_class_edges
from ingest.readers.wikidata_classes import ClassTypeFinder, ClassTypes, item_number
from pearl_qdrant.errors import FormatError, InputError
from pearl_qdrant.records import LINKS_FIELD, Entity

NO_LABEL = "no_label"
NO_SITELINK = "no_sitelink"
OTHER_CLASS = "other_class"
WIKIMEDIA_INTERNAL = "wikimedia_internal"

_HEAD_BYTES = 1 << 16
_IS_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:\[\s*)?\{\s*\"")
_ENTITY_TYPE = re.compile(rb'"type"\s*:\s*"(?:item|property|lexeme)"')
_ENTITY_ID = re.compile(rb'"id"\s*:\s*"[QPL][1-9]\d*"')
_LANGUAGE = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_BREAKS = re.compile(r"[\t\n\r]+")


@dataclass(frozen=True, slots=True)
class WikidataOptions:
    """What is read of Wikidata.

    Attributes:
        languages: Requested languages, best first; ``mul`` and English are always fallbacks.
        require_sitelink: Only items with a page in a Wikimedia project. Off by default, since it excludes
            most genes, articles and streets.
        exclude_internal: Exclude disambiguation pages, categories, templates, lists and similar pages.
        include_types: Ids of classes: only their instances and subclasses of any depth are read; empty: all.
        ancestors: Make the first pass, which finds the ancestors of classes. Without it, types, filters and coarse
            types use only the classes that the item itself names.
        links: Keep the items that statements name, for linking in documents.
    """

    languages: tuple[str, ...] = ("en",)
    require_sitelink: bool = False
    exclude_internal: bool = True
    include_types: tuple[str, ...] = ()
    ancestors: bool = True
    links: bool = False

    def __post_init__(self) -> None:
        if not self.languages or not all(map(_LANGUAGE.fullmatch, self.languages)):
            raise ValueError(f"not codes of languages: {self.languages!r}. Give codes like en, fi, zh-hans")
        if wrong := [name for name in self.include_types if not item_number(name)]:
            raise ValueError(f"not the id of a class: {', '.join(wrong)}. Give ids like Q5")


class WikidataReader(ReaderBase):
    """Wikidata in one or several files of JSON; a `Reader`."""

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        options: WikidataOptions | None = None,
        *,
        type_map: TypeMap | None = None,
        limit: int | None = None,
        stdin: BinaryIO | None = None,
    ) -> None:
        """Open the files; standard input and pipes are copied to a temporary file now.

        Args:
            paths: Files to read one after the other; ``-`` is standard input.
            options: What is read of them.
            type_map: From ids of classes to coarse types; the shipped one by default.
            limit: See `ReaderBase`. The pass for the classes reads the whole input in any case.
            stdin: What ``-`` means; the process's own by default.

        Raises:
            FormatError: If a file does not exist, is a directory, or may not be read.
        """
        self._options = options or WikidataOptions()
        super().__init__(type_map=type_map, limit=limit)
        self._languages = languages_in_order([language.lower() for language in self._options.languages])
        self._wanted = self._languages[: len(dict.fromkeys(map(str.lower, self._options.languages)))]
        self._finder: ClassTypeFinder | None = None
        self._sources = self.open_sources(paths, stdin)

    def read_classes(self) -> ClassTypeFinder:
        """The classes of all files, from a pass over them that is made once. Raises as `read_runs`."""
        if self._finder is None:
            edges = chain.from_iterable(map(read_class_edges, self._sources)) if self._options.ancestors else ()
            wanted = frozenset(map(item_number, self._options.include_types))
            self._finder = ClassTypeFinder(edges, type_map=self.type_map, wanted=wanted)
        return self._finder

    def read_rows(self, report: ReadReport) -> Iterator[Entity]:
        """One entity for each wanted item of all files. A single shard may have none."""
        rows_before = report.rows
        for source in self._sources:
            yield from self._read_entities(source, report)
        if report.rows == rows_before:
            path = self._sources[0].path
            raise FormatError(path, None, "has no entity. Is this a dump of Wikidata in JSON?")

    def _read_entities(self, source: ByteSource, report: ReadReport) -> Iterator[Entity]:
        """One entity for each wanted item of a file."""
        find = self.read_classes().find
        for item in ItemDecoder(self._languages, links=self._options.links).read_items(source, report):
            report.place = source.path, item.line
            types = find(item.classes, item.superclasses)
            reason = self._find_reason(item, types)
            if reason is not None:
                report.filter_out(reason)
                continue
            names, language = self._find_names(item)
            if any("\0" in name for name in names):
                report.skip(NUL_CHARACTER, path=source.path, line=item.line, text=f"{item.id} {names[0]}")
            elif names:
                yield self._make_entity(item, types, report.bound_names(item.id, names), language)
            else:
                report.filter_out(NO_LABEL)

    def _find_reason(self, item: Item, types: ClassTypes) -> str | None:
        """Why the options exclude an item, or None."""
        if self._options.exclude_internal and types.is_internal:
            return WIKIMEDIA_INTERNAL
        if not types.is_included:
            return OTHER_CLASS
        if self._options.require_sitelink and not item.sitelinks:
            return NO_SITELINK
        return None

    def _find_names(self, item: Item) -> tuple[list[str], str]:
        """All names, the canonical one first, and its language; empty if there is no label."""
        labels = {key: name for key in self._languages if (name := _clean(item.labels.get(key)))}
        if not labels:
            return [], ""
        language = next(iter(labels))
        wanted = dict.fromkeys((language, *self._wanted, MULTILINGUAL))
        names = dict.fromkeys(labels[key] for key in wanted if key in labels)
        for key in wanted:
            names.update(dict.fromkeys(filter(None, map(_clean, item.aliases.get(key, ())))))
        return list(names), language

    def _make_entity(self, item: Item, types: ClassTypes, names: tuple[str, ...], language: str) -> Entity:
        extra = {} if item.sitelinks is None else {"sitelinks": str(item.sitelinks)}
        if language != self._languages[0]:
            extra["language"] = language
        if item.links:
            extra[LINKS_FIELD] = "|".join(f"Q{number}" for number in item.links)
        descriptions = (_clean(item.descriptions.get(key)) for key in self._languages)
        description = next((text for text in descriptions if text and "\0" not in text), None)
        kb_types, coarse = types.kb_types, types.types
        popularity = None if item.sitelinks is None else float(item.sitelinks)
        return Entity(item.id, names[0], names[1:], kb_types, coarse, description, extra, popularity)


def is_wikidata(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins like a dump of Wikidata; False for standard input and unreadable files."""
    if os.fspath(path) == STDIN or not os.path.isfile(path):  # noqa: PTH113 - a path with NUL is no error here
        return False
    try:
        head = Source(path).head(_HEAD_BYTES)
    except InputError:
        return False
    return bool(_IS_JSON.match(head) and _ENTITY_TYPE.search(head) and _ENTITY_ID.search(head))


def _clean(name: str | None) -> str:
    """A name on one line, without space around it."""
    if not name:
        return ""
    return _BREAKS.sub(" ", name).strip() if "\n" in name or "\t" in name or "\r" in name else name.strip()
