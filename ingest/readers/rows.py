"""Cells and rows of a table to entities: checks, lists, names, types, marks for nothing, and rows that are names put
together.

A cell is text in delimited files; in JSON, Parquet, Arrow and workbooks it may be a number, a date, a list or None.
"""

from __future__ import annotations

import ast
import csv
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import Any

from ingest.base.format import ALIAS, DESCRIPTION, NAME, SKIP, TAGGED_NAME, TYPE, Shape
from ingest.base.languages import language_code
from ingest.base.reader import HashSet, RowStore
from ingest.io import limits, reasons
from ingest.io.encoding import BadLine
from ingest.io.report import ReadReport, ReadWarning, make_excerpt
from ingest.readers.columns import INDENT, Layout, Table, is_indented
from ingest.readers.headers import names_in, shown
from pearl_qdrant.cells import join_list, split_list
from pearl_qdrant.records import Entity

Good = tuple[list[Any], str, str]  # a row, its id and its name

TypesOf = Callable[[tuple[str, ...]], tuple[tuple[str, ...], tuple[str, ...]]]
"""From native types to these, bounded, and to the coarse ones."""

_OF_FOOTERS = (reasons.TOO_FEW_COLUMNS, reasons.NO_NAME)
_FOOTER = re.compile(r"\(\d+ rows?\)|[A-Z][A-Za-z]*(?: [A-Za-z]+)+: *\d[\d.:/ -]*")  # how many rows, or of when
_TAG = re.compile(r"(.+?)\s*\(([^()]+)\)")
_CODE = re.compile(r"[a-z]{2,3}(?:[-_][a-z0-9_-]+)?")  # of a language; GeoNames also has `iata`, `abbr` and others
_LITERAL = re.compile(r"""(['"])(.*)\1(?:@([A-Za-z-]+)|\^\^.*)?""", re.DOTALL)
_ROLES = {NAME: 0, ALIAS: 1, TAGGED_NAME: 2}  # the lowest gives the canonical name


class RowReader:
    """Reads the rows of one table."""

    def __init__(
        self,
        table: Table,
        layout: Layout,
        shape: Shape,
        report: ReadReport,
        *,
        marks: Mapping[str, HashSet],
        types_of: TypesOf,
    ) -> None:
        """Prepare to read a table that is a file of a known base (or an empty `shape`); `marks`: ids that other files
        of the base give (`Shape.gives`); `types_of`: from native types to those of an entity.
        """
        self._table, self._layout, self._report, self._types_of = table, layout, report, types_of
        self._shape, self._marks = shape, marks
        self._allowed = marks.get("allowed") if not shape.gives else None
        header = table.header or []
        self._keep = [(header.index(name), values) for name, values in shape.keep.items() if name in header]
        self._needed = header.index(shape.needs) if shape.needs in header else None
        self._has_filter = bool(self._keep) or self._needed is not None or self._allowed is not None
        self._take = re.compile(shape.id_pattern) if shape.id_pattern else None
        self._is_indented = is_indented(table, layout)
        self._splits_names = layout.name in layout.separators
        self._last: tuple[str, int, list[Any]] | None = None  # a bad row, which may be the line under the table
        self._first_bad_number, self._n_bad_numbers = "", 0

    def good_rows(self) -> Iterator[Good]:
        """Rows with id and name that are kept; the others are counted."""
        path, report, layout = self._table.path, self._report, self._layout
        width = layout.width
        for number, row in self._table.rows:
            if self._last is not None:
                self._skip(*self._last)
            if isinstance(row, BadLine):
                report.rows += 1
                report.skip(row.reason, path=path, line=number, text=row.text)
                continue
            n_cells = len(row)
            if n_cells < width:
                row = [*row, *[""] * (width - n_cells)]
            id_, name, reason = self._checked(number, row, n_cells)
            if reason == "":  # a blank row
                continue
            report.rows += 1
            if reason in (reasons.COMMENT, reasons.ABOUT, reasons.OTHER_ROW):
                report.filter_out(reason)
            elif reason in _OF_FOOTERS and _FOOTER.fullmatch("".join(map(shown, row)).strip()):
                self._last = reason, number, row
            elif reason is not None:
                self._skip(reason, number, row)
            else:
                id_ = self._taken(id_)
                if literal := self._literal(name):
                    name = literal[0]
                if self._has_filter and not self._is_kept(row, id_):
                    report.filter_out(reasons.OTHER_ROW)
                    continue
                report.place = path, number
                yield row, id_, name
        if self._last is not None:
            report.filter_out(reasons.ABOUT)
            self._last = None

    def _checked(self, number: int, row: list[Any], n_cells: int) -> tuple[str, str, str | None]:
        """Id and name of a row, and why it is skipped; see `_find_fault`."""
        layout = self._layout
        try:
            id_, name = read_id(row[layout.id]), read_name(row[layout.name])
            if self._is_indented:
                name = INDENT.sub("", name, count=1)
            if self._splits_names and name:
                name = next(iter(split_items(name, layout.separators[layout.name])), "")
            if not name and layout.alias_names:
                name = next(filter(None, (read_name(row[i]) for i in layout.alias_names)), "")
            reason = self._find_fault(row, n_cells, id_, name)
            is_number = reason == reasons.NO_ID and number == 1 and "".join(map(shown, row)).isdecimal()
            return id_, name, reasons.ABOUT if is_number else reason  # the number of rows, as in YAGO 3
        except NotTextError as error:
            return "", "", error.reason

    def _skip(self, reason: str, number: int, row: list[Any]) -> None:
        self._last = None
        self._report.skip(reason, path=self._table.path, line=number, text="\t".join(map(shown, row)))

    def _find_fault(self, row: list[Any], n_cells: int, id_: str, name: str) -> str | None:
        """Why a row is skipped: a reason, `COMMENT`, "" for a blank row; None if it is good."""
        table = self._table
        if not id_ or not name:
            if not any(map(_is_filled, row)):
                return ""
            is_short = n_cells <= max(self._layout.id, self._layout.name)
            if table.has_comments and is_short and str(row[0]).startswith("#"):
                return reasons.COMMENT
            if id_ and self._needed == self._layout.name:
                return reasons.OTHER_ROW
            return reasons.TOO_FEW_COLUMNS if is_short else reasons.NO_NAME if id_ else reasons.NO_ID
        if table.is_typed:
            filled = [cell for cell in row if isinstance(cell, (str, bytes, list, dict))]
            texts = [cell if isinstance(cell, str) else _shown_nul(str(cell)) for cell in filled]
            if any("\0" in text for text in texts):
                return reasons.NUL_CHARACTER
            return reasons.LINE_TOO_LONG if sum(map(len, texts)) > limits.MAX_LINE_BYTES else None
        # A separator inside a name shifts all that follows: types would become aliases.
        n_header = n_cells if table.header is None else len(table.header)
        return reasons.TOO_MANY_COLUMNS if n_cells > n_header and any(map(_is_filled, row[n_header:])) else None

    def _taken(self, id_: str) -> str:
        match = self._take.fullmatch(id_) if self._take is not None else None
        return id_ if match is None else match[1]

    def _literal(self, cell: Any) -> tuple[str, str] | None:
        """Text and language of a cell, if it is written as ``'text'@en``, and the base writes cells so."""
        match = _LITERAL.fullmatch(text_of(cell)) if self._shape.is_literal else None
        return None if match is None else (match[2].replace("\\'", "'").replace('\\"', '"'), (match[3] or "").lower())

    def _is_kept(self, row: list[Any], id_: str) -> bool:
        if any(shown(row[i]) not in values for i, values in self._keep):
            return False
        if self._needed is not None and not _is_filled(row[self._needed]):
            return False
        return self._allowed is None or id_ in self._allowed

    # One row, one entity

    def entities(self) -> Iterator[Entity]:
        layout, report, n_known = self._layout, self._report, len(self._layout.header or ())
        for row, id_, name in self.good_rows():
            if layout.header is not None and len(layout.header) > n_known:
                layout.grow(n_known)
                n_known = len(layout.header)
            try:
                entity = self._make_entity(row, id_, name)
            except (NotTextError, ValueError, RecursionError):
                report.skip_here(reasons.NOT_TEXT, "\t".join(map(shown, row)))
            else:
                yield entity
        if self._n_bad_numbers:
            message = (
                f"{self._n_bad_numbers:,} rows have a popularity that is no number of at least 0 (the first at "
                f"{self._first_bad_number}); it is left out"
            )
            report.warnings.append(ReadWarning(message, options=("popularity_column",)))

    def _make_entity(self, row: list[Any], id_: str, name: str) -> Entity:
        """The entity of a row. Raises ValueError if a cell is not text."""
        layout, separators = self._layout, self._layout.separators
        names, languages = {name: None}, dict[str, str]()
        if self._splits_names:
            names.update(dict.fromkeys(split_items(read_name(row[layout.name]), separators[layout.name])))
        if (literal := self._literal(row[layout.name])) and literal[1]:
            languages[name] = literal[1]
        for i in layout.alias_names:
            names[read_name(row[i])] = None
        for i in layout.aliases:
            if row[i] is not None and row[i] != "":
                literal = self._literal(row[i])
                items = split_items(literal[0] if literal else row[i], separators.get(i, "|"))
                names.update(dict.fromkeys(items))
                if literal and literal[1]:
                    languages = dict.fromkeys(items, literal[1]) | languages
        names.pop("", None)
        native = [item for i in layout.types if row[i] for item in split_items(row[i], separators.get(i, "|"))]
        if self._take is not None:
            native = [self._taken(one) for one in native]
        extra = {}
        for i, key in layout.extra.items():
            if i >= len(row):
                break  # the columns are in order, and a short row may have 4,000 of them
            if row[i] is not None and row[i] != "" and (text := field_text(row[i])):
                extra[key] = text
        at = layout.description
        description = field_text(row[at]) or None if at is not None and row[at] is not None else None
        kb_types, types = self._types_of(tuple(native))
        languages = {one: languages[one] for one in names if one in languages} if languages else languages
        popularity = self._popularity(row)
        return self._report.make_entity(id_, tuple(names), kb_types, types, description, extra, popularity, languages)

    def _popularity(self, row: list[Any]) -> float | None:
        at = self._layout.popularity
        if at is None or row[at] is None or row[at] == "":
            return None
        try:
            return number_of(row[at])
        except ValueError:
            self._n_bad_numbers += 1
            path, line = self._report.place
            self._first_bad_number = self._first_bad_number or f"{path}:{line}: '{make_excerpt(str(row[at]))}'"
            return None

    # Rows that are names, types and descriptions of an entity

    def gather(self, store: RowStore, languages: Sequence[str], *, has_own_name: bool) -> None:
        """Put what the rows give, a name, a type or a description each, into a store on disk; see `gathered`.
        `languages` are those that are read, the preferred one first, all if empty; `has_own_name`: an option names the
        column of names.
        """
        store.add(self._facts(list(map(language_code, languages)), has_own_name))

    def gathered(self, store: RowStore) -> Iterator[Entity]:
        for id_, facts in groupby(store.rows(), itemgetter(0)):
            entity = self._put_together(id_, islice(facts, limits.MAX_ROWS))
            if entity is None:
                self._report.filter_out(reasons.NO_NAME)
            else:
                yield entity

    def _facts(self, wanted: list[str], has_own_name: bool) -> Iterator[tuple[str, _Fact]]:
        """For each row that gives something, its id and a `_Fact`."""
        shape, header, report = self._shape, self._table.header or [], self._report

        def cell_of(column: str | None) -> Callable[[list[Any]], str]:
            at = header.index(column) if column in header else None
            return (lambda row: "") if at is None else lambda row: text_of(row[at]) if at < len(row) else ""

        role_of, language_of = cell_of(shape.role_column), cell_of(shape.language_column)
        preferred_of, marked_of = cell_of(shape.preferred_column), cell_of(shape.marked_column)
        value_of = None if has_own_name else cell_of(shape.value_column)
        preferred = self._marks.get("preferred")
        for row, id_, name in self.good_rows():
            role = shape.roles.get(role_of(row), shape.other_role)
            value, language = name if value_of is None else value_of(row) or name, language_of(row)
            if literal := self._literal(value):
                value, language = literal
            else:
                value = self._taken(value)
            language = language_code(language)
            place = _place(language, wanted or ["en"])
            if role == SKIP:
                report.filter_out(reasons.OTHER_ROW)
            elif wanted and language and role != TYPE and place == len(wanted):
                report.filter_out(reasons.OTHER_LANGUAGE)
            else:
                is_preferred = marked_of(row) in preferred if preferred is not None else preferred_of(row) == "1"
                rank = (_ROLES.get(role, 0), place, not is_preferred)
                code = language if _CODE.fullmatch(language) else ""
                yield id_, (id_, role, value, rank, code)

    def _put_together(self, id_: str, facts: Iterable[_Fact]) -> Entity | None:
        """The entity of the facts about an id; None if no name is among them."""
        names: list[tuple[tuple[int, int, bool], str, str]] = []
        native: list[str] = []
        description = None
        for _, role, value, rank, language in facts:
            if role == TYPE:
                native.append(value)
            elif role == DESCRIPTION:
                description = description or value
            else:
                if role == TAGGED_NAME and (tagged := _TAG.fullmatch(value)):
                    native.append(tagged[2])
                names.append((rank, value, language))
        if not names:
            return None
        names.sort(key=lambda one: one[0])
        unique, languages = list(dict.fromkeys(name for _, name, _ in names)), dict[str, str]()
        for _, name, language in sorted(names, key=lambda one: one[0][1]):  # the wanted languages first
            if language:
                languages.setdefault(name, language)
        kb_types, types = self._types_of(tuple(native))
        return self._report.make_entity(id_, unique, kb_types, types, description, languages=languages)


_Fact = tuple[str, str, str, tuple[int, int, bool], str]
"""Id, role, value, the rank of a name among those of the id, and its language or ""."""


def _place(language: str, wanted: Sequence[str]) -> int:
    """The place of a language among those that are wanted; a language with a country counts as the language."""
    if not language:
        return 0
    plain = re.split("[-_]", language)[0]
    return next((i for i, one in enumerate(wanted) if one in (language, plain)), len(wanted))


def _is_filled(cell: Any) -> bool:
    return bool(cell.strip() if isinstance(cell, str) else cell is not None and cell != [])


def _shown_nul(text: str) -> str:
    """A list or object as Python shows it, with NUL characters as such, and none for a backslash before ``x00``."""
    return text.replace("\\\\", "").replace("\\x00", "\0")


BREAKS = re.compile(r"[\t\n\r]+")  # what becomes one space inside a cell
LISTS = "lists"  # in place of a separator: cells are lists as JSON or Python write them
ONE = "none"  # in place of a separator: a cell is one item, whatever is in it
NOTHING = frozenset("\\N NULL null NaN nan NA N/A n/a #N/A <NA> None none - -- — -0- .".split())
"""Marks for a missing value, in columns other than ids and names."""

_NO_ITEM = NOTHING - {"NA", "none", "."}  # as one item among others, these may be names
_NO_ID = frozenset({"\\N", "NULL", "<NA>", "#N/A"})
_NO_NAME = frozenset({"\\N", "<NA>"})  # something may be called NULL
_NUMPY_LIST = re.compile(r"(?<=\w)(['\"])\s+(['\"])(?=\w)")
_LIST = re.compile(r"\s*(?:\[.*\]|\(.*\)|\{.*\})\s*", re.DOTALL)
_MAX_LIST = 1 << 20
_QUOTED_ITEMS = re.compile(r'"[^"]*"(?:,\s*"[^"]*")*')
_QUOTED_LIST = re.compile(r'"([^"]*)"')
_GROUPED = re.compile(r"\d{1,3}(?:[,  '’_]\d{3})+(?:\.\d+)?")


class NotTextError(ValueError):
    """A list, an object, or bytes that are no text, stand where a text is expected."""

    def __init__(self, reason: str = reasons.NOT_TEXT) -> None:
        super().__init__(reason)
        self.reason = reason


def text_of(value: Any) -> str:
    """A value as one line of text, without space around it; "" for None. Raises NotTextError for a list or an object,
    and bytes that are not UTF-8; ValueError: for a number of over 4,300 digits.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        text = value
    elif isinstance(value, bool):
        return "true" if value else "false"
    elif isinstance(value, float):
        return "" if math.isnan(value) else str(int(value)) if value.is_integer() and abs(value) < 1e21 else repr(value)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        try:
            text = bytes(value).decode()
        except UnicodeDecodeError:
            raise NotTextError(reasons.INVALID_UTF8) from None
    elif isinstance(value, (list, tuple, dict, set)):
        raise NotTextError
    else:
        text = str(value)
    if "\n" in text or "\t" in text or "\r" in text:
        text = BREAKS.sub(" ", text)
    if text.startswith('="') and text.endswith('"'):  # a spreadsheet's way to keep 007 a text
        text = text[2:-1]
    return text.strip()


def read_id(value: Any) -> str:
    """The text of an id; "" for marks that no id is. Raises as `text_of`, but takes the item of a list of one."""
    text = text_of(only_one(value))
    return "" if text in _NO_ID else text


def read_name(value: Any) -> str:
    """The text of a name; "" for marks that no name is. Raises as `read_id`."""
    text = text_of(only_one(value))
    return "" if text in _NO_NAME else text


def only_one(value: Any) -> Any:
    """The item of a list of one, and the text of an object that says no more, such as MongoDB's ``{"$oid": ...}``."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, dict) and len(value) == 1:
        (key, text), *_ = value.items()
        return text if key[:1] in ("$", "#") or key.casefold() == "string" or names_in((key,)) else value
    return value


def field_text(value: Any) -> str:
    """The text of a further field: lists joined by bars, objects as JSON, "" for marks of nothing."""
    if isinstance(value, (list, tuple)) and not any(isinstance(item, (list, tuple, dict)) for item in value):
        return join_list(filter(None, map(text_of, value)))
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value, ensure_ascii=False, default=str, separators=(",", ":"))
    text = text_of(value)
    return "" if text in NOTHING else text


def split_items(value: Any, separator: str) -> tuple[str, ...]:
    """The items of a cell of aliases or types, each once, without marks for nothing; `separator` is `LISTS`, `ONE`, or
    the text between two items; ``|`` may be escaped as in `split_list`. Raises NotTextError if an item is a list or an
    object.
    """
    if isinstance(value, dict):  # by language; of XML one in place of a list, or a list in an element of its own
        if all(_CODE.fullmatch(key.lower()) and isinstance(one, (str, list)) for key, one in value.items()):
            value = [item for one in value.values() for item in (one if isinstance(one, list) else (one,))]
        else:
            value = next(iter(value.values())) if len(value) == 1 and names_in(tuple(value)) else [value]
        value = [value] if isinstance(value, dict) else value
    if isinstance(value, (list, tuple, set)):
        items: Iterable[str] = map(_item_text, value)
    elif isinstance(value, str) and separator not in (LISTS, ONE) and "\n" in value.strip():
        items = chain.from_iterable(split_items(line, separator) for line in value.splitlines())
    else:
        text = text_of(value)
        if not text or text in NOTHING:
            return ()
        if separator == LISTS:
            parsed = _parse_list(text)
            items = split_list(text) if parsed is None else map(text_of, parsed)
        elif separator == ONE:
            return (text,)
        else:
            if text[0] == '"' == text[-1] and len(text) > 1 and (quoted := _QUOTED_LIST.fullmatch(text)):
                text = quoted[1]
            items = split_list(text) if separator == "|" else (item.strip(' "') for item in text.split(separator))
    return tuple(item for item in dict.fromkeys(items) if item and item not in _NO_ITEM)


def _item_text(item: Any) -> str:
    """The text of an item of a list; of an object that says one thing of an alias or a type, this."""
    if isinstance(item, dict):
        keys = tuple(item)
        found = [item[keys[i]] for i in names_in(keys)]
        return " ".join(filter(None, map(text_of, found or [item])))
    return text_of(item)


def _parse_list(text: str) -> list[Any] | None:
    """The list that a text writes as JSON or Python do; None if it is none."""
    if _QUOTED_ITEMS.fullmatch(text):
        text = f"[{text}]"
    if len(text) > _MAX_LIST or not _LIST.fullmatch(text):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        text = _NUMPY_LIST.sub(r"\1, \2", text)  # Python would join the items
        try:
            found = ast.literal_eval(text.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            inner = text.strip()[1:-1]  # {a,"b c"}: an array of PostgreSQL
            return next(csv.reader([inner]), []) if text.strip()[0] == "{" and "{" not in inner else None
    if found == {}:
        return []
    if isinstance(found, (set, frozenset)):
        return sorted(found, key=lambda one: text.find(str(one)))
    return list(found) if isinstance(found, (list, tuple)) else None


def number_of(value: Any) -> float | None:
    """A popularity: a finite number of at least 0, thousands may be grouped; None for nothing. Raises ValueError."""
    text = text_of(value)
    if not text or text in NOTHING:
        return None
    number = float(re.sub(r"[,  '’_]", "", text) if _GROUPED.fullmatch(text) else text) + 0.0  # not -0
    if not 0 <= number < math.inf or ("_" in text and not _GROUPED.fullmatch(text)):
        raise ValueError(text)
    return number


def guess_separator(cells: Sequence[Any], *, is_list_column: bool = False) -> str:
    """What separates the items in the cells of a column: `LISTS` if each cell that says something is a list; ``|`` if
    any has a bar; ``;`` if any has a semicolon; a comma if the column is known for it, or no comma is beside a space or
    a digit and no item is one letter; else ``|``.
    """
    texts = [text for cell in cells if isinstance(cell, str) and (text := cell.strip()) and text not in NOTHING]
    if texts and all(_parse_list(text) is not None for text in texts):
        return LISTS
    for sign in "|;," if is_list_column else "|;":
        if any(sign in text for text in texts):
            return sign
    pieces = [piece for text in texts if "," in text for piece in text.split(",")]
    is_joined = all(
        len(piece) > 1 and piece == piece.strip() and not (piece[0].isdigit() or piece[-1].isdigit())
        for piece in pieces
    )
    return "," if len(pieces) > 2 and is_joined else "|"


def find_path(record: Any, path: Sequence[str]) -> Any:
    """The value at a path of keys in an object; over a list, the values of all its items. `parse_path` makes a path:
    keys, positions from 0, ``*``, and conditions ``key=value``.
    """
    for place, step in enumerate(path):
        if isinstance(record, dict) and step not in record and (step == "*" or "=" in step):
            record = [record]  # one in place of a list, as in XML
        if isinstance(record, dict):
            record = record.get(step)
        elif isinstance(record, (list, tuple)):
            if step.isdecimal():
                record = record[int(step)] if int(step) < len(record) else None
                continue
            rest = path[place:]
            if step == "*":
                rest = path[place + 1 :]
            elif "=" in step:
                key, _, wanted = step.partition("=")
                record = [item for item in record if isinstance(item, dict) and wanted in _texts(item.get(key))]
                rest = path[place + 1 :]
            found = [find_path(item, rest) for item in record]
            flat = [one for item in found for one in (item if isinstance(item, (list, tuple)) else (item,))]
            return [one for one in flat if one is not None]
        else:
            return None
    return record


def _texts(value: Any) -> list[str]:
    return list(map(str, value)) if isinstance(value, (list, tuple)) else [str(value)]


def parse_path(text: str) -> list[str]:
    """The steps of a path: ``names[types=label].value`` gives names, types=label, value."""
    return [step for step in re.split(r"[.\[\]]", text) if step]
