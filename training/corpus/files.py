r"""Read the files of a corpus, in the formats of PEARL's published ones (Zenodo record 10676475), which load unchanged.

    freq_phrase.txt         CLASS__phrase <TAB> frequency           CLASS: NP, VP, PP, ADVP or ADJP
    phrase_with_etype.txt   phrase <TAB> entity type
    token_aug.jsonl         {"phrase": ..., "synonyms": [...]}
    phrase_aug.jsonl        {"phrase": ..., "aug": [...]}
    hard_negative.txt       phrase <TAB> negative <TAB> negative ...
    entities.jsonl          {"entity": "kb:id", "names": [...], "types": [...]}     ours: the entities of bases

A phrase may contain `__`: a row is split once. Readers stream, and accept any compression that `ingest` knows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ingest.io.lines import BadLine, read_lines
from ingest.io.report import NO_NAME, TOO_FEW_COLUMNS, ReadReport
from ingest.io.streams import Source
from pearl_qdrant.phrase_types import ENTITY_TYPES, LEXICAL_CLASSES

FREQUENCIES = "freq_phrase.txt"
ENTITY_TYPES_FILE = "phrase_with_etype.txt"
WORD_VARIANTS = "token_aug.jsonl"
PHRASE_VARIANTS = "phrase_aug.jsonl"
ENTITIES = "entities.jsonl"

NOT_A_ROW = "not_a_row"
UNKNOWN_CLASS = "unknown_class"
UNKNOWN_TYPE = "unknown_type"

_MAX_DIGITS = 18  # of a 64-bit number

_OTHER_NAMES = {"O": "OTHER", "NONE": "OTHER", "PER": "PERSON", "LOCATION": "LOC", "ORGANIZATION": "ORG"}


class EntityRow(msgspec.Struct, frozen=True):
    """A row of entities.jsonl.

    Attributes:
        entity: Key of the base (`bases.base_key`) and id, as in "umls-1f0c9a52:C0000001".
        names: At least one, the canonical name first.
        types: Coarse OntoNotes types of the base.
    """

    entity: str
    names: tuple[str, ...]
    types: tuple[str, ...] = ()


def entity_type_of(label: str) -> str | None:
    """Return the entity type of a label; BIO prefixes and usual short names are understood. None if unknown."""
    name = label.strip().upper()
    if name[:2] in ("B-", "I-", "E-", "S-", "L-", "U-"):
        name = name[2:]
    name = _OTHER_NAMES.get(name, name)
    return name if name in ENTITY_TYPES else None


def read_frequencies(path: str | os.PathLike[str], report: ReadReport) -> Iterator[tuple[str, str, int]]:
    """Yield phrase, lexical class and frequency of each row of freq_phrase.txt. Raises as `read_lines`."""
    for number, line in _rows(path, report):
        name, tab, count = line.rpartition("\t")
        lexical_class, _, phrase = name.partition("__")
        reason = ""
        n_seen = parse_count(count)
        if not tab or n_seen is None:
            reason = TOO_FEW_COLUMNS if not tab else NOT_A_ROW
        elif lexical_class not in LEXICAL_CLASSES:
            reason = UNKNOWN_CLASS
        elif not phrase.strip():
            reason = NO_NAME
        if reason or n_seen is None:
            report.skip(reason, path=os.fspath(path), line=number, text=line)
        else:
            yield phrase, lexical_class, n_seen


def parse_count(text: str) -> int | None:
    """Parse a number of occurrences; None if it is not a number, or has over 18 digits."""
    digits = text.strip()
    return int(digits) if digits.isdecimal() and len(digits) <= _MAX_DIGITS else None


def read_entity_types(path: str | os.PathLike[str], report: ReadReport) -> Iterator[tuple[str, str]]:
    """Yield phrase and entity type of each row of phrase_with_etype.txt. Raises as `read_lines`."""
    for number, line in _rows(path, report):
        phrase, tab, label = line.rpartition("\t")
        kind = entity_type_of(label)
        if not tab or kind is None or not phrase.strip():
            reason = TOO_FEW_COLUMNS if not tab else UNKNOWN_TYPE if kind is None else NO_NAME
            report.skip(reason, path=os.fspath(path), line=number, text=line)
        else:
            yield phrase, kind


def read_variants(path: str | os.PathLike[str], report: ReadReport) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield phrase and variants of each row of token_aug.jsonl or phrase_aug.jsonl. Raises as `read_lines`."""
    for number, line in _rows(path, report):
        found = parse_variants(line)
        if found is None:
            report.skip(NOT_A_ROW, path=os.fspath(path), line=number, text=line)
        else:
            yield found


def parse_variants(line: str | bytes) -> tuple[str, tuple[str, ...]] | None:
    """Parse phrase and variants of a row, without blank ones; None if it is not such a row."""
    try:
        row = _VARIANTS.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    variants = row.aug if row.aug is not None else row.synonyms
    if variants is None or not row.phrase.strip():
        return None
    return row.phrase, tuple(variant for variant in variants if variant.strip())


def read_entities(path: str | os.PathLike[str], report: ReadReport) -> Iterator[EntityRow]:
    """Yield the rows of entities.jsonl. Raises as `read_lines`."""
    for number, line in _rows(path, report):
        try:
            row = _ENTITY.decode(line)
        except (msgspec.DecodeError, RecursionError):
            report.skip(NOT_A_ROW, path=os.fspath(path), line=number, text=line)
            continue
        if row.names:
            yield row
        else:
            report.skip(NO_NAME, path=os.fspath(path), line=number, text=line)


class _VariantRow(msgspec.Struct):
    phrase: str
    aug: list[str] | None = None
    synonyms: list[str] | None = None


_VARIANTS: msgspec.json.Decoder[_VariantRow] = msgspec.json.Decoder(_VariantRow)
_ENTITY: msgspec.json.Decoder[EntityRow] = msgspec.json.Decoder(EntityRow)


def encode_row(row: Any) -> str:
    """Encode a row of JSON Lines, without its newline."""
    return msgspec.json.encode(row).decode("utf-8")


def _rows(path: str | os.PathLike[str], report: ReadReport) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines that are not blank; lines that are not text are skipped."""
    source = Source(Path(path))
    try:
        for number, line in read_lines(source):
            if isinstance(line, BadLine):
                report.rows += 1
                report.skip(line.reason, path=source.path, line=number, text=line.text)
            elif line.strip():
                report.rows += 1
                yield number, line
    finally:
        source.close()
