"""Values of cells: text, lists, numbers, and marks for nothing.

A cell is text in delimited files; in JSON, Parquet, Arrow and workbooks it may be a number, a date, a list or None.
"""

from __future__ import annotations

import ast
import csv
import json
import math
import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from ingest.io.report import INVALID_UTF8
from pearl_qdrant.cells import join_list, split_list

NOT_TEXT = "not_text"

BREAKS = re.compile(r"[\t\n\r]+")  # what becomes one space inside a cell
LISTS = "lists"  # in place of a separator: cells are lists as JSON or Python write them
ONE = "none"  # in place of a separator: a cell is one item, whatever is in it
NOTHING = frozenset("\\N NULL null NaN nan NA N/A n/a #N/A <NA> None none - -- — .".split())
"""Marks for a missing value, in columns other than ids and names."""

_NO_ITEM = NOTHING - {"NA", "none", "."}  # as one item among others, these may be names
_NO_ID = frozenset({"\\N", "NULL", "<NA>", "#N/A"})
_NO_NAME = frozenset({"\\N", "<NA>"})  # something may be called NULL
_NUMPY_LIST = re.compile(r"(?<=\w)(['\"])\s+(['\"])(?=\w)")
_LIST = re.compile(r"\s*(?:\[.*\]|\(.*\)|\{.*\})\s*", re.DOTALL)
_MAX_LIST = 1 << 20
_QUOTED_LIST = re.compile(r'"([^"]*)"')
_GROUPED = re.compile(r"\d{1,3}(?:[,  '’_]\d{3})+(?:\.\d+)?")


class NotTextError(ValueError):
    """A list, an object, or bytes that are no text, stand where a text is expected.

    Attributes:
        reason: Why the row is skipped.
    """

    def __init__(self, reason: str = NOT_TEXT) -> None:
        super().__init__(reason)
        self.reason = reason


def shown(cell: Any) -> str:
    """A cell as text, whatever it is."""
    return "" if cell is None else cell if isinstance(cell, str) else str(cell)


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
            raise NotTextError(INVALID_UTF8) from None
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
    text = text_of(value[0] if isinstance(value, list) and len(value) == 1 else value)
    return "" if text in _NO_ID else text


def read_name(value: Any) -> str:
    """The text of a name; "" for marks that no name is. Raises as `read_id`."""
    text = text_of(value[0] if isinstance(value, list) and len(value) == 1 else value)
    return "" if text in _NO_NAME else text


def field_text(value: Any) -> str:
    """The text of a further field: lists joined by bars, objects as JSON, "" for marks of nothing."""
    if isinstance(value, (list, tuple)) and not any(isinstance(item, (list, tuple, dict)) for item in value):
        return join_list(filter(None, map(text_of, value)))
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value, ensure_ascii=False, default=str, separators=(",", ":"))
    text = text_of(value)
    return "" if text in NOTHING else text


def split_items(value: Any, separator: str) -> tuple[str, ...]:
    """The items of a cell of aliases or types, each once, without marks for nothing. Raises NotTextError if an item is
    a list or an object.

    Args:
        separator: `LISTS`, `ONE`, or the text between two items; ``|`` may be escaped as in `split_list`.
    """
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
        item = next((item[key] for key in ("value", "name", "label", "text") if isinstance(item.get(key), str)), item)
    return text_of(item)


def _parse_list(text: str) -> list[Any] | None:
    """The list that a text writes as JSON or Python do; None if it is none."""
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
    """A popularity: a finite number of at least 0, also with thousands grouped; None for nothing. Raises ValueError if
    it is anything else.
    """
    text = text_of(value)
    if not text or text in NOTHING:
        return None
    number = float(re.sub(r"[,  '’_]", "", text) if _GROUPED.fullmatch(text) else text) + 0.0  # not -0
    if not 0 <= number < math.inf or ("_" in text and not _GROUPED.fullmatch(text)):
        raise ValueError(text)
    return number


def guess_separator(cells: Sequence[Any], *, is_list_column: bool = False) -> str:
    """What separates the items in the cells of a column.

    Args:
        cells: Some of its cells.
        is_list_column: The column is known to join its items by commas.

    Returns:
        `LISTS` if each cell that says something is a list; ``|`` if any has a bar; ``;`` if any has a semicolon; a
        comma if the column is known for it, or no comma is beside a space or a digit and no item is one letter; else
        ``|``.
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
    """The value at a path of keys in an object; over a list, the values of all its items.

    Args:
        path: From `parse_path`: keys, positions from 0, ``*``, and conditions ``key=value``.
    """
    for place, step in enumerate(path):
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
