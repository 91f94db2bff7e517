r"""Bases as tables: TSV, CSV, JSON, Parquet, Arrow and workbooks; one row an entity, or several.

Four iterators give rows (`delimited`, `json_records`, `arrow_rows`); one rule says which column is what (`columns`);
known bases bring it with them (`layouts`). A row needs its id and its name. Aliases and types are lists, or text whose
separator is found in the first rows and said in a note. Marks such as ``\N`` or ``n/a`` are nothing. What looks
otherwise than it is read is said as a warning (`suspicions`).
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
import numpy as np

from ingest.base.merge import RowStore, batches
from ingest.base.reader_base import ReaderBase
from ingest.base.scan import name_hash
from ingest.io import limits
from ingest.io.encoding import Utf8Source, check_decodable, check_encoding
from ingest.io.lines import BadLine
from ingest.io.report import (
    NO_ID,
    NO_NAME,
    NUL_CHARACTER,
    TOO_FEW_COLUMNS,
    TOO_MANY_COLUMNS,
    ReadReport,
    ReadWarning,
    make_excerpt,
)
from ingest.io.streams import ByteSource
from ingest.io.text_check import HEAD_BYTES
from ingest.readers import layouts
from ingest.readers.arrow_rows import check_path, find_container
from ingest.readers.cells import (
    LISTS,
    ONE,
    NotTextError,
    field_text,
    guess_separator,
    id_or_name,
    number_of,
    split_items,
    text_of,
)
from ingest.readers.columns import MAX_COLUMNS, Layout, TableColumns, find_layout, override
from ingest.readers.delimited import COMMENT
from ingest.readers.json_records import looks_like_json
from ingest.readers.layouts import ALIAS, DESCRIPTION, NAME, SKIP, TAGGED_NAME, TYPE, Base, Shape
from ingest.readers.open_table import Table, bases_of, check_delimiter, open_container, open_json, open_text, shown
from ingest.readers.suspicions import find_suspicions
from pearl_qdrant.errors import FormatError, OptionError
from pearl_qdrant.records import Entity

if TYPE_CHECKING:
    from ingest.base.format import PathLike
    from ingest.base.type_map import TypeMap
    from ingest.formats import ReadOptions

NOT_TEXT = "not_text"
OTHER_ROW = "other_row"
"""A row that the layout of a known base leaves out, such as an inactive one."""
OTHER_LANGUAGE = "other_language"

TEXT, JSON, CONTAINER = "text", "json", "container"
"""How rows are stored: text of cells, JSON, and Parquet, Arrow or a workbook."""

_MAX_CACHED = 1 << 10  # characters of the types of a row that are remembered
_TAG = re.compile(r"(.+?)\s*\(([^()]+)\)")
_LITERAL = re.compile(r"""(['"])(.*)\1(?:@([A-Za-z-]+)|\^\^.*)?""", re.DOTALL)
_ROLES = {NAME: 0, TAGGED_NAME: 2, ALIAS: 1}  # the lowest gives the canonical name


class TableReader(ReaderBase):
    """A base in one or several tables, read one after the other; a `Reader`."""

    def __init__(
        self,
        paths: Sequence[PathLike],
        options: ReadOptions,
        *,
        kind: str = TEXT,
        dialect: str = "auto",
        base: Base | None = None,
        type_map: TypeMap | None = None,
        stdin: BinaryIO | None = None,
    ) -> None:
        """Open the files; standard input and pipes are copied to a temporary file now.

        Args:
            paths: Files; ``-`` is standard input.
            options: Which column is what, and how the files are written.
            kind: `TEXT`, `JSON` or `CONTAINER`.
            dialect: Of text: ``tsv``, ``csv`` or ``auto``.
            base: The known base that they are; None: found for each file.
            type_map: From types in the file to coarse types; the shipped one by default.
            stdin: What ``-`` means; the process's own by default.

        Raises:
            FormatError: If a file does not exist, is a directory, or may not be read.
            OptionError: If an option makes no sense.
        """
        super().__init__(type_map=type_map, limit=options.limit)
        self._options, self._kind, self._dialect, self._base = options, kind, dialect, base
        self._columns = options.columns or TableColumns()
        self._encoding = check_encoding(options.encoding) if options.encoding else None
        if options.delimiter is not None:
            check_delimiter(options.delimiter)
        self._separators = _read_separators(options.list_separators)
        self._types = lru_cache(maxsize=65_536)(self._find_types)
        if kind == CONTAINER:
            self._files: list[str | ByteSource] = [str(path) for path in paths]
            if not paths:
                raise ValueError("nothing to read: no path was given")
            for path in self._files:
                check_path(str(path))
        else:
            self._files = [Utf8Source(source, self._encoding) for source in self.open_sources(paths, stdin)]

    def read_rows(self, report: ReadReport) -> Iterator[Entity]:
        """One entity for each good row of all files; of files whose rows are names, one for each id."""
        known: _Ids | None = None
        for file in self._files:
            before = report.rows
            with ExitStack() as stack:
                table = self._open(file, stack)
                base, shape = self._find_base(table)
                layout = self._find_layout(table, base, shape, report)
                rows = self._good_rows(table, layout, shape, report)
                if shape is None or shape.role_column is None:
                    entities = self._make_entities(rows, layout, shape, report)
                    if len(self._files) > 1 and base is not None:
                        known = known or _Ids()
                        entities = known.collect(entities)
                else:
                    entities = self._gather(rows, table, layout, shape, report)
                    if known is not None:
                        entities = known.filter(entities)
                yield from entities
            found = getattr(file, "found", None)
            if found:
                report.notes.append(f"{table.path}: text in {found}, converted; another encoding is given by name")
            if report.rows == before:
                raise FormatError(table.path, None, "has a header and no rows" if table.header else "has no rows")

    # What the columns are

    def _bases(self) -> Sequence[Base]:
        return (self._base,) if self._base is not None else bases_of(self._options)

    def _open(self, file: str | ByteSource, stack: ExitStack) -> Table:
        if isinstance(file, str):
            return open_container(file, self._options, stack)
        if self._options.encoding:
            check_decodable(file.path, "utf-8", file.head(HEAD_BYTES))
        if self._kind == JSON:
            return open_json(file, self._options)
        return open_text(file, self._options, kind=self._dialect)

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
            columns = override(_present(shape.columns, table.header or []), columns)
        first = table.header if table.header is not None else table.sample[0] if table.sample else []
        has_header = table.header is not None
        if not has_header and table.sample and columns.names():
            has_header, table.header = True, [shown(cell) for cell in first]
        layout = find_layout(
            table.path,
            table.header_line,
            [shown(cell) for cell in first],
            columns,
            has_header=has_header,
            has_numbers=table.has_numbers,
        )
        layout.header = table.header
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
            report.warnings += find_suspicions(
                table.path,
                table.header_line or 1,
                layout,
                table.sample,
                is_guessed=not columns.given(),
                is_unquoted=table.is_unquoted,
            )
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

    # From rows to entities

    def _good_rows(
        self, table: Table, layout: Layout, shape: Shape | None, report: ReadReport
    ) -> Iterator[tuple[list[Any], str, str]]:
        """Rows with id and name; the others are counted. `report.place` is that of the row."""
        path, i_id, i_name = table.path, layout.id, layout.name
        n_needed, width, is_typed = 1 + max(i_id, i_name), layout.width, table.is_typed
        header = table.header
        keep = _positions(header, shape.keep) if shape is not None else []
        needed = header.index(shape.needs) if shape and shape.needs and header and shape.needs in header else None
        take_id = re.compile(shape.id_pattern) if shape and shape.id_pattern else None
        n_header = len(header) if header is not None else 0
        for number, row in table.rows:
            if isinstance(row, BadLine):
                report.rows += 1
                report.skip(row.reason, path=path, line=number, text=row.text)
                continue
            n_cells = len(row)
            if n_cells < width:
                row = [*row, *[""] * (width - n_cells)]
            reason = None
            try:
                id_, name = id_or_name(row[i_id]), id_or_name(row[i_name])
                if not id_ or not name:
                    if not any(map(_is_filled, row)):
                        continue
                    if table.has_comments and n_cells < n_needed and str(row[0]).startswith("#"):
                        report.rows += 1
                        report.filter_out(COMMENT)
                        continue
                    reason = TOO_FEW_COLUMNS if n_cells < n_needed else NO_NAME if id_ else NO_ID
                elif (
                    header is not None and n_cells > n_header and not is_typed and any(map(_is_filled, row[n_header:]))
                ):
                    # A separator inside a name shifts all that follows: types would become aliases.
                    reason = TOO_MANY_COLUMNS
                elif is_typed and _has_nul(row):
                    reason = NUL_CHARACTER
            except NotTextError:
                id_, name, reason = "", "", NOT_TEXT
            report.rows += 1
            if reason is not None:
                text = "\t".join(map(shown, row))
                report.skip(reason, path=path, line=number, text=text)
                continue
            if any(shown(row[i]) not in values for i, values in keep) or (
                needed is not None and not _is_filled(row[needed])
            ):
                report.filter_out(OTHER_ROW)
                continue
            if take_id is not None and (match := take_id.fullmatch(id_)):
                id_ = match[1]
            report.place = path, number
            yield row, id_, name

    def _make_entities(
        self,
        rows: Iterable[tuple[list[Any], str, str]],
        layout: Layout,
        shape: Shape | None,
        report: ReadReport,
    ) -> Iterator[Entity]:
        """One entity for each row."""
        separators = layout.separators or {}
        aliases_at = [(i, separators[i]) for i in layout.aliases]
        types_at = [(i, separators[i]) for i in layout.types]
        bad_numbers: list[str] = []
        n_bad, n_known = 0, len(layout.header or ())
        take_type = re.compile(shape.id_pattern) if shape and shape.id_pattern else None
        for row, id_, name in rows:
            if layout.header is not None and len(layout.header) > n_known:
                layout.add_extra(n_known)
                n_known = len(layout.header)
            popularity = None
            if layout.popularity is not None and (cell := row[layout.popularity]) not in (None, ""):
                try:
                    popularity = number_of(cell)
                except ValueError:
                    n_bad += 1
                    if not bad_numbers:
                        bad_numbers.append(f"{report.place[0]}:{report.place[1]}: '{make_excerpt(str(cell))}'")
            try:
                names = {name: None}
                for i in layout.alias_names:
                    names[text_of(row[i])] = None
                for i, separator in aliases_at:
                    if row[i] is not None and row[i] != "":
                        names.update(dict.fromkeys(split_items(row[i], separator)))
                native = tuple(item for i, sep in types_at if row[i] for item in split_items(row[i], sep))
                extra = {}
                for i, key in (layout.extra or {}).items():
                    if i < len(row) and row[i] is not None and row[i] != "" and (text := field_text(row[i])):
                        extra[key] = text
                at = layout.description
                description = field_text(row[at]) or None if at is not None and row[at] is not None else None
            except (NotTextError, ValueError, RecursionError):
                report.skip_here(NOT_TEXT, "\t".join(map(shown, row)))
                continue
            names.pop("", None)
            all_names = report.bound_names(id_, tuple(names))
            if take_type is not None:
                native = tuple((match[1] if (match := take_type.fullmatch(one)) else one) for one in native)
            is_small = sum(map(len, native)) <= _MAX_CACHED
            kb_types, types = (self._types if is_small else self._find_types)(native)
            yield Entity(id_, name, all_names[1:], kb_types, types, description, extra, popularity)
        if n_bad:
            message = (
                f"{n_bad:,} rows have a popularity that is no number of at least 0 (the first at {bad_numbers[0]}): it "
                "is left out"
            )
            report.warnings.append(ReadWarning(message, options=("popularity_column",)))

    def _find_types(self, native: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Native types, each once and no more than allowed, and the coarse types of them."""
        kb_types = tuple(islice(dict.fromkeys(native), limits.MAX_KB_TYPES))
        return kb_types, self.type_map.map_types(kb_types)

    def _gather(
        self,
        rows: Iterable[tuple[list[Any], str, str]],
        table: Table,
        layout: Layout,
        shape: Shape,
        report: ReadReport,
    ) -> Iterator[Entity]:
        """One entity for each id, of rows that each give a name, a type or a description."""
        header = table.header or []
        at = {column: header.index(column) for column in _columns_of(shape) if column in header}
        wanted = [language.casefold() for language in self._options.languages]
        value_at = layout.name if self._columns.name else at.get(shape.value_column or "", layout.name)

        def facts() -> Iterator[tuple[str, str]]:
            for row, id_, name in rows:
                role = shape.roles.get(text_of(row[at[shape.role_column or ""]]), shape.other_role)
                if role == SKIP:
                    report.filter_out(OTHER_ROW)
                    continue
                value = name if value_at == layout.name else text_of(row[value_at])
                language = text_of(row[at[shape.language_column]]) if shape.language_column in at else ""
                if shape.is_literal and (literal := _LITERAL.fullmatch(value)):
                    value, language = literal[2].replace("\\'", "'").replace('\\"', '"'), literal[3] or ""
                elif shape.id_pattern and (match := re.fullmatch(shape.id_pattern, value)):
                    value = match[1]
                language = language.casefold()
                if wanted and language and role != TYPE and _rank(language, wanted) == len(wanted):
                    report.filter_out(OTHER_LANGUAGE)
                    continue
                is_preferred = (
                    text_of(row[at[shape.preferred_column]]) == "1" if shape.preferred_column in at else False
                )
                rank = (_ROLES.get(role, 0), _rank(language, wanted or ["en"]), not is_preferred)
                yield id_, _fact_encoder.encode((id_, role, value, rank)).decode()

        with RowStore() as store:
            for batch in batches(facts(), lambda fact: len(fact[1])):
                store.add(batch)
            group: list[tuple[str, str, str, Any]] = []
            for record in chain(store.rows(), (None,)):
                fact = None if record is None else _fact_decoder.decode(record)
                if group and (fact is None or fact[0] != group[0][0]):
                    entity = self._put_together(group, report)
                    if entity is None:
                        report.filter_out(NO_NAME)
                    else:
                        yield entity
                    group = []
                if fact is not None and len(group) < limits.MAX_ROWS:
                    group.append(fact)

    def _put_together(self, facts: list[tuple[str, str, str, Any]], report: ReadReport) -> Entity | None:
        names: list[tuple[Any, str]] = []
        native: list[str] = []
        description = None
        for _, role, value, rank in facts:
            if role == TYPE:
                native.append(value)
            elif role == DESCRIPTION:
                description = description or value
            else:
                if role == TAGGED_NAME and (tagged := _TAG.fullmatch(value)):
                    native.append(tagged[2])
                names.append((rank, value))
        if not names:
            return None
        names.sort(key=lambda one: one[0])
        unique = report.bound_names(facts[0][0], list(dict.fromkeys(name for _, name in names)))
        kb_types, types = self._find_types(tuple(native))
        return Entity(facts[0][0], unique[0], unique[1:], kb_types, types, description, {}, None)


_fact_encoder = msgspec.json.Encoder()
_fact_decoder = msgspec.json.Decoder(tuple[str, str, str, Any])


class _Ids:
    """The ids of the entities of one file, 8 bytes each, which further names in another file belong to."""

    def __init__(self) -> None:
        self._hashes = array("Q")
        self._is_sorted = False

    def collect(self, entities: Iterator[Entity]) -> Iterator[Entity]:
        for entity in entities:
            self._hashes.append(name_hash(entity.entity_id))
            self._is_sorted = False
            yield entity

    def filter(self, entities: Iterator[Entity]) -> Iterator[Entity]:
        if not self._is_sorted:
            self._hashes, self._is_sorted = array("Q", np.sort(np.frombuffer(self._hashes, "u8")).tobytes()), True
        for entity in entities:
            place = bisect_left(self._hashes, name_hash(entity.entity_id))
            if place < len(self._hashes) and self._hashes[place] == name_hash(entity.entity_id):
                yield entity


def _present(columns: TableColumns, header: Sequence[str]) -> TableColumns:
    """The columns without those that a file lacks; id and name stay, so that their lack is an error."""
    names = {name.casefold() for name in header}
    return replace(
        columns,
        types=tuple(one for one in columns.types if one.casefold() in names),
        aliases=tuple(one for one in columns.aliases if one.casefold() in names),
        description=columns.description if (columns.description or "").casefold() in names else None,
        popularity=columns.popularity if (columns.popularity or "").casefold() in names else None,
    )


def _positions(header: list[str] | None, keep: Any) -> list[tuple[int, tuple[str, ...]]]:
    return [(header.index(column), values) for column, values in keep.items() if header and column in header]


def _columns_of(shape: Shape) -> list[str]:
    columns = (shape.role_column, shape.value_column, shape.language_column, shape.preferred_column)
    return [column for column in columns if column is not None]


def _rank(language: str, wanted: Sequence[str]) -> int:
    """The place of a language among those that are wanted; a language with a country counts as the language."""
    if not language:
        return 0
    plain = re.split("[-_]", language)[0]
    return next((i for i, one in enumerate(wanted) if one in (language, plain)), len(wanted))


def _is_filled(cell: Any) -> bool:
    return bool(cell.strip() if isinstance(cell, str) else cell is not None and cell != [])


def _has_nul(row: list[Any]) -> bool:
    return any("\0" in cell if isinstance(cell, str) else isinstance(cell, list) and "\0" in str(cell) for cell in row)


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


def open_reader(paths: Sequence[PathLike], options: ReadOptions, type_map: TypeMap | None, *, kind: str) -> TableReader:
    """A reader of tables. Raises as `TableReader`.

    Args:
        paths, options, type_map: As in `ingest.formats.open_reader`.
        kind: tsv, csv, jsonl, parquet, xlsx, or the name of a known base.
    """
    dialect = kind if kind in ("tsv", "csv") else "auto"
    base = next((one for one in (*options.bases, *layouts.BASES) if one.name == kind), None)
    first = str(paths[0]) if paths else "-"
    how = {"jsonl": JSON, "parquet": CONTAINER, "xlsx": CONTAINER}.get(kind, TEXT)
    if base is not None:
        from ingest.formats import read_head

        is_json = first != "-" and find_container(first) is None and looks_like_json(read_head(first).data)
        how = CONTAINER if find_container(first) is not None else JSON if is_json else TEXT
    return TableReader(paths, options, kind=how, dialect=dialect, base=base, type_map=type_map)
