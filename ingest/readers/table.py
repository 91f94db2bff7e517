r"""Bases as tables: TSV, CSV, JSON, Parquet, Arrow and workbooks; one row an entity, or several.

Four iterators give rows (`delimited`, `json_records`, `arrow_rows`); one rule says which column is what (`columns`);
known bases bring it with them (`layouts`). A row needs its id and its name. Aliases and types are lists, or text whose
separator is found in the first rows and said in a note. Marks such as ``\N`` or ``n/a`` are nothing. What looks
otherwise than it is read is said as a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO

from ingest.base.format import read_head
from ingest.base.merge import RowStore
from ingest.base.reader_base import ReaderBase
from ingest.io.encoding import HEAD_BYTES, Utf8Source, check_decodable, check_encoding
from ingest.io.report import ReadReport, ReadWarning, make_excerpt
from ingest.io.source import ByteSource
from ingest.io.streams import STDIN, is_folder, list_inputs
from ingest.readers import layouts
from ingest.readers.arrow_rows import check_path, find_container
from ingest.readers.cells import LISTS, ONE, guess_separator, text_of
from ingest.readers.columns import MAX_COLUMNS, Layout, TableColumns, complete, find_layout
from ingest.readers.delimited import check_delimiter
from ingest.readers.json_records import looks_like_json
from ingest.readers.layouts import Base, Shape
from ingest.readers.open_table import Table, bases_of, open_container, open_json, open_text
from ingest.readers.rows import Ids, RowReader, bound_types
from pearl_qdrant.errors import FormatError, OptionError
from pearl_qdrant.records import Entity

if TYPE_CHECKING:
    from ingest.base.format import PathLike
    from ingest.base.type_map import TypeMap
    from ingest.formats import ReadOptions

HEADER_WORDS = frozenset(
    "code codes concept concept_id conceptid concept_name curie definition descriptor entity entity_name english_name "
    "full_name gene heading identifier iri item item_id item_label itemlabel key kind label labels lang language "
    "main_name mention name name_en names number official_name parent preferred_label preferred_name preferred_term "
    "preflabel pref_label primary_name primarytitle ref reference short_name source string surface symbol synonym "
    "synonyms tag term terms text title titles type types uid unique_id uri url uuid value word wikidata_id".split()
)
"""Words that head columns. Two of them, and nothing else but words, are hardly the id and the name of an entity."""

_WORD = re.compile(r"[^\W\d][\w .:/()#-]{0,39}")
_DIGIT = re.compile(r"\d")
_N_OTHERS = 5  # rows after the first that must have ids with digits
_MAX_SHOWN = 8  # cells in a warning
_LEAST_ROWS = 5
_LEAST_TYPES = 20
_ID_LIKE = re.compile(r"https?://\S+|urn:\S+|[A-Za-z]{1,12}[:_]?\d{2,}|\d{3,}")
_MOJIBAKE = re.compile(r"[ÃÂâ][\x80-\xbf‚-™]|&(?:amp|quot|#\d+|lt|gt|eacute);")
_IN_QUOTES = re.compile(r"\"[^\"]+\"|'[^']+'(?:@\w+)?")


def find_suspicions(table: Table, layout: Layout, *, is_guessed: bool) -> Iterator[ReadWarning]:
    """Warnings for a table, from its first rows; `is_guessed` if no option names a column."""
    path, rows = table.path, table.sample
    if layout.header is None and is_guessed and rows and looks_like_header(rows[0], rows[1:]):
        yield _header_warning(path, table.header_line or 1, rows[0])
    names = _column(rows, layout.name)
    if layout.id != layout.name and len(names) >= _LEAST_ROWS:
        odd = [name for name in names if _ID_LIKE.fullmatch(name)]
        if len(odd) >= 0.8 * len(names):
            message = (
                f"{path}: the names look like ids or addresses ({make_excerpt(odd[0])}). Is another column the name?"
            )
            yield ReadWarning(message, options=("name_column",))
    if odd := [name for name in names if _MOJIBAKE.search(name)]:
        message = f"{path}: names look as if their text was converted wrongly before ({make_excerpt(odd[0])})"
        yield ReadWarning(message)
    for option, i in (("name_column", layout.name), *(("alias_column", i) for i in layout.aliases)):
        cells = _column(rows, i)
        if len(cells) >= 2 and len(set(cells)) == 1 and (len(cells[0]) == 1 or not any(map(str.isalnum, cells[0]))):
            message = f"{path}: column {i + 1} is '{make_excerpt(cells[0])}' in all of the first rows"
            yield ReadWarning(f"{message}. Name another column", options=(option,))
        quoted = [cell for cell in cells if _IN_QUOTES.fullmatch(cell)]
        if table.is_unquoted and len(quoted) > max(2, 0.2 * len(cells)):
            message = (
                f"{path}: cells are in quotes ({make_excerpt(quoted[0])}), which become part of the names. If the "
            )
            yield ReadWarning(f"{message}file is quoted as CSV is, name the format csv", options=("format",))
            break
    for i in layout.aliases:
        cells = _column(rows, i)
        lists = [cell for cell in cells if ", " in cell or " / " in cell]
        if layout.separators.get(i, "|") == "|" and len(cells) >= _LEAST_ROWS and len(lists) > 0.5 * len(cells):
            message = f"{path}: cells of column {i + 1} are read as one alias each ({make_excerpt(lists[0])}). If they "
            yield ReadWarning(f"{message}are lists, name the separator", options=("list_separators",))
    for i in layout.types:
        cells = _column(rows, i)
        if len(cells) >= _LEAST_TYPES and len(set(cells)) == len(rows):
            message = f"{path}: column {i + 1}, taken for types, has another value in each row"
            yield ReadWarning(f"{message} ({make_excerpt(cells[0])}, ...). Name the types", options=("type_column",))


def _column(rows: Sequence[Sequence[Any]], i: int) -> list[str]:
    """The texts in a column that are not blank."""
    return [text for row in rows if i < len(row) and isinstance(row[i], str) and (text := row[i].strip())]


def looks_like_header(first: Sequence[Any], others: Sequence[Sequence[Any]]) -> bool:
    """Whether the first row of a table is a header, although its words are not known. Returns whether all its cells are
    different words, the first one without a digit, and either two of them are `HEADER_WORDS`, or the ids of all the
    other rows have digits.

    Args:
        first: The cells of the first row.
        others: The cells of some rows after it.
    """
    cells = [str(cell).strip() for cell in first]
    is_words = all(map(_WORD.fullmatch, cells)) and len(set(cells)) == len(cells)
    if len(cells) < 2 or not is_words or _DIGIT.search(cells[0]):
        return False
    if sum(cell.casefold().replace(" ", "_") in HEADER_WORDS for cell in cells) >= 2:
        return True
    has_digit = [bool(row and _DIGIT.search(str(row[0]))) for row in others]
    return len(has_digit) >= _N_OTHERS and all(has_digit)


def _header_warning(path: str, line: int, first: Sequence[Any]) -> ReadWarning:
    shown = ", ".join(make_excerpt(str(cell).strip()) for cell in first[:_MAX_SHOWN])
    more = ", ..." if len(first) > _MAX_SHOWN else ""
    return ReadWarning(
        f"{path}:{line}: the first row ({shown}{more}) looks like a header, but is read as an entity: none of its "
        f"words is known to mean the id and the name. If it is a header, name the columns of ids and names",
        options=("id_column", "name_column"),
    )


_MAX_CACHED = 1 << 10  # characters of the types of a row that are remembered


class TableReader(ReaderBase):
    """A base in one or several tables, read one after the other; a `Reader`."""

    def __init__(
        self,
        paths: Sequence[PathLike],
        options: ReadOptions,
        type_map: TypeMap | None = None,
        *,
        kind: str = "auto",
        stdin: BinaryIO | None = None,
    ) -> None:
        """Open the files; standard input and pipes are copied to a temporary file now. Raises FormatError if a file
        does not exist, is a directory, or may not be read; OptionError if an option makes no sense.

        Args:
            paths: Files, and folders and zips of a known base; ``-`` is standard input.
            options: Which column is what, and how the files are written.
            type_map: From types in the file to coarse types; the shipped one by default.
            kind: tsv, csv, jsonl, parquet, xlsx, or the name of a known base; ``auto``: some text.
            stdin: What ``-`` means; the process's own by default.
        """
        super().__init__(type_map=type_map, limit=options.limit)
        self._options = options
        self._columns = options.columns or TableColumns()
        self._encoding = check_encoding(options.encoding) if options.encoding else None
        if options.delimiter is not None:
            check_delimiter(options.delimiter)
        self._separators = _read_separators(options.list_separators)
        self._types = lru_cache(maxsize=65_536)(self._find_types)
        self._base = next((one for one in bases_of(options) if one.name == kind), None)
        if self._base is not None:
            paths = [file for path in paths for file in _files_of(str(path), self._base)]
            first = str(paths[0])
            if find_container(first) is not None:
                kind = "parquet"
            elif first != STDIN and looks_like_json(read_head(first).data):
                kind = "jsonl"
        self._kind = kind
        self._files: list[str | ByteSource] = []
        if kind not in ("parquet", "xlsx"):
            self._files += [Utf8Source(source, self._encoding) for source in self.open_sources(paths, stdin)]
            return
        if not paths:
            raise ValueError("nothing to read: no path was given")
        for path in map(str, paths):
            check_path(path)
            self._files.append(path)

    def read_rows(self, report: ReadReport) -> Iterator[Entity]:
        """One entity for each good row of all files; of files whose rows are names, one for each id."""
        marks = self._collect_marks(report) if len(self._files) > 1 else {}
        with RowStore() as store:
            yield from self._read_files(store, marks, report)

    def _read_files(self, store: RowStore, marks: dict[str, Ids], report: ReadReport) -> Iterator[Entity]:
        """The entities of all files; rows that give a name or a type each are put together after the last of them."""
        known: Ids | None = None
        gathering: RowReader | None = None
        for file in self._files:
            before = report.rows
            with ExitStack() as stack:
                table = self._open(file, stack)
                base, shape = self._find_base(table)
                if shape is not None and shape.gives:
                    continue
                rows = self._read_table(table, base, shape, report, marks)
                if shape is not None and shape.role_column is not None:
                    gathering = rows
                    names = self._columns.name is not None
                    rows.gather(store, self._options.languages, has_own_name=names)
                else:
                    entities = rows.entities()
                    if len(self._files) > 1 and base is not None:
                        known = known or Ids()
                        entities = known.collect(entities)
                    yield from entities
            found = getattr(file, "found", None)
            if found:
                report.notes.append(f"{table.path}: its text is in {found}, which was found and converted")
            if report.rows == before:
                raise FormatError(table.path, None, "has a header and no rows" if table.header else "has no rows")
        if gathering is not None:
            entities = gathering.gathered(store)
            yield from entities if known is None else known.filter(entities)

    def _collect_marks(self, report: ReadReport) -> dict[str, Ids]:
        """What files beside those with names say: preferred rows, allowed ids."""
        marks: dict[str, Ids] = {}
        for file in self._files:
            with ExitStack() as stack:
                table = self._open(file, stack)
                base, shape = self._find_base(table)
                if shape is None or not shape.gives or table.header is None:
                    continue
                at = table.header.index(shape.gives_column)
                ids = marks.setdefault(shape.gives, Ids())
                for row, _, _ in self._read_table(table, base, shape, report, {}).good_rows():
                    ids.add(text_of(row[at]))
        return marks

    def _read_table(
        self, table: Table, base: Base | None, shape: Shape | None, report: ReadReport, marks: dict[str, Ids]
    ) -> RowReader:
        layout = self._find_layout(table, base, shape, report)
        return RowReader(table, layout, shape, report, marks=marks, types_of=self._types_of)

    # What the columns are

    def _bases(self) -> Sequence[Base]:
        return (self._base,) if self._base is not None else bases_of(self._options)

    def _open(self, file: str | ByteSource, stack: ExitStack) -> Table:
        if isinstance(file, str):
            return open_container(file, self._options, stack)
        if self._options.encoding:
            check_decodable(file.path, "utf-8", file.head(HEAD_BYTES))
        if self._kind == "jsonl":
            return open_json(file, self._options)
        return open_text(file, self._options, kind=self._kind)

    def _find_base(self, table: Table) -> tuple[Base, Shape] | tuple[None, None]:
        """The known base that a table is; one without a header gets the names of its columns."""
        found = layouts.find_shape(self._bases(), table.header, table.sample)
        if found is None:
            if self._base is not None:
                shapes = "; ".join(shape.what for shape in self._base.shapes)
                raise FormatError(table.path, None, f"is no file of {self._base.title} (these are read: {shapes})")
            return None, None
        if table.header is None:
            width = max(map(len, table.sample))
            table.header = [name.rstrip("?") for name in found[1].names][:width]
        return found

    def _find_layout(self, table: Table, base: Base | None, shape: Shape | None, report: ReadReport) -> Layout:
        columns = self._columns
        if shape is not None:
            columns = complete(columns, shape.columns, table.header or [])
        layout = find_layout(table, columns)
        for i, option in ((layout.id, "id_column"), (layout.name, "name_column")):
            cells = [row[i] for row in table.sample if i < len(row) and row[i] is not None]
            if cells and all(isinstance(cell, dict) or (isinstance(cell, list) and len(cell) != 1) for cell in cells):
                name = table.header[i] if table.header else str(i + 1)
                message = (
                    f"the column '{make_excerpt(name)}' has lists or objects, which are not text. Name a path in it"
                )
                raise FormatError(table.path, None, message, option=option)
        layout.separators = self._choose_separators(table, layout, shape)
        chosen = [
            f"{'types' if i in layout.types else 'aliases'} {_say_separator(separator)}"
            for i, separator in layout.separators.items()
            if separator not in ("|", ONE)
        ]
        title = f"{base.title}, " if base is not None else ""
        described = layout.describe(by_name=not table.has_numbers)
        report.notes.append("; ".join((f"{table.path}: {title}{table.about}", described, *dict.fromkeys(chosen))))
        if shape is None:
            report.warnings += find_suspicions(table, layout, is_guessed=not columns.given())
        return layout

    def _choose_separators(self, table: Table, layout: Layout, shape: Shape | None) -> dict[int, str]:
        """For each column of aliases and types, what separates its items."""
        chosen: dict[int, str] = {}
        for i in (*layout.aliases, *layout.types):
            name = table.header[i] if table.header and i < len(table.header) else ""
            given = (
                self._separators.get(name.casefold()) or self._separators.get(str(i + 1)) or self._separators.get("")
            )
            if given is None and shape is not None:
                given = shape.separators.get(name)
            cells = [row[i] for row in table.sample if i < len(row)]
            chosen[i] = given or guess_separator(cells, is_list_column=name.casefold() == "alternatenames")
        unknown = set(self._separators) - {"", *map(str.casefold, table.header or ()), *map(str, range(1, MAX_COLUMNS))}
        if unknown:
            message = f"there is no column '{min(unknown)}'"
            raise FormatError(table.path, table.header_line, message, option="list_separators")
        return chosen

    def _find_types(self, native: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        kb_types = bound_types(native)
        return kb_types, self.type_map.map_types(kb_types)

    def _types_of(self, native: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Native and coarse types. Most rows share a few combinations, which are remembered."""
        return (self._types if sum(map(len, native)) <= _MAX_CACHED else self._find_types)(native)


def _say_separator(separator: str) -> str:
    return "are lists" if separator == LISTS else f"split at '{separator}'"


def _read_separators(given: Sequence[str]) -> dict[str, str]:
    """Separators by the folded name of the column, "" for all; ``none``, ``tab`` and ``space`` are words."""
    words = {"tab": "\t", "\\t": "\t", "space": " ", "none": ONE, "lists": LISTS, "json": LISTS}
    found: dict[str, str] = {}
    for text in given:
        column, equals, separator = text.rpartition("=")
        if not equals or not separator:
            column, separator = "", text
        if not separator:
            raise OptionError("list_separators", "a separator of lists is a sign, or COLUMN=SIGN, and not empty")
        found[column.casefold()] = words.get(separator.casefold(), separator)
    return found


def _files_of(path: str, base: Base) -> list[str]:
    """The files under a path: of a folder or zip those that the base reads."""
    files = list_inputs(path)
    if files == [path] or (base.files is None and not is_folder(path)):
        return [path]
    found = base.choose(files)
    if not found:
        raise FormatError(path, None, f"has no file of {base.title} ({'; '.join(one.what for one in base.shapes)})")
    return found
