"""Read the files of a corpus, in the formats of PEARL's published ones (Zenodo record 10676475), which load unchanged.

    freq_phrase.txt         CLASS__phrase <TAB> frequency           CLASS: NP, VP, PP, ADVP or ADJP
    phrase_with_etype.txt   phrase <TAB> entity type
    token_aug.jsonl         {"phrase": ..., "synonyms": [...]}
    phrase_aug.jsonl        {"phrase": ..., "aug": [...]}
    hard_negative.txt       phrase <TAB> negative <TAB> negative ...
    entities.jsonl          {"entity": "kb:id", "names": [...], "types": [...]}     ours: the entities of bases

A phrase may contain `__`: a row is split once. Readers stream, and accept any compression that `ingest` knows.

Tables of phrases have 64-bit keys, the same in every process, so that they are arrays of numbers. Bases become typed
names, and aliases that are positives of each other.
"""

from __future__ import annotations

import hashlib
import os
import unicodedata
from array import array
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ingest.io.lines import BadLine, read_lines
from ingest.io.report import NO_NAME, TOO_FEW_COLUMNS, ReadReport
from ingest.io.streams import Source
from pearl_qdrant.errors import FormatError
from pearl_qdrant.phrase_types import ENTITY_TYPES, LEXICAL_CLASSES
from pearl_qdrant.records import Entity
from training.examples.example import Example, one_class


def phrase_key(phrase: str) -> int:
    """Return a number in [0, 2^64); among ten million phrases, two share a key with probability 3e-6."""
    data = phrase.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def normalise_name(name: str) -> str:
    """Return a name in Unicode's composed form with white space normalised; case is kept."""
    return " ".join(unicodedata.normalize("NFC", name).split())


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
    for number, line in read_rows(path, report):
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
    for number, line in read_rows(path, report):
        phrase, tab, label = line.rpartition("\t")
        kind = entity_type_of(label)
        if not tab or kind is None or not phrase.strip():
            reason = TOO_FEW_COLUMNS if not tab else UNKNOWN_TYPE if kind is None else NO_NAME
            report.skip(reason, path=os.fspath(path), line=number, text=line)
        else:
            yield phrase, kind


def read_variants(path: str | os.PathLike[str], report: ReadReport) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield phrase and variants of each row of token_aug.jsonl or phrase_aug.jsonl. Raises as `read_lines`."""
    for number, line in read_rows(path, report):
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
    for number, line in read_rows(path, report):
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


def read_rows(path: str | os.PathLike[str], report: ReadReport) -> Iterator[tuple[int, str]]:
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


_KNOWN = frozenset(ENTITY_TYPES)


def base_key(path: Path) -> str:
    """Return the prefix of the keys of a base's entities: its name, and a digest of its path.

    The name alone is not enough: `a/names.tsv` and `b/names.tsv` may both have an entity 1.
    """
    place = str(path.resolve()).encode("utf-8", "surrogateescape")
    return f"{path.name.partition('.')[0]}-{blake2b(place, digest_size=4).hexdigest()}"


def entity_row(entity: Entity, *, kb: str) -> EntityRow | None:
    """Convert an entity to a row of entities.jsonl; None if it has neither a type nor a second name."""
    types = tuple(kind for kind in entity.types if kind in _KNOWN)
    names = tuple(dict.fromkeys(name for name in entity.names() if name.strip()))
    if not names or (len(names) < 2 and not types):
        return None
    return EntityRow(f"{kb}:{entity.entity_id}", names, types)


def typed_names(rows: Iterable[EntityRow]) -> Iterator[tuple[str, str]]:
    """Yield each name of an entity with each of its types."""
    for row in rows:
        for kind in row.types:
            for name in row.names:
                yield name, kind


def entity_examples(rows: Iterable[EntityRow]) -> Iterator[Example]:
    """Yield an example per entity: its other names are positives, its types the target of the type head."""
    for row in rows:
        yield Example(row.names[0], row.names[1:], row.entity, one_class("NP", row.types))


class PhraseTypes:
    """Entity types by phrase, 9 bytes per phrase."""

    def __init__(self, path: Path, report: ReadReport) -> None:
        """Read phrase_with_etype.txt. Raises as `read_entity_types`."""
        place = {kind: i for i, kind in enumerate(ENTITY_TYPES)}
        keys, kinds = array("Q"), array("B")
        for phrase, kind in read_entity_types(path, report):
            keys.append(phrase_key(phrase))
            kinds.append(place[kind])
        unsorted = np.array(keys, np.uint64)
        order = np.argsort(unsorted, kind="stable")
        self._keys, self._kinds = unsorted[order], np.array(kinds, np.uint8)[order]

    def get(self, phrase: str) -> str | None:
        """Return the type of a phrase, or None."""
        key = np.uint64(phrase_key(phrase))
        place = int(np.searchsorted(self._keys, key))
        if place < len(self._keys) and self._keys[place] == key:
            return ENTITY_TYPES[int(self._kinds[place])]
        return None


def corpus_phrases(folder: Path, *, min_count: int = 1, report: ReadReport | None = None) -> Iterator[str]:
    """Yield the phrases of a corpus; adjacent rows of one phrase count once. Raises as `corpus_examples`."""
    _check_there(folder, FREQUENCIES)
    rows = read_frequencies(folder / FREQUENCIES, report or ReadReport())
    return (phrase for phrase, _ in groupby(phrase for phrase, _, count in rows if count >= min_count))


def corpus_examples(folder: Path, report: ReadReport, *, min_count: int = 1) -> Iterator[Example]:
    """Yield an example per phrase of a corpus, with the lexical class and entity type of the files.

    A phrase with two classes in adjacent rows allows either. A phrase without an entity type has no label: unknown is
    not OTHER.

    Args:
        folder: Has freq_phrase.txt and phrase_with_etype.txt, our own or the published ones.
        report: Counts rows of both files, and those skipped.
        min_count: Phrases that occur less often are skipped.

    Raises:
        FormatError: If a file is missing or is of another format.
        TooManyErrorsError: If more rows are bad than the report allows.
    """
    for name in (FREQUENCIES, ENTITY_TYPES_FILE):
        _check_there(folder, name)
    types = [PhraseTypes(folder / ENTITY_TYPES_FILE, report)]
    return frequency_examples(folder / FREQUENCIES, types, report, min_count)


def frequency_examples(
    path: Path, types: Sequence[PhraseTypes], report: ReadReport, min_count: int
) -> Iterator[Example]:
    """Yield an example per phrase of freq_phrase.txt, with its type where a table knows it."""
    rows = (row for row in read_frequencies(path, report) if row[2] >= min_count)
    for phrase, same in groupby(rows, key=lambda row: row[0]):
        kinds = [kind for table in types if (kind := table.get(phrase)) is not None][:1]
        labels = dict.fromkeys(i for _, lexical_class, _ in same for i in one_class(lexical_class, kinds))
        yield Example(phrase, (), f"name:{phrase.casefold()}", tuple(labels))


def _check_there(folder: Path, name: str) -> None:
    if not (folder / name).exists():
        message = f"is not a corpus: {name} is missing. Make one with: pearl-qdrant train corpus TEXT --out {folder}"
        raise FormatError(str(folder), None, message)
