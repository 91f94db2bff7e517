"""Evaluation sets from a folder, the hub, or a base of the user's own; `Data` is the protocol of all sources.

    pearl_bench/{ppdb,ppdb_filtered,turney,bird,yago_test,umls_test,conll2003,bc5cdr}.tsv
    autofj/{left,right,gt}.tsv   intent/atis.tsv   tweets/sentiment.tsv
    ulr_analogy/analogies.tsv   geogranno/geo_pairs.tsv
    typed_names/onto_typed_names.tsv   kb/general.tsv   kb/biomedical/*.tsv

UTF-8 TSV with a header and no quoting; columns are found by name.
"""

from __future__ import annotations

import fnmatch
import importlib
import importlib.util
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from ingest.formats import open_reader
from ingest.io.report import ReadReport
from pearl_qdrant.cells import join_list
from pearl_qdrant.encoder.batching import first_line
from pearl_qdrant.errors import FormatError, SettingsError
from pearl_qdrant.installing import install_command
from pearl_qdrant.records import Entity
from pearl_qdrant.settings import MAX_LINE_BYTES

Row = tuple[str, ...]


class Data(Protocol):
    """A source of tables, by their path in the layout."""

    def __hash__(self) -> int: ...

    def paths(self, pattern: str) -> list[str]:
        """Sorted paths of the existing tables that match a pattern such as `kb/biomedical/*.tsv`."""

    def rows(self, path: str, *columns: str) -> list[Row]:
        """Rows of a table, with these columns. Raises FormatError if a column is missing, or a row is broken."""


class FolderData:
    """Tables in a folder. Raises SettingsError if there is none."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise SettingsError(
                f"No folder {folder}. Name the folder that contains pearl_bench/, autofj/ and the other sets."
            )
        self._folder = folder

    def paths(self, pattern: str) -> list[str]:
        return sorted(path.relative_to(self._folder).as_posix() for path in self._folder.glob(pattern))

    def rows(self, path: str, *columns: str) -> list[Row]:
        file_path = self._folder / path
        try:
            # Bytes: the error can name a line that is not UTF-8, and a name may contain a carriage return.
            with file_path.open("rb") as file:
                rows = list(_read_rows(file, str(file_path), columns))
        except OSError as error:
            raise FormatError(str(file_path), None, f"cannot be read ({error.strerror or error}).") from error
        if not rows:
            raise FormatError(str(file_path), None, "has no rows.")
        return rows


def _read_rows(file: BinaryIO, path: str, columns: tuple[str, ...]) -> Iterator[Row]:
    """Rows of a table, with these columns."""
    lines = _read_lines(file, path)
    header = next(lines, "").removeprefix("\ufeff").split("\t")
    if absent := [column for column in columns if column not in header]:
        shown = ", ".join(header) or "empty"
        raise FormatError(path, 1, f"no column {', '.join(absent)}; its header is {shown}.")
    chosen = [header.index(column) for column in columns]
    for number, line in enumerate(lines, 2):
        fields = line.split("\t")
        if len(fields) != len(header):
            message = f"expected {len(header)} fields, found {len(fields)}. Is a tab missing?"
            raise FormatError(path, number, message)
        yield tuple(fields[i] for i in chosen)


def _read_lines(file: BinaryIO, path: str) -> Iterator[str]:
    """Lines without their ends; one over the limit is an error before it is in memory."""
    for number, line in enumerate(iter(partial(file.readline, MAX_LINE_BYTES + 1), b""), 1):
        if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            raise FormatError(path, number, f"longer than {MAX_LINE_BYTES:,} bytes. Is it a text file with lines?")
        try:
            yield line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise FormatError(path, number, f"not UTF-8 ({error.reason}). Convert it to UTF-8.") from error


def as_number(text: str, path: str, what: str) -> float:
    """A cell as a finite number. Raises FormatError."""
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not abs(number) < float("inf"):
        raise FormatError(path, None, f"{what} is {text!r}, not a number.")
    return number


class OwnBase:
    """A base as a table of the layout; implements `data.Data`. Raises FormatError if `ingest` cannot read the file;
    TooManyErrorsError if there are more bad rows. `path`: file of the base. `max_errors`: number of bad rows that are
    skipped.

    Attributes:
        name: The file's name without endings.
        entities: The entities of the base, in its order.
    """

    def __init__(self, path: Path, *, max_errors: int) -> None:
        self.name = path.name.partition(".")[0] or path.name
        with open_reader([str(path)]) as reader:
            self.entities = tuple(reader.read(ReadReport(max_errors=max_errors)))
        self._rows = [_cells(entity) for entity in self.entities]

    def paths(self, pattern: str) -> list[str]:
        """The name of the base, if it matches."""
        return [self.name] if pattern == self.name else []

    def rows(self, path: str, *columns: str) -> list[Row]:
        """As `Data.rows`."""
        try:
            return [tuple(row[column] for column in columns) for row in self._rows]
        except KeyError as error:
            raise FormatError(path, None, f"no column {error}") from error


def _cells(entity: Entity) -> dict[str, str]:
    return {
        "id": entity.entity_id,
        "name": entity.canonical_name,
        "aliases": join_list(entity.aliases),
        "onto_type": entity.types[0] if entity.types else "",
        "fine_type": "|".join(entity.kb_types),
    }


REPOSITORY = "Lihuchen/pearl_benchmark"


_TABLES: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("hub_tables.json").read_text("utf-8"))
"""Of each table: its configuration on the hub, possible names of its split, and its column names there by ours."""

_TYPES = {"pearl_bench/conll2003.tsv": ("PER", "LOC", "ORG"), "pearl_bench/bc5cdr.tsv": ("Chemical", "Disease")}
"""Type names, in the order of the benchmark's type numbers."""

Load = Callable[[str, str], Iterable[Mapping[str, Any]]]
"""From configuration and split to rows."""


class HubData:
    """Tables of the hub, fetched on first use; `load` replaces `load_dataset`. The hub has no tables of AutoFJ."""

    def __init__(self, *, load: Load | None = None) -> None:
        self._load = load or _load_dataset

    def paths(self, pattern: str) -> list[str]:
        return sorted(fnmatch.filter(_TABLES, pattern))

    def rows(self, path: str, *columns: str) -> list[Row]:
        table = _TABLES[path]
        rows = []
        for number, row in enumerate(self._fetch(table["config"], table["splits"]), 1):
            fields = {ours: _text(path, number, row, theirs) for ours, theirs in table["columns"].items()}
            if path in _TYPES:
                label = fields["type"]
                fields |= {"split": "test", "type": _TYPES[path][int(label)] if label.isdigit() else label}
            rows.append(tuple(fields[column] for column in columns))
        if not rows:
            raise FormatError(f"{REPOSITORY} {table['config']}", None, "has no rows.")
        return rows

    def _fetch(self, config: str, splits: Sequence[str]) -> Iterable[Mapping[str, Any]]:
        problem: Exception = LookupError()
        for split in splits:
            try:
                return self._load(config, split)
            except ValueError as error:  # `datasets` raises it for an unknown split
                problem = error
            except (OSError, RuntimeError) as error:
                raise SettingsError(
                    f"{REPOSITORY}, {config} could not be fetched ({first_line(error)}). Connect to the "
                    f"hub, or evaluate on a folder with the sets."
                ) from error
        raise SettingsError(
            f"{REPOSITORY}, {config} has no split {' or '.join(splits)} ({first_line(problem)})."
        ) from problem


def _load_dataset(config: str, split: str) -> Iterable[Mapping[str, Any]]:
    if importlib.util.find_spec("datasets") is None:
        raise SettingsError(
            f"{REPOSITORY} needs the datasets library: {install_command('hub')}. Or evaluate on a folder with the sets."
        )
    load = importlib.import_module("datasets").load_dataset
    rows: Iterable[Mapping[str, Any]] = load(REPOSITORY, config, split=split)
    return rows


def _text(path: str, number: int, row: Mapping[str, Any], column: str) -> str:
    """A field as text. None stands for the string NA, which the hub's CSV reader takes for a missing value."""
    if column not in row:
        raise FormatError(path, number, f"the hub has no column {column!r}; there are: {', '.join(row)}.")
    return "NA" if row[column] is None else str(row[column])
