"""The files that training reads and writes, in the formats of PEARL's published ones (Zenodo record 10676475).

    a corpus folder         freq_phrase.txt and phrase_with_etype.txt, with or without entities.jsonl; or only this one
    freq_phrase.txt         CLASS__phrase <TAB> frequency           CLASS: NP, VP, PP, ADVP or ADJP
    phrase_with_etype.txt   phrase <TAB> entity type; beside a freq_phrase.txt it has the types of those phrases
    token_aug.jsonl         {"phrase": ..., "synonyms": [...]}
    phrase_aug.jsonl        {"phrase": ..., "aug": [...]}
    hard_negative.txt       phrase <TAB> negative ...
    entities.jsonl          {"entity": "kb:id", "names": [...], "types": [...]}     ours: the entities of bases
    typed names             TSV with a header, or phrase <TAB> entity type

A phrase may contain `__`: a row is split once. The first row of a file decides its kind, not its name. Readers stream,
accept any compression that `ingest` knows, count the rows that they skip by reason, and raise as `read_lines`.
"""

from __future__ import annotations

import os
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from hashlib import blake2b
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, Literal, TextIO, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from ingest.formats import open_reader
from ingest.io import reasons
from ingest.io.encoding import BadLine, byte_lines, read_lines
from ingest.io.report import ReadReport
from ingest.io.streams import ByteSource, Source, open_sources
from pearl_qdrant.errors import FormatError, OptionError
from pearl_qdrant.phrase_types import ENTITY_TYPES, LEXICAL_CLASSES
from pearl_qdrant.records import Entity
from pearl_qdrant.settings import DEFAULT_MAX_ERRORS
from training.examples.example import Example, Phrase, any_class, one_class, sort_examples
from training.options import DEFAULT_FIELD, MIN_COUNT, Paths, StrPath, TrainingEvents, as_paths

T = TypeVar("T")
Kind = Literal["corpus", "frequencies", "types", "entities"]

FREQUENCIES = "freq_phrase.txt"
ENTITY_TYPES_FILE = "phrase_with_etype.txt"
WORD_VARIANTS = "token_aug.jsonl"
PHRASE_VARIANTS = "phrase_aug.jsonl"
ENTITIES = "entities.jsonl"

NOT_A_ROW = "not_a_row"
UNKNOWN_CLASS = "unknown_class"
UNKNOWN_TYPE = "unknown_type"
NOT_JSON = "not_json"
NO_TEXT = "no_text"

MAX_TEXT_BYTES = 64 << 20
"""A longer text is skipped: no article is as long."""

_HEAD_BYTES = 1 << 12

_FREQUENCY = re.compile(rf"(?:{'|'.join(LEXICAL_CLASSES)})__.+\t\s*\d+\s*")
_OTHER_NAMES = {"O": "OTHER", "NONE": "OTHER", "PER": "PERSON", "LOCATION": "LOC", "ORGANIZATION": "ORG"}
_NAME_HEADERS = ("name", "phrase", "text")
_TYPE_HEADERS = ("onto_type", "entity_type", "type")
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)


class EntityRow(msgspec.Struct, frozen=True):
    """A row of entities.jsonl."""

    entity: str  # key of the base (`base_key`) and id, as in "umls-1f0c9a52:C0000001"
    names: tuple[str, ...]  # at least one, the canonical name first
    types: tuple[str, ...] = ()  # coarse OntoNotes types of the base


class _VariantRow(msgspec.Struct):
    phrase: str
    aug: list[str] | None = None
    synonyms: list[str] | None = None


_VARIANTS: msgspec.json.Decoder[_VariantRow] = msgspec.json.Decoder(_VariantRow)
_ENTITY: msgspec.json.Decoder[EntityRow] = msgspec.json.Decoder(EntityRow)
_OBJECT: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])


def phrase_key(phrase: str) -> int:
    """Return a number in [0, 2^64), the same in every process; of ten million two agree with probability 3e-6."""
    return int.from_bytes(blake2b(phrase.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def find_key(keys: npt.NDArray[np.uint64], phrase: str) -> int | None:
    """Return where the key of a phrase is among sorted ones; None if it is not there."""
    key = np.uint64(phrase_key(phrase))
    place = int(keys.searchsorted(key))
    return place if place < len(keys) and keys[place] == key else None


def normalise_name(name: str) -> str:
    """Return a name in Unicode's composed form with white space normalised; case is kept."""
    return " ".join(unicodedata.normalize("NFC", name).split())


def entity_type_of(label: str) -> str | None:
    """Return the entity type of a label; BIO prefixes and usual short names are understood. None if unknown."""
    name = label.strip().upper()
    if name[:2] in ("B-", "I-", "E-", "S-", "L-", "U-"):
        name = name[2:]
    name = _OTHER_NAMES.get(name, name)
    return name if name in ENTITY_TYPES else None


def read_rows(path: StrPath, report: ReadReport) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines that are not blank; lines that are not text are skipped."""
    with closing(Source(Path(path))) as source:
        for number, line in read_lines(source):
            if isinstance(line, BadLine):
                report.rows += 1
                report.skip(line.reason, path=source.path, line=number, text=line.text)
            elif line.strip():
                report.rows += 1
                yield number, line


def _read(path: StrPath, report: ReadReport, parse: Callable[[str], T | str]) -> Iterator[T]:
    """Yield what `parse` makes of each row; a string is the reason why the row is skipped."""
    for number, line in read_rows(path, report):
        found = parse(line)
        if isinstance(found, str):
            report.skip(found, path=os.fspath(path), line=number, text=line)
        else:
            yield found


def read_frequencies(path: StrPath, report: ReadReport) -> Iterator[tuple[str, str, int]]:
    """Yield phrase, lexical class and frequency of each row of freq_phrase.txt."""

    def parse(line: str) -> tuple[str, str, int] | str:
        name, tab, count = line.rpartition("\t")
        lexical_class, _, phrase = name.partition("__")
        digits = count.strip()
        if not tab:
            return reasons.TOO_FEW_COLUMNS
        if not digits.isdecimal():
            return NOT_A_ROW
        if lexical_class not in LEXICAL_CLASSES:
            return UNKNOWN_CLASS
        return (phrase, lexical_class, int(digits)) if phrase.strip() else reasons.NO_NAME

    return _read(path, report, parse)


def read_entity_types(path: StrPath, report: ReadReport) -> Iterator[tuple[str, str]]:
    """Yield phrase and entity type of each row of phrase_with_etype.txt."""

    def parse(line: str) -> tuple[str, str] | str:
        phrase, tab, label = line.rpartition("\t")
        kind = entity_type_of(label)
        if not tab or kind is None:
            return UNKNOWN_TYPE if tab else reasons.TOO_FEW_COLUMNS
        return (phrase, kind) if phrase.strip() else reasons.NO_NAME

    return _read(path, report, parse)


def read_variants(path: StrPath, report: ReadReport) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield phrase and variants of each row of token_aug.jsonl or phrase_aug.jsonl."""
    return _read(path, report, lambda line: parse_variants(line) or NOT_A_ROW)


def parse_variants(line: str | bytes) -> tuple[str, tuple[str, ...]] | None:
    """Parse phrase and variants of a row, without blank ones; None if it is not such a row."""
    try:
        row = _VARIANTS.decode(line)
    except _UNREADABLE:
        return None
    variants = row.aug if row.aug is not None else row.synonyms
    if variants is None or not row.phrase.strip():
        return None
    return row.phrase, tuple(variant for variant in variants if variant.strip())


def read_entities(path: StrPath, report: ReadReport) -> Iterator[EntityRow]:
    """Yield the rows of entities.jsonl."""

    def parse(line: str) -> EntityRow | str:
        row = parse_entity(line)
        return NOT_A_ROW if row is None else row if row.names else reasons.NO_NAME

    return _read(path, report, parse)


def parse_entity(line: str | bytes) -> EntityRow | None:
    """Parse a row of entities.jsonl; None if it is not one."""
    try:
        return _ENTITY.decode(line)
    except _UNREADABLE:
        return None


def read_negatives(path: StrPath, report: ReadReport) -> Iterator[tuple[str, list[str]]]:
    """Yield phrases with their hard negatives."""

    def parse(line: str) -> tuple[str, list[str]] | str:
        phrase, *negatives = line.rstrip("\r\n").split("\t")
        return (phrase, negatives) if phrase.strip() and negatives else NOT_A_ROW

    return _read(path, report, parse)


def read_typed_names(path: StrPath, report: ReadReport) -> Iterator[tuple[str, str]]:
    """Yield names with their types.

    A header has one of the columns `name`, `phrase`, `text` and one of `onto_type`, `entity_type`, `type`. Without a
    header the name is the first column and the type the last.
    """
    at: list[int] = []
    for number, line in read_rows(path, report):
        cells = line.split("\t")
        if not at:
            lower = [cell.strip().lower() for cell in cells]
            known = (_NAME_HEADERS, _TYPE_HEADERS)
            at = [next((lower.index(one) for one in headers if one in lower), -1) for headers in known]
            if min(at) >= 0:
                report.rows -= 1
                continue
            at = [0, -1]
        reason = reasons.TOO_FEW_COLUMNS
        if len(cells) > max(1, *at):
            name, kind = cells[at[0]].strip(), entity_type_of(cells[at[1]])
            if name and kind is not None:
                yield name, kind
                continue
            reason = UNKNOWN_TYPE if name else reasons.NO_NAME
        report.skip(reason, path=os.fspath(path), line=number, text=line)


@contextmanager
def opened_sources(paths: Sequence[StrPath]) -> Iterator[tuple[ByteSource, ...]]:
    """Open files for the duration of a `with` block; ``-`` is standard input."""
    with ExitStack() as stack:
        sources = open_sources([str(path) for path in paths]) if paths else ()
        for source in sources:
            stack.callback(source.close)
        yield sources


def read_texts(source: ByteSource, report: ReadReport, *, field: str = DEFAULT_FIELD) -> Iterator[str]:
    """Yield the texts of a file: the field of each row of JSON Lines, or each line of plain text.

    The first character that is not white space decides: a file that starts with `{` is JSON Lines. Raises FormatError
    if the file is empty or not text, or no row has the field; TooManyErrorsError if more rows are bad than the report
    allows.

    Args:
        source: A file, a pipe or standard input, plain or compressed.
        report: Counts rows, and those skipped.
        field: Name of the text field in JSON Lines.
    """
    is_json = source.head(_HEAD_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{"
    report.notes.append(f"{source.path}: " + (f"JSON Lines, field '{field}'" if is_json else "plain text"))
    n_texts = 0
    for number, line in byte_lines(source, max_bytes=MAX_TEXT_BYTES):
        if isinstance(line, bytes) and not line.strip():
            continue
        report.rows += 1
        if isinstance(line, BadLine):
            report.skip(line.reason, path=source.path, line=number, text=line.text)
            continue
        reason = reasons.INVALID_UTF8
        try:
            if is_json:
                reason = NOT_JSON
                row = _OBJECT.decode(line)
                reason = NO_TEXT
                text = msgspec.json.decode(row[field], type=str)
            else:
                text = line.decode("utf-8").rstrip("\r")
        except (*_UNREADABLE, KeyError):
            report.skip(reason, path=source.path, line=number, text=line[:200].decode("utf-8", "replace"))
            continue
        n_texts += 1
        yield text
    if is_json and not n_texts:
        message = f"no row has the field '{field}'. Give the name of the text field as 'field'"
        raise FormatError(source.path, None, message)


def counted(read: Callable[[ReadReport], Iterator[T]], max_errors: int | None, skipped: Counter[str]) -> Iterator[T]:
    """Yield what a reader of one input yields, and add its bad rows, of which it may have so many, to the others."""
    report = ReadReport(max_errors=max_errors)
    try:
        yield from read(report)
    finally:
        skipped.update(report.skipped)


def texts_of(
    sources: Iterable[ByteSource], skipped: Counter[str], *, field: str, max_errors: int | None, limit: int | None
) -> Iterator[str]:
    """Yield at most `limit` texts of all sources, each of which may have `max_errors` bad rows."""
    each = (counted(partial(read_texts, source, field=field), max_errors, skipped) for source in sources)
    return islice(chain.from_iterable(each), limit)


@contextmanager
def whole_file(path: Path, *, errors: str = "replace") -> Iterator[TextIO]:
    """Open a file that gets its name when it is complete; an older file of that name stays until then."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("w", encoding="utf-8", errors=errors, newline="\n") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def encode_row(row: Any) -> str:
    """Encode a row of JSON Lines, with its newline."""
    return msgspec.json.encode(row).decode("utf-8") + "\n"


def write_hard_negatives(path: Path, rows: Iterable[tuple[str, list[str]]]) -> int:
    """Write hard_negative.txt; returns the number of rows. Tabs and line breaks within a phrase become spaces."""
    n_rows = 0
    with whole_file(path, errors="surrogatepass") as file:
        for phrase, negatives in rows:
            file.write("\t".join(" ".join(name.split()) for name in (phrase, *negatives)) + "\n")
            n_rows += 1
    return n_rows


class TypeTable:
    """Entity types by phrase, as sorted arrays of 9 bytes a phrase. Case matters: Turkey is a place, turkey is not.
    `rows`: phrases with their types; repeated pairs count each time. `most_common`: a phrase of several types gets the
    most frequent one, of equals the first in `ENTITY_TYPES`; otherwise its first row counts.
    """

    def __init__(self, rows: Iterable[tuple[str, str]], *, most_common: bool = False) -> None:
        place = {kind: i for i, kind in enumerate(ENTITY_TYPES)}
        keys, kinds = array("Q"), array("B")
        for phrase, kind in rows:
            keys.append(phrase_key(phrase))
            kinds.append(place[kind])
        every, of_every = np.array(keys, np.uint64), np.array(kinds, np.uint8)
        if most_common and len(every):
            order = np.lexsort((of_every, every))
            every, of_every = every[order], of_every[order]
            starts = np.flatnonzero(
                np.diff(every, prepend=~every[:1]).astype(bool) | (np.diff(of_every, prepend=0) != 0)
            )
            counts = np.diff(np.append(starts, len(every)))
            best = starts[np.lexsort((of_every[starts], -counts, every[starts]))]
            every, of_every = every[best], of_every[best]
        self._keys, first = np.unique(every, return_index=True)
        self._kinds = of_every[first]

    def get(self, phrase: str) -> str | None:
        """Return the type of a phrase, or None."""
        place = find_key(self._keys, phrase)
        return None if place is None else ENTITY_TYPES[int(self._kinds[place])]


def base_key(path: Path) -> str:
    """Return the prefix of the keys of a base's entities: its name, and a digest of its path.

    The name alone is not enough: `a/names.tsv` and `b/names.tsv` may both have an entity 1.
    """
    place = str(path.resolve()).encode("utf-8", "surrogateescape")
    return f"{path.name.partition('.')[0]}-{blake2b(place, digest_size=4).hexdigest()}"


def entity_row(entity: Entity, *, kb: str) -> EntityRow | None:
    """Convert an entity to a row of entities.jsonl; None if it has no name that is not blank."""
    names = tuple(name for name in dict.fromkeys(entity.names()) if name.strip())
    types = tuple(kind for kind in entity.types if kind in ENTITY_TYPES)
    return EntityRow(f"{kb}:{entity.entity_id}", names, types) if names else None


def entity_examples(rows: Iterable[EntityRow]) -> Iterator[Example]:
    """Yield an example per entity: its other names are positives, its types the target of the type head."""
    for row in rows:
        yield Example(row.names[0], row.names[1:], row.entity, one_class("NP", row.types))


def corpus_phrases(folder: Path, *, min_count: int = 1) -> Iterator[str]:
    """Yield the phrases of a corpus; adjacent rows of one phrase count once. Raises FormatError if the file is missing
    or is of another format.
    """
    _check_there(folder, FREQUENCIES)
    rows = read_frequencies(folder / FREQUENCIES, ReadReport())
    return (phrase for phrase, _ in groupby(phrase for phrase, _, count in rows if count >= min_count))


def corpus_examples(folder: Path, report: ReadReport, *, min_count: int = 1) -> Iterator[Example]:
    """Yield an example per phrase of a corpus, with the lexical class and entity type of the files.

    A phrase with two classes in adjacent rows allows either. A phrase without an entity type has no label: unknown is
    not OTHER. Raises FormatError if a file is missing or is of another format; TooManyErrorsError if more rows are bad
    than the report allows.
    """
    for name in (FREQUENCIES, ENTITY_TYPES_FILE):
        _check_there(folder, name)
    types = [TypeTable(read_entity_types(folder / ENTITY_TYPES_FILE, report))]
    return _frequency_examples(folder / FREQUENCIES, types, report, min_count)


def _frequency_examples(
    path: Path, types: Sequence[TypeTable], report: ReadReport, min_count: int
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


def read_examples(paths: Sequence[Path], report: ReadReport, *, min_count: int = 1) -> list[Example]:
    """Read the examples of files and folders, in alphabetical order. Raises FormatError if a path does not exist, is of
    an unknown kind, or is empty; TooManyErrorsError if more rows are bad than the report allows.
    """
    kinds = [(path, _detect_kind(path)) for path in paths]
    types = [TypeTable(read_entity_types(path, report)) for path, kind in kinds if kind == "types"]
    has_frequencies = any(kind == "frequencies" for _, kind in kinds)
    examples: list[Example] = []
    for path, kind in kinds:
        if kind == "corpus":
            has_entities = (path / ENTITIES).exists()
            if (path / FREQUENCIES).exists() or not has_entities:
                examples.extend(corpus_examples(path, report, min_count=min_count))
            if has_entities:
                examples.extend(entity_examples(read_entities(path / ENTITIES, report)))
        elif kind == "frequencies":
            examples.extend(_frequency_examples(path, types, report, min_count))
        elif kind == "entities":
            examples.extend(entity_examples(read_entities(path, report)))
        elif not has_frequencies:
            examples.extend(_type_examples(read_entity_types(path, report)))
    if not examples:
        raise FormatError(", ".join(map(str, paths)), None, "contains no phrases")
    return sort_examples(examples)


def _detect_kind(path: Path) -> Kind:
    """Detect the kind of a path by its first row."""
    if path.is_dir():
        return "corpus"
    first = next((line for _, line in read_rows(path, ReadReport())), "")
    if first.startswith("{") and '"names"' in first:
        return "entities"
    if _FREQUENCY.fullmatch(first):
        return "frequencies"
    if "\t" in first and entity_type_of(first.rpartition("\t")[2]) is not None:
        return "types"
    message = (
        "is not a list of phrases: expected CLASS__phrase<TAB>frequency, phrase<TAB>entity type, or a corpus folder. "
        "Give a base of names as 'aliases'"
    )
    raise FormatError(str(path), 1, message)


def _type_examples(rows: Iterable[tuple[str, str]]) -> Iterator[Example]:
    """Make examples of typed phrases with an open lexical class; several types of one phrase allow any of them."""
    types: dict[str, dict[str, None]] = {}
    for phrase, kind in rows:
        types.setdefault(phrase, {})[kind] = None
    for phrase, kinds in types.items():
        yield Example(phrase, (), f"name:{phrase.casefold()}", any_class(kinds))


def read_training_files(
    phrases: Paths = (),  # corpus folders and lists of phrases, see the module
    # bases in any format that `ingest` reads; the names of one entity are positives of each other, and an entity
    # with a single name is a negative, and an anchor with variants
    aliases: Paths = (),
    *,
    typed_names: Paths = (),  # lists of names with their entity types
    min_count: int = MIN_COUNT,  # phrases that occur less often in a corpus are skipped
    max_errors: int | None = DEFAULT_MAX_ERRORS,  # bad rows that all inputs together may have; None for any number
    events: TrainingEvents | None = None,  # gets `examples_read`
) -> list[Example]:
    """Read examples from files of all kinds, in alphabetical order.

    Raises:
        OptionError: If there is no input.
        FormatError: If an input does not exist, is of an unknown kind, or is empty.
        TooManyErrorsError: If more rows are bad than allowed.
    """
    phrase_paths, alias_paths, typed_paths = as_paths(phrases), as_paths(aliases), as_paths(typed_names)
    if not phrase_paths and not alias_paths and not typed_paths:
        raise OptionError("phrases", "There is nothing to learn from: both 'phrases' and 'aliases' are empty.")
    report = ReadReport(max_errors=max_errors)
    examples = read_examples(phrase_paths, report, min_count=min_count) if phrase_paths else []
    for path in alias_paths:
        with open_reader([path]) as reader:
            rows = (entity_row(entity, kb=base_key(path)) for entity in reader.read(report))
            examples += entity_examples(row for row in rows if row is not None)
    examples += _type_examples(row for path in typed_paths for row in read_typed_names(path, report))
    (events or TrainingEvents()).examples_read(len(examples), report.skip_counts)
    return sort_examples(examples)


def as_phrases(examples: Iterable[Example]) -> Iterator[Phrase]:
    """Return every name of every example, to mine hard negatives for."""
    for example in examples:
        entities = (example.entity,) if example.entity else ()
        for name in (example.name, *example.others):
            yield Phrase(name, entities)


def index_by_name(examples: Iterable[Example]) -> dict[str, Example]:
    """Map each name to its example; if several share a name, to the first one."""
    known: dict[str, Example] = {}
    for example in examples:
        for name in (example.name, *example.others):
            known.setdefault(name, example)
    return known
