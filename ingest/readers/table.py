r"""Bases as tables: TSV, CSV, JSON, Parquet, Arrow and workbooks; one row an entity, or several.

Four iterators give rows (`delimited`, `json_records`, two here); one rule says which column is what (`columns`); known
bases bring it with them (`base/format.py`). A row needs its id and its name. Aliases and types are lists, or text whose
separator is found in the first rows and said in a note. Marks such as ``\N`` or ``n/a`` are nothing. What looks
otherwise than it is read is said as a warning.
"""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from itertools import chain, dropwhile, islice
from pathlib import Path
from typing import Any

from ingest.base.format import (
    Base,
    Head,
    PathLike,
    ReadOptions,
    Shape,
    TableColumns,
    find_shape,
    known_tables,
    read_head,
)
from ingest.base.reader import HashSet, Reader, RowStore
from ingest.base.type_map import TypeMap
from ingest.io import reasons
from ingest.io.encoding import HEAD_BYTES, BadLine, check_decodable, check_encoding, check_is_text
from ingest.io.report import ReadReport, ReadWarning, make_excerpt
from ingest.io.streams import STDIN, ByteSource, Source, check_expansion, find_container, is_folder, list_inputs
from ingest.readers.columns import MAX_COLUMNS, Layout, Row, Table, complete, find_layout, is_indented
from ingest.readers.converted import XmlSource, YamlSource
from ingest.readers.delimited import IsHeader, UnclearDelimiterError, check_delimiter, open_text
from ingest.readers.headers import columns_of, find_header, is_header, is_no_row, shown
from ingest.readers.json_records import (
    WITH_ID,
    WRAPPED,
    Place,
    choose_place,
    decode_object,
    find_places,
    read_records,
    unwrap,
    with_nested,
)
from ingest.readers.rows import LISTS, ONE, RowReader, find_path, guess_separator, only_one, parse_path, text_of
from ingest.readers.signs import SIGNS, find_root, looks_like_json
from ingest.readers.suspicions import find_suspicions
from ingest.readers.workbook import sheet_names, zero_padding
from pearl_qdrant.binary_tables import BATCH_ROWS, Kind, OpenedTable, open_table
from pearl_qdrant.errors import FormatError, InputError, OptionError
from pearl_qdrant.records import Entity

_N_SAMPLE = 1000  # rows by which layouts, separators and suspicions are found
_N_SHEETS = 10  # of a workbook, in which a header is looked for
_MANY = 20  # keys of an object whose values are texts or lists, which are no columns
_LEAST_KEYS = 3  # of an object whose keys are no columns
_N_SHOWN = 5  # lists of objects, in a warning
_MOST_KEYS = 4  # of a group of records: id, name, description and the list


def bases_of(options: ReadOptions) -> Sequence[Base]:
    """The known bases, those of the options first."""
    return (*options.bases, *known_tables())


def _header_test(options: ReadOptions) -> IsHeader:
    """Whether a row is a header, by its words or as that of a known base."""
    columns, bases = options.columns or TableColumns(), bases_of(options)
    return lambda cells: is_header(cells, columns) or find_shape(bases, cells, ()) is not None


def open_json(source: ByteSource, options: ReadOptions) -> Table:
    """Open JSON; paths that options or a known base name are columns. Raises FormatError if no object begins it."""
    check_is_text(source.path, source.head(HEAD_BYTES))
    columns, bases = options.columns or TableColumns(), bases_of(options)
    found = None if isinstance(source, XmlSource) else find_places(source)  # its records are lines, however long
    keys = found[0] if found is not None else set[str]()
    shape = next((one for base in bases for one in base.shapes if one.document and one.document <= keys), None)
    given = None if isinstance(source, XmlSource) else options.records
    wanted = shape.records if shape is not None and given is None else given
    named = {parse_path(name)[0] for name in columns.names()}
    is_record = find_shape(bases, list(keys), ()) is not None or bool(named and named <= keys)
    prefix = choose_place(source.path, found, wanted, is_record=is_record)
    records = read_records(source, prefix=prefix)
    first = list(islice(records, _N_SAMPLE))
    objects = [record for _, record in first if isinstance(record, dict)]
    if not objects:
        raise _no_object(source.path, prefix and options.records)
    nested = source.place[-1] if isinstance(source, XmlSource) else "children"
    if any(isinstance(one.get(nested), (list, dict)) for one in objects):
        records = chain.from_iterable(with_nested(record, nested) for record in chain(first, records))
        first = list(islice(records, _N_SAMPLE))
        objects = [record for _, record in first if isinstance(record, dict)]
    if (key := _wrapper_of(objects, columns, bases)) is not None:
        records = (
            (number, unwrap(one, key) if isinstance(one, dict) else one) for number, one in chain(first, records)
        )
        first = list(islice(records, _N_SAMPLE))
        objects = [record for _, record in first if isinstance(record, dict)]
    if not prefix and options.records is None and not columns.given() and len(objects) == 1:
        _refuse_map(source.path, objects[0])
    folded = {key.casefold(): key for record in reversed(objects) for key in reversed(record)}
    header = list(dict.fromkeys(folded[key.casefold()] for record in objects for key in record if "\0" not in key))
    _refuse_columns(source.path, header, prefix)
    header, names = header[:MAX_COLUMNS], columns.names()
    known = find_shape(bases, header, ())
    if known is not None:
        names += [*known[1].columns.names(), *filter(None, (known[1].needs,))]
    paths = {path: parse_path(path) for path in names if path.casefold() not in folded and set(path) & set(".[")}
    if isinstance(source, XmlSource):  # lists are there without the element around them
        paths = {path: steps[steps[0].casefold() not in folded :] for path, steps in paths.items()}
    header += paths
    sample = [row for _, row in _json_rows(iter(first), list(header), paths) if isinstance(row, list)]
    rows = _json_rows(chain(first, records), header, paths)
    where = prefix.rpartition(".")[0] if prefix else ""
    about = source.about if isinstance(source, (XmlSource, YamlSource)) else "JSON"
    table = Table(source.path, header, rows, sample, about, has_numbers=False, is_typed=True)
    if where:
        table.about += f", the {'list' if prefix and prefix.endswith('item') else 'objects'} '{where}'"
    others = found[1] if found is not None and wanted is None and not is_record else []
    if isinstance(source, XmlSource):
        others = [Place(f"{path}.item", n, set()) for path, n in source.others]
    elif prefix:
        others = [one for one in others if one.path != prefix and one.may_have_names]
    else:  # one record, which may be a description of these
        others = [one for one in others if one.n > 1 and one.path not in ("item", "children.item")]
    table.warnings += _of_others(source.path, [*others, *_of_groups(source, prefix, objects)])
    return table


def _of_others(path: str, others: Sequence[Place]) -> Iterator[ReadWarning]:
    """That other lists of a document are not read."""
    if others:
        listed = ", ".join(f"'{one.path.rpartition('.')[0]}' ({one.n:,})" for one in others[:_N_SHOWN])
        message = f"{path}: lists of other objects are not read: {listed}. If they are the records, name their path"
        yield ReadWarning(message, options=("records",))


def _no_object(path: str, records: str | None) -> FormatError:
    """The error of a document without an object where records are."""
    if records:
        return FormatError(path, None, f"has no object at '{records}'", option="records")
    message = "has no JSON object at its start; lists of texts or of lists are not read. If the first list is a header"
    return FormatError(path, 1, f"{message}, make a table of it: jq -r '.[] | @csv' FILE > rows.csv")


def _refuse_columns(path: str, header: Sequence[str], prefix: str | None) -> None:
    """Refuse a table by columns, whose records are maps from the numbers of rows."""
    if prefix == "*" and len(header) > 1 and all(key.isdecimal() for key in header if key != "id"):
        message = "is a table by columns, as pandas writes it. Make rows of it: frame.to_json(FILE, orient='records')"
        raise FormatError(path, None, message)


def _of_groups(source: ByteSource, prefix: str | None, objects: Sequence[dict[str, Any]]) -> Iterator[Place]:
    """The lists of named objects in objects that have hardly anything else: these are groups of records, perhaps."""
    place = ".".join(source.place) if isinstance(source, XmlSource) else prefix
    if not place or max(map(len, objects)) > _MOST_KEYS:
        return
    for key in dict.fromkeys(chain.from_iterable(objects)):
        lists = [one[key] for one in objects if isinstance(one.get(key), list)]
        inner = [one for one in chain.from_iterable(lists) if isinstance(one, dict)]
        named = len(inner) > 2 * len(objects) and columns_of(list(inner[0]), "name")
        if named and not columns_of([key], "alias") and not columns_of([key.rstrip("s")], "name"):
            yield Place(f"{place}.{key}.item", len(inner), set())


def _refuse_map(path: str, found: dict[str, Any]) -> None:
    """Refuse an object whose keys are no columns, with what makes records of it: names by id, or a table in lists."""
    header = next((key for key in ("fields", "columns", "header", "headers") if key in found), None)
    lists = next(
        (key for key, one in found.items() if one and isinstance(one, list) and isinstance(one[0], list)), None
    )
    path_of = ""
    while (inner := [one for one in found.items() if isinstance(one[1], dict)]) and (
        len(inner) == len(found) or (len(inner) == 1 and len(inner[0][1]) > _MANY)
    ):
        key, found = max(inner, key=lambda one: len(str(one[1])))
        path_of += f'["{key}"]'
    values = list(found.values())
    sizes = {len(one) if isinstance(one, list) else 1 for one in values}
    if len(sizes) == 1 < min(sizes) and columns_of(list(found), "name"):
        _refuse_columns(path, ["0", "1"], "*")
    if header is not None and lists is not None:
        what, query = (
            f"a table whose rows are lists, at '{lists}'",
            f"-r '(.{header}, .{lists}[]) | @csv' FILE > rows.csv",
        )
    elif len(values) > _MANY or (
        len(values) >= _LEAST_KEYS and not columns_of(list(found), "id") and not columns_of(list(found), "name")
    ):
        query = f"-c '{path_of and f'.{path_of} | '}to_entries[] | {{id: .key, name: .value}}' FILE > names.jsonl"
        if any(isinstance(one, list) for one in values):
            query = query.replace(".value}", "[.value] | flatten[0], aliases: [.value] | flatten[1:]}")
        if not all(isinstance(one, (str, list)) for one in values):
            return
        what = f"one object of {len(values):,} texts by key ({make_excerpt(next(iter(found)))}, ...)"
    else:
        return
    raise FormatError(path, None, f"is {what}. Make records of it: jq {query}")


def _wrapper_of(objects: Sequence[dict[str, Any]], columns: TableColumns, bases: Sequence[Base]) -> str | None:
    """The key under which each object has the one with the name, if the objects have none, and no option names it."""
    header = list(dict.fromkeys(key for record in objects for key in record))
    if columns_of(header, "name") or find_shape(bases, header, ()) is not None:
        return None
    named = {name.partition(".")[0] for name in columns.names()}
    return next(
        (
            key
            for key in WRAPPED
            if key not in named
            and all(isinstance(one.get(key), dict) for one in objects)
            and (key not in WITH_ID or columns_of(list(objects[0][key]), "id"))
        ),
        None,
    )


def open_container(path: str, options: ReadOptions, stack: ExitStack) -> Table:
    """Open Parquet, Arrow or a workbook; the stack closes it. Raises FormatError if it is damaged, or another file."""
    container = check_path(path)
    if container == "workbook":
        _check_zip(path)
    if container != "workbook":
        return _columns_of(path, container, _opened(path, container, None, stack), options)
    opened = ""
    for name in (options.records, *(sheet_names(path)[:_N_SHEETS] if options.records is None else ())):
        if f"sheet '{name}'" in opened:
            continue  # the first one, which was opened without its name
        with ExitStack() as tried:
            table = _open_sheet(path, options, name, tried)
            if table.header is not None or options.records is not None:
                stack.enter_context(tried.pop_all())
                return table
        opened = opened or table.about
    return _open_sheet(path, options, options.records, stack)  # none behind a cover has a header


def _opened(path: str, container: Kind, sheet: str | None, stack: ExitStack) -> OpenedTable:
    opening = open_table(path, container, sheet=sheet, batch_rows=BATCH_ROWS, check=check_expansion)
    return stack.enter_context(opening)


def _open_sheet(path: str, options: ReadOptions, sheet: str | None, stack: ExitStack) -> Table:
    opened = _opened(path, "workbook", sheet, stack)
    rows: Iterator[tuple[int, list[Any]]] = dropwhile(lambda row: row[0] <= (options.skip_lines or 0), opened.rows)
    name = next((one for one in sheet_names(path) if f"sheet '{one}'" in opened.about), "")
    if padded := zero_padding(path, name):
        rows = ((number, _padded(cells, padded)) for number, cells in rows)
    first = list(islice(rows, _N_SAMPLE))
    filled = [(number, row) for number, row in ((number, _texts_of(cells)) for number, cells in first) if row]
    texts, known = [row for _, row in filled], _header_test(options)
    width = Counter(map(len, texts)).most_common(1)[0][0] if texts else 0
    place = find_header(texts, known, width=width, may_guess=options.columns is None)
    header: list[str] | None = None
    line, last = 1, 0
    if place is not None:
        line, header = filled[place]
        under = texts[place + 1 :]
        last = filled[place + 1][0] if under and is_no_row(header, under[0], under[1:], known) else line
    first = [(number, cells) for number, cells in first if number > last]
    sample = [cells for _, cells in first]
    about = opened.about + ", numbers with their leading zeros" * bool(padded)
    return Table(path, header, chain(first, rows), sample, about, header_line=line, is_typed=True)


def _texts_of(cells: Sequence[Any]) -> list[str]:
    """The cells of a row up to the last one that is filled."""
    texts = list(map(shown, cells))
    while texts and not texts[-1].strip():
        texts.pop()
    return texts


def _padded(cells: list[Any], widths: Mapping[int, int]) -> list[Any]:
    """Cells with the leading zeros that a workbook shows."""
    return [
        text_of(cell).zfill(widths[i]) if i in widths and isinstance(cell, (int, float)) else cell
        for i, cell in enumerate(cells)
    ]


def _columns_of(path: str, container: str, opened: OpenedTable, options: ReadOptions) -> Table:
    header = opened.columns
    place = {name: i for i, name in enumerate(header)}
    steps = []
    for column in (options.columns or TableColumns()).names():
        outer, _, inner = column.partition(".")
        if column not in place and outer in place and inner:
            header.append(column)
            steps.append((place[outer], parse_path(inner)))
    rows: Iterator[Row] = opened.rows
    if steps:
        rows = ((number, [*row, *(find_path(row[i], path) for i, path in steps)]) for number, row in opened.rows)
    first = list(islice(rows, _N_SAMPLE))
    sample = [row for _, row in first if isinstance(row, list)]
    return Table(path, header, chain(first, rows), sample, container, is_typed=True)


def _json_rows(
    records: Iterator[tuple[int, dict[str, Any] | BadLine]], header: list[str], paths: dict[str, list[str]]
) -> Iterator[Row]:
    """Values of each object in the order of the header, which grows with new keys."""
    place = {key: i for i, key in enumerate(header)}
    folded = {key.casefold(): i for i, key in reversed(list(enumerate(header)))}
    for number, record in records:
        if isinstance(record, BadLine):
            yield number, record
            continue
        new = [key for key in record if key not in place]
        if new and (any("\0" in key for key in new) or len(header) + len(new) > MAX_COLUMNS):
            reason = reasons.TOO_MANY_COLUMNS if len(header) + len(new) > MAX_COLUMNS else reasons.NUL_CHARACTER
            yield number, BadLine(reason, str(record)[:256])
            continue
        for key in new:  # "NAME" in some objects is "name" in others
            if key.casefold() not in folded:
                folded[key.casefold()] = len(header)
                header.append(key)
            place[key] = folded[key.casefold()]
        row: list[Any] = [None] * len(header)
        for key, value in record.items():
            row[place[key]] = value
        for path, steps in paths.items():
            row[place[path]] = find_path(record, steps)
        yield number, row


def recognise(head: Head, options: ReadOptions) -> str | None:
    """The format of a table by its beginning: a known base, jsonl, csv or tsv; None if it is no table."""
    root = find_root(head.data)
    name = root[2].decode() if root is not None else ""
    if known := next((base.name for base in bases_of(options) for one in base.shapes if name in one.document), None):
        return known
    is_json = looks_like_json(head.data)
    try:
        try:
            table = open_json(head, options) if is_json else open_text(head, options, _header_test(options))
        except InputError:
            is_whole = len(head.data) == HEAD_BYTES or isinstance(decode_object(head.data.strip()), dict)
            if not is_json or is_whole or head.data.lstrip().startswith(b"["):
                raise
            table, is_json = open_text(head, options, _header_test(options)), False
            if table.header is None and not table.about.startswith("tab"):
                return "jsonl"  # its reader says where the JSON is broken
    except UnclearDelimiterError:
        return "csv"
    except (InputError, OptionError):
        return "jsonl" if is_json else None
    found = find_shape(bases_of(options), table.header, table.sample)
    if found is not None:
        return found[0].name
    return "jsonl" if is_json else "tsv" if table.is_unquoted and table.about.startswith("tab") else "csv"


class TableReader(Reader):
    """A base in one or several tables, read one after the other; a `Reader`."""

    def __init__(
        self, paths: Sequence[PathLike], options: ReadOptions, type_map: TypeMap | None = None, *, kind: str = "auto"
    ) -> None:
        """Open the files, and folders and zips of a known base; standard input and pipes are copied to a temporary file
        now. `kind`: tsv, csv, jsonl, parquet, xlsx, or the name of a known base; ``auto``: some text. Raises
        FormatError if a file does not exist, is a directory, or may not be read; OptionError if an option makes no
        sense.
        """
        super().__init__(type_map=type_map, limit=options.limit)
        self._options = options
        self._columns = options.columns or TableColumns()
        self._encoding = check_encoding(options.encoding) if options.encoding else None
        if options.delimiter is not None:
            check_delimiter(options.delimiter)
        self._separators = _read_separators(options.list_separators)
        self._types_of = lru_cache(maxsize=4_096)(self.find_types)  # most rows share a few combinations
        self._base = next((one for one in bases_of(options) if one.name == kind), None)
        if self._base is not None:
            paths = [file for path in paths for file in _files_of(str(path), self._base)]
            first = str(paths[0])
            if find_container(first) not in (None, "zip"):
                kind = "parquet"
            elif first != STDIN:
                head = read_head(first)
                kind = "xml" if SIGNS["xml"](head) else "jsonl" if looks_like_json(head.data) else kind
        self._kind = kind
        self._files: list[str | ByteSource] = []
        if kind not in ("parquet", "xlsx"):
            for source in self.open_sources(paths):
                if kind == "xml":
                    self._files.append(XmlSource(source, options.records))
                else:
                    self._files.append(YamlSource(source) if kind == "yaml" else self.as_text(source, self._encoding))
            self._kind = "jsonl" if kind in ("xml", "yaml") else kind
            return
        if not paths:
            raise ValueError("nothing to read: no path was given")
        for path in map(str, paths):
            check_path(path)
            self._files.append(path)

    def read_rows(self, report: ReadReport) -> Iterator[Entity]:
        """One entity for each good row of all files; of files whose rows are names, one for each id."""
        marks: dict[str, HashSet] = {}  # what files beside those with names say: preferred rows, allowed ids
        for table, base, shape in self._tables() if len(self._files) > 1 else ():
            if shape.gives and table.header is not None:
                at, ids = table.header.index(shape.gives_column), marks.setdefault(shape.gives, HashSet())
                for row, _, _ in self._row_reader(table, base, shape, report, {}).good_rows():
                    ids.add(text_of(row[at]))
        with RowStore() as store:
            yield from self._read_files(store, marks, report)

    def _read_files(self, store: RowStore, marks: dict[str, HashSet], report: ReadReport) -> Iterator[Entity]:
        """The entities of all files; rows that give a name or a type each are put together after the last of them."""
        known: HashSet | None = None
        gathering: RowReader | None = None
        for table, base, shape in self._tables():
            if shape.gives:
                continue
            before = report.rows
            rows = self._row_reader(table, base, shape, report, marks)
            if shape.role_column is not None:
                gathering = rows
                rows.gather(store, self._options.languages, has_own_name=self._columns.name is not None)
            elif len(self._files) > 1 and base is not None:
                known = known or HashSet()
                for entity in rows.entities():
                    known.add(entity.entity_id)
                    yield entity
            else:
                yield from rows.entities()
            if report.rows == before:
                raise FormatError(table.path, None, "has a header and no rows" if table.header else "has no rows")
        if gathering is not None:
            entities = gathering.gathered(store)
            yield from (one for one in entities if known is None or one.entity_id in known)

    def _tables(self) -> Iterator[tuple[Table, Base | None, Shape]]:
        """Each file as a table, open until the next one, with the known base that it is, and the kind of file there."""
        bases = (self._base,) if self._base is not None else bases_of(self._options)
        for file in self._files:
            with ExitStack() as stack:
                table = self._open(file, stack)
                base, shape = find_shape(bases, table.header, table.sample) or (None, Shape("", TableColumns()))
                if base is None and self._base is not None:
                    shapes = "; ".join(one.what for one in self._base.shapes)
                    raise FormatError(table.path, None, f"is no file of {self._base.title} (these are read: {shapes})")
                if base is not None and table.header is None:
                    width = max(map(len, table.sample))
                    table.header = [name.rstrip("?") for name in shape.names][:width]
                yield table, base, shape

    def _row_reader(
        self, table: Table, base: Base | None, shape: Shape, report: ReadReport, marks: dict[str, HashSet]
    ) -> RowReader:
        layout = self._find_layout(table, base, shape, report)
        return RowReader(table, layout, shape, report, marks=marks, types_of=self._types_of)

    def _open(self, file: str | ByteSource, stack: ExitStack) -> Table:
        if isinstance(file, str):
            return open_container(file, self._options, stack)
        if self._options.encoding:
            check_decodable(file.path, "utf-8", file.head(HEAD_BYTES))
        if self._kind == "jsonl":
            return open_json(file, self._options)
        return open_text(file, self._options, _header_test(self._options), self._kind)

    def _find_layout(self, table: Table, base: Base | None, shape: Shape, report: ReadReport) -> Layout:
        columns = self._columns if base is None else complete(self._columns, shape.columns, table.header or [])
        layout = find_layout(table, columns)
        for i, option in ((layout.id, "id_column"), (layout.name, "name_column")):
            cells = [row[i] for row in table.sample if i < len(row) and row[i] is not None]
            if cells and all(isinstance(only_one(cell), (dict, list)) for cell in cells):
                name = table.header[i] if table.header else str(i + 1)
                inner = next(iter(cells[0]), "0") if isinstance(cells[0], dict) else "0"
                message = (
                    f"the column '{make_excerpt(name)}' has lists or objects, which are not text. Name a path in it, "
                    f"such as '{name}.{inner}'"
                )
                raise FormatError(table.path, None, message, option=option)
        layout.separators = self._choose_separators(table, layout, shape)
        chosen = [
            f"{'types' if i in layout.types else 'names' if i == layout.name else 'aliases'} "
            + ("are lists" if separator == LISTS else f"split at '{separator}'")
            for i, separator in layout.separators.items()
            if separator not in ("|", ONE)
        ]
        title = f"{base.title}, " if base is not None else ""
        described = layout.describe(by_name=not table.has_numbers)
        described += "; signs of depth before the names are left out" * is_indented(table, layout)
        report.notes.append("; ".join((f"{table.path}: {title}{table.about}", described, *dict.fromkeys(chosen))))
        report.warnings += table.warnings
        if base is None:
            report.warnings += find_suspicions(table, layout)
        return layout

    def _choose_separators(self, table: Table, layout: Layout, shape: Shape) -> dict[int, str]:
        """For each column of aliases and types, what separates its items."""
        chosen: dict[int, str] = {}
        for i in (*layout.aliases, *layout.types, layout.name):
            name = table.header[i] if table.header and i < len(table.header) else ""
            own = self._separators.get(name.casefold()) or self._separators.get(str(i + 1))
            if i == layout.name:  # one name, but if this column is meant
                chosen |= {i: own} if own and i not in chosen else {}
                continue
            given = own or self._separators.get("") or shape.separators.get(name)
            cells = [row[i] for row in table.sample if i < len(row)]
            chosen[i] = given or guess_separator(cells, is_list_column=name.casefold() == "alternatenames")
        unknown = set(self._separators) - {"", *map(str.casefold, table.header or ()), *map(str, range(1, MAX_COLUMNS))}
        if unknown:
            message = f"there is no column '{min(unknown)}'"
            raise FormatError(table.path, table.header_line or None, message, option="list_separators")
        return chosen


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


def _check_zip(path: str) -> None:
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        n_bytes = sum(info.file_size for info in archive.infolist())
    check_expansion(path, Path(path).stat().st_size, n_bytes, "workbook")


def check_path(path: str) -> Kind:
    """What a file is; see `find_container`. Raises FormatError if it cannot be opened, or is another kind of file."""
    if path == STDIN:
        raise FormatError(path, None, "Parquet, Arrow and workbooks are read from files, not from standard input")
    container = find_container(path)
    if container is None or container == "zip":
        if not Path(path).is_fifo():
            Source(path).close()  # raises an error that explains what is wrong with the path
        message = "is no Parquet file, Arrow file or workbook (its first bytes are others). If it is compressed, "
        raise FormatError(path, None, f"{message}decompress it")
    return container
