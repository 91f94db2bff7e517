"""What connectors share: plain values to write beside a document, and values of columns that are linked once each."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pearl_qdrant.cells import is_null, join_list, text_of
from pearl_qdrant.errors import OptionError
from pearl_qdrant.linking.asking import asking_of
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.linking.tables import find_names

if TYPE_CHECKING:
    from pearl_qdrant.records import Annotation, Candidate, Link

log = logging.getLogger(__name__)

ENTITY_IDS = "entity_ids"
"""The key with the ids of a document's entities, each once, in the order of their first mention."""

ENTITY_NAMES = "entity_names"  # The key with their canonical names, in the same order
MENTIONS = "entity_mentions"  # The key with every mention as a dictionary, as of `mention_metadata`


def open_newest(
    linker: EntityLinker | None, collections: Sequence[str], *, store: str | None, read_only: bool = True
) -> EntityLinker:
    """The open linker of a connector, in the newest state of its collections; a new one where there is none yet."""
    if linker is None:
        return EntityLinker.open(*collections, store=store, read_only=read_only)
    if linker.is_outdated:
        linker.reload()
    return linker


def document_metadata(
    annotations: Iterable[Annotation], *, mentions: bool = False, existing: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What to store with a document: `ENTITY_IDS` and `ENTITY_NAMES` of its annotations; with `mentions` also
    `MENTIONS`. What another tagger wrote into `existing` stays, before the found ones.
    """
    linked = [one for one in annotations if one.link.entity_id is not None]
    before = existing or {}
    names = dict(zip(before.get(ENTITY_IDS, ()), chain(before.get(ENTITY_NAMES, ()), repeat("")), strict=False))
    for one in linked:
        names.setdefault(str(one.link.entity_id), str(one.link.canonical_name))
    found: dict[str, Any] = {ENTITY_IDS: list(names), ENTITY_NAMES: list(names.values())}
    if mentions:
        earlier = list(before.get(MENTIONS, ()))
        found[MENTIONS] = [*earlier, *(one for one in map(mention_metadata, linked) if one not in earlier)]
    return found


def mention_metadata(annotation: Annotation) -> dict[str, Any]:
    """A mention of a text as plain values."""
    place = {name: getattr(annotation, name) for name in ("text", "start", "end")}
    of_link = {name: getattr(annotation.link, name) for name in ("entity_id", "kb", "canonical_name", "probability")}
    return {**place, **of_link, "assertion": annotation.assertion}


def candidate_metadata(candidate: Candidate) -> dict[str, Any]:
    """A candidate as plain values; what the base does not say is left out."""
    found = {name: types_of(candidate) if name == "types" else getattr(candidate, name) for name in _OF_CANDIDATE}
    return {key: value for key, value in found.items() if value is not None}


_OF_CANDIDATE = (
    *("entity_id", "kb", "canonical_name", "name", "types", "probability"),
    *("score", "dense_score", "lexical_score", "description", "popularity"),
)


def candidate_text(candidate: Candidate) -> str:
    """A candidate as a text to read: its canonical name, and its description where the base has one."""
    return ": ".join(part for part in (candidate.canonical_name, candidate.description) if part)


def types_of(candidate: Candidate) -> list[str]:
    """Coarse and native types, each once."""
    return list(dict.fromkeys([*candidate.types, *candidate.kb_types]))


T = TypeVar("T")

Field = Literal["entity_id", "canonical_name", "probability", "nil_reason", "kb"]

DEFAULT_FIELDS: tuple[Field, ...] = ("entity_id", "canonical_name", "probability")
"""Columns that are added for a linked one."""

FIELDS: tuple[Field, ...] = (*DEFAULT_FIELDS, "nil_reason", "kb")  # Columns that can be added
MOST_KEPT = 200_000  # Values whose links are remembered between the batches of a table that is read piece by piece


@dataclass(slots=True)
class ColumnLinker:
    """Links values of a column, each distinct one once, with those of `properties` beside it; `known` has the links so
    far.
    """

    linker: EntityLinker
    options: LinkOptions
    properties: Sequence[str] = ()
    known: dict[tuple[str, ...], Link] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.options.judge is not None:
            self.options = self.options.updated(judge=asking_of(self.options.judge))  # one for all batches

    def links(self, values: Iterable[object], beside: Sequence[Iterable[object]] = ()) -> list[Link | None]:
        """The links of values, in order; None for null and blank ones. Numbers and dates are linked as their text.
        `beside` has a column for each of the properties.
        """
        cells = [[as_text(value) or "" for value in column] for column in beside]
        rows = [
            None if not text else (text, *others) for text, *others in zip(map(as_text, values), *cells, strict=True)
        ]
        missing = [row for row in dict.fromkeys(rows) if row is not None and row not in self.known]
        if len(self.known) + len(missing) > MOST_KEPT:
            self.known.clear()
            missing = [row for row in dict.fromkeys(rows) if row is not None]
        if missing:
            given = {name: [row[i] for row in missing] for i, name in enumerate(self.properties, 1)}
            found = self.linker.link_batch([row[0] for row in missing], self.options, properties=given)
            self.known.update(zip(missing, found, strict=True))
        return [None if row is None else self.known[row] for row in rows]

    def columns(
        self, values: Iterable[object], fields: Sequence[Field], beside: Sequence[Iterable[object]] = ()
    ) -> dict[Field, list[Any]]:
        """The fields of the links of values, None where there is no link."""
        links = self.links(values, beside)
        return {name: [None if link is None else value_of(link, name) for link in links] for name in fields}


def name_column(
    linker: EntityLinker, table: Mapping[str, Sequence[object]], options: LinkOptions
) -> tuple[str, LinkOptions]:
    """The column of a table with the names, and options that prefer the type of most; says so first. Raises as
    `linking.tables.find_names`.
    """
    found = find_names(linker.state, table)
    log.warning("%s", found)  # a guess, which people should see
    return found.name, found.preferring(options)


def as_text(value: object) -> str | None:
    """A cell as the string to link; None for null and blank ones."""
    return text if not is_null(value) and (text := text_of(value)).strip() else None


def value_of(link: Link, name: Field) -> Any:
    """A field of a link as a plain value; of a list that was split, those of its names, joined by bars, and the least
    probability.
    """
    if link.parts:
        values = [one for part in link.parts if (one := value_of(part, name)) is not None]
        joined = min if name == "probability" else lambda some: join_list(dict.fromkeys(some))
        return joined(values) if values else None
    value = getattr(link, name)
    return value.value if name == "nil_reason" and value is not None else value


def find_column(column: str, columns: Iterable[T], *, option: str = "column") -> T:
    """The label of a column, which pandas may have as a number. Raises OptionError if the table does not have it, with
    the columns that it has; or has several of the name.
    """
    there = list(columns)
    found = [one for one in there if str(one) == column]
    if not found:
        raise OptionError(option, f"The table has no column {column!r}; it has: {', '.join(map(str, there[:20]))}")
    if len(found) > 1:
        raise OptionError(option, f"The table has {len(found)} columns {column!r}: rename or drop all but one.")
    return found[0]


def check_fields(fields: Sequence[Field]) -> None:
    """Refuse an unknown field. Raises ValueError, which names the known ones."""
    unknown = [name for name in fields if name not in FIELDS]
    if unknown or isinstance(fields, str):
        raise ValueError(f"fields are some of {', '.join(FIELDS)}, not {unknown or fields!r}")


def new_names(column: str, fields: Sequence[Field], columns: Iterable[str], prefix: str | None) -> list[str]:
    """The names of the new columns. Raises OptionError if the table has one of them already."""
    check_fields(fields)
    names = [f"{f'{column}_' if prefix is None else prefix}{name}" for name in fields]
    if taken := sorted({str(one) for one in columns}.intersection(names)):
        raise OptionError("prefix", f"The table has the column {', '.join(taken)} already; choose another prefix.")
    return names
