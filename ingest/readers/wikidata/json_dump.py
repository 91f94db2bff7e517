"""Read items from the JSON dump of Wikidata: one entity a line, with or without an array around them.

::

    [
    {"type":"item","id":"Q42","labels":{"en":{"language":"en","value":"Douglas Adams"}, ...}, ...},
    {"type":"property","id":"P31", ...}
    ]

Only the needed parts of a line become objects: `msgspec` skips the rest (other languages, other statements,
qualifiers, references), which is most of it. A line that is not JSON, or JSON that is not an entity, is a bad row. An
empty map may be written as an empty list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from ingest.io import limits
from ingest.io.byte_lines import byte_lines, lines_with
from ingest.io.lines import BadLine
from ingest.io.report import INVALID_UTF8, NO_ID, ReadReport
from ingest.io.streams import ByteSource
from ingest.readers.wikidata.items import INSTANCE_OF, MAX_LINKS, NOT_AN_ITEM, SUBCLASS_OF, Item
from ingest.readers.wikidata_classes import item_number

INVALID_JSON = "invalid_json"
NOT_AN_ENTITY = "not_an_entity"
NESTED_TOO_DEEP = "nested_too_deep"

_EXCERPT_BYTES = 1 << 8


class _Term(msgspec.Struct):
    value: str


class _Value(msgspec.Struct):
    id: str | None = None


class _DataValue(msgspec.Struct):
    value: _Value | None = None


class _Snak(msgspec.Struct):
    snaktype: str
    datavalue: _DataValue | None = None


class _Statement(msgspec.Struct):
    mainsnak: _Snak
    rank: str = "normal"


class _Claims(msgspec.Struct):
    instance_of: list[_Statement] = msgspec.field(default_factory=list, name=INSTANCE_OF)
    subclass_of: list[_Statement] = msgspec.field(default_factory=list, name=SUBCLASS_OF)


class _AnyDataValue(msgspec.Struct):
    value: msgspec.Raw
    type: str | None = None


class _AnySnak(msgspec.Struct):
    snaktype: str
    datavalue: _AnyDataValue | None = None


class _AnyStatement(msgspec.Struct):
    """A statement of any property: only values that are entities are parsed."""

    mainsnak: _AnySnak
    rank: str = "normal"


_Ranked = TypeVar("_Ranked", _Statement, _AnyStatement)


class _Sitelink(msgspec.Struct):
    pass


class _ClassLine(msgspec.Struct):
    """The parts of a line that the class pass needs."""

    id: str
    claims: _Claims | tuple[()] = ()


class _AllClaims(msgspec.Struct):
    claims: dict[str, list[_AnyStatement]]


_VALUE_DECODER = msgspec.json.Decoder(_Value)
_CLASS_DECODER = msgspec.json.Decoder(_ClassLine)


class ItemDecoder:
    """Turns lines into items, with the text of some languages."""

    def __init__(self, languages: Sequence[str], *, links: bool = False) -> None:
        """Make a decoder that keeps only these languages; with `links`, statements of all properties are read."""
        self._links = links
        self._keys = [(f"language_{i}", language) for i, language in enumerate(languages)]
        names = dict(self._keys)
        terms = [(key, _Term | None, None) for key, _ in self._keys]
        lists = [(key, list[_Term] | None, None) for key, _ in self._keys]
        terms_type = msgspec.defstruct("_Terms", terms, rename=names)
        lists_type = msgspec.defstruct("_Lists", lists, rename=names)
        fields = [
            ("type", str | None, None),
            ("id", str | None, None),
            ("labels", terms_type | tuple[()] | None, None),
            ("descriptions", terms_type | tuple[()] | None, None),
            ("aliases", lists_type | tuple[()] | None, None),
            ("claims", _Claims | tuple[()] | None, None),
            ("sitelinks", dict[str, _Sitelink] | tuple[()] | None, None),
        ]
        self._decoder = msgspec.json.Decoder(msgspec.defstruct("_Line", fields))
        self._statements = msgspec.json.Decoder(_AllClaims)

    def read_items(self, source: ByteSource, report: ReadReport) -> Iterator[Item]:
        """Items of a dump; other rows are counted. Raises as `byte_lines`, and TooManyErrorsError."""
        is_open = False
        for number, line in byte_lines(source, max_bytes=limits.MAX_ITEM_BYTES):
            if isinstance(line, BadLine):
                report.rows += 1
                report.skip(line.reason, path=source.path, line=number, text=line.text)
                continue
            is_open = is_open and not line.rstrip().endswith(b"]")
            line = trim(line)
            if line in (b"", b"[", b"]"):
                is_open = is_open or line == b"["
                continue
            report.rows += 1
            item = self._decode(line, number)
            if isinstance(item, Item):
                yield item
            elif item == NOT_AN_ITEM:
                report.filter_out(NOT_AN_ITEM)
            else:
                text = line[:_EXCERPT_BYTES].decode("utf-8", "replace")
                report.skip(item, path=source.path, line=number, text=text)
        if is_open:
            report.notes.append(f"{source.path}: its array is not closed: it is a part of a dump, or was truncated")

    def _decode(self, line: bytes, number: int) -> Item | str:
        """The item of a line, or the reason why there is none."""
        try:
            row: Any = self._decoder.decode(line)
        except msgspec.ValidationError:
            return NOT_AN_ENTITY
        except msgspec.DecodeError:
            return INVALID_JSON
        except UnicodeDecodeError:
            return INVALID_UTF8
        except RecursionError:
            return NESTED_TOO_DEEP
        if row.type not in ("item", None) or (row.type is None and row.id is not None and not item_number(row.id)):
            return NOT_AN_ITEM
        if not item_number(row.id):
            return NO_ID
        claims = row.claims if isinstance(row.claims, _Claims) else None
        return Item(
            row.id,
            number,
            self._terms(row.labels),
            {language: [term.value for term in terms] for language, terms in self._fields(row.aliases)},
            self._terms(row.descriptions),
            _best(claims.instance_of) if claims else (),
            _best(claims.subclass_of) if claims else (),
            len(row.sitelinks) if row.sitelinks else 0,
            self._find_links(line) if self._links and claims else (),
        )

    def _find_links(self, line: bytes) -> tuple[int, ...]:
        """Item numbers in all statements of a line that was decoded before, at most `MAX_LINKS`."""
        try:
            claims = self._statements.decode(line).claims
        except msgspec.MsgspecError:
            return ()
        found: dict[int, None] = {}
        for statements in claims.values():
            for statement in _of_best_rank(statements):
                if len(found) < MAX_LINKS and (number := _entity_number(statement.mainsnak)):
                    found[number] = None
        return tuple(found)

    def _terms(self, terms: Any) -> dict[str, str]:
        return {language: term.value for language, term in self._fields(terms)}

    def _fields(self, terms: Any) -> Iterator[tuple[str, Any]]:
        """The languages that have a value, with it."""
        if terms:
            for key, language in self._keys:
                value = getattr(terms, key)
                if value:
                    yield language, value


def read_class_edges(source: ByteSource) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Numbers of the classes of a dump, each with its direct parents; bad lines are skipped and not counted.

    Only lines with "P279" in them are parsed. Raises as `byte_lines`.
    """
    for line in lines_with(source, b'"P279"', max_bytes=limits.MAX_ITEM_BYTES):
        try:
            row = _CLASS_DECODER.decode(trim(line))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        number = item_number(row.id)
        if number and isinstance(row.claims, _Claims):
            above = _best(row.claims.subclass_of)
            if above:
                yield number, above


def trim(line: bytes) -> bytes:
    """A line without the comma at its end, and without brackets of the array in the same line."""
    line = line.strip()
    if line.endswith(b","):
        line = line[:-1].rstrip()
    if line.startswith(b"[") and len(line) > 1:
        line = line[1:].lstrip()
    if line.endswith(b"}]"):
        line = line[:-1]
    return line


def _entity_number(snak: _AnySnak) -> int:
    """Number of the item that is a value; 0 for another value, or none."""
    value = snak.datavalue
    if snak.snaktype != "value" or value is None or value.type != "wikibase-entityid":
        return 0
    try:
        return item_number(_VALUE_DECODER.decode(value.value).id)
    except msgspec.MsgspecError:
        return 0


def _of_best_rank(statements: list[_Ranked]) -> list[_Ranked]:
    """The preferred statements if there is one, else the normal ones, as in the truthy dump."""
    return [s for s in statements if s.rank == "preferred"] or [s for s in statements if s.rank != "deprecated"]


def _best(statements: list[_Statement]) -> tuple[int, ...]:
    """Item numbers of the statements of the best rank.

    Unknown values (somevalue) and missing ones (novalue) count for the rank, but have no number.
    """
    numbers = []
    for statement in _of_best_rank(statements):
        value = statement.mainsnak.datavalue
        if statement.mainsnak.snaktype == "value" and value is not None and value.value is not None:
            numbers.append(item_number(value.value.id))
    return tuple(dict.fromkeys(filter(None, numbers)))
