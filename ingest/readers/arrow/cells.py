"""Columns of Arrow data to cells: text, and tuples of texts for lists."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ingest.io import limits
from ingest.io.lines import BadLine
from ingest.io.report import INVALID_UTF8, LINE_TOO_LONG, NUL_CHARACTER
from ingest.readers.tables.rows import BREAKS, Cell
from pearl_qdrant.cells import join_list

if TYPE_CHECKING:
    import pyarrow as pa

_UNCLEAN = "[\\t\\n\\r\\x00]"  # what makes a text more than one line, and NUL; in RE2's syntax


def text_type(kind: pa.DataType) -> pa.DataType | None:
    """The type of text to which values of a type are cast: a string or a list of strings; None if it has no text."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.large_list(pa.large_string()) if text_type(kind.value_type) == pa.large_string() else None
    has_text = (
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_string_view(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_decimal(kind)
        or types.is_temporal(kind)
        or types.is_null(kind)
    )
    return pa.large_string() if has_text else None


def is_list(kind: pa.DataType) -> bool:
    """Whether values of a type become lists."""
    import pyarrow as pa

    wanted = text_type(kind)
    return wanted is not None and pa.types.is_large_list(wanted)


def make_rows(columns: Sequence[pa.Array | None], lists: Sequence[bool]) -> list[list[Cell] | BadLine]:
    """The cells of each row of a batch; a row with text that cannot be used is a `BadLine`.

    Args:
        columns: Arrays of equal length, each of a type that has a `text_type`; None for a column of empty cells. At
            least one is an array.
        lists: For each column, whether its lists become tuples. Others become text joined by ``|``.

    Raises:
        pyarrow.ArrowInvalid: If offsets or indices point outside of their buffers.
    """
    try:
        return _make_rows(columns, lists)
    except UnicodeDecodeError:
        pass
    # Somewhere is bad UTF-8: row by row, to find where.
    rows: list[list[Cell] | BadLine] = []
    for i in range(max(len(column) for column in columns if column is not None)):
        try:
            rows += _make_rows([None if column is None else column.slice(i, 1) for column in columns], lists)
        except UnicodeDecodeError:
            rows.append(BadLine(INVALID_UTF8, ""))
    return rows


def _make_rows(columns: Sequence[pa.Array | None], lists: Sequence[bool]) -> list[list[Cell] | BadLine]:
    """Raises UnicodeDecodeError too, if a text is not valid UTF-8."""
    found = [None if column is None else _to_text(column) for column in columns]
    texts = [text for text in found if text is not None]
    size = sum(text.nbytes for text in texts)
    empty = [""] * len(texts[0])
    cells = [empty if text is None else _to_cells(text, is_list) for text, is_list in zip(found, lists, strict=True)]
    rows: list[list[Cell] | BadLine] = [list(row) for row in zip(*cells, strict=True)]
    if size > limits.MAX_LINE_BYTES or any(map(_is_unclean, texts)):
        rows = [row if isinstance(row, BadLine) else _clean(row) for row in rows]
    return rows


def _to_text(column: pa.Array) -> pa.Array:
    """A column as large strings or lists of them, checked."""
    import pyarrow as pa

    wanted = text_type(column.type)
    if wanted is None:
        raise TypeError(f"columns of type {column.type} have no text")
    # First without a look at the text: sound offsets and indices, before anything follows them.
    column.validate()
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        if "UTF8" in str(error):
            raise UnicodeDecodeError("utf-8", b"", 0, 1, "invalid text") from error
        raise
    return column if column.type == wanted else column.cast(wanted)


def _to_cells(text: pa.Array, is_list: bool) -> list[Cell]:
    import pyarrow as pa

    if pa.types.is_large_list(text.type):
        found = _to_tuples(text)
        return list(map(_unique, found)) if is_list else [join_list(row) for row in found]
    # Through numpy: to_pylist makes an object of pyarrow for each value first.
    cells: list[Cell] = text.fill_null("").to_numpy(zero_copy_only=False).tolist()
    return cells


def _to_tuples(lists: pa.Array) -> list[tuple[str, ...]]:
    """The items of each list, stripped and not empty."""
    import pyarrow.compute as pc

    items = lists.flatten().fill_null("").to_numpy(zero_copy_only=False).tolist()  # without those of null lists
    lengths = pc.list_value_length(lists).fill_null(0).to_pylist()
    ends = list(accumulate(lengths))
    return [
        tuple(filter(None, map(str.strip, items[end - length : end]))) if length else ()
        for length, end in zip(lengths, ends, strict=True)
    ]


def _unique(items: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(items)) if len(items) > 1 else items


def _is_unclean(text: pa.Array) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    flat = text.flatten() if pa.types.is_large_list(text.type) else text
    return bool(pc.any(pc.match_substring_regex(flat, _UNCLEAN)).as_py())


def _clean(row: list[Any]) -> list[Cell] | BadLine:
    """A row whose cells are each on one line, or why it is bad."""
    texts = [text for cell in row for text in ((cell,) if isinstance(cell, str) else cell)]
    if sum(map(len, texts)) > limits.MAX_LINE_BYTES:
        return BadLine(LINE_TOO_LONG, texts[0])
    if any("\0" in text for text in texts):
        return BadLine(NUL_CHARACTER, " ".join(texts))
    return [
        BREAKS.sub(" ", cell)
        if isinstance(cell, str)
        else _unique(tuple(filter(None, (BREAKS.sub(" ", item).strip() for item in cell))))
        for cell in row
    ]
