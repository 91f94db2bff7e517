"""Objects out of JSON Lines, and their values as text."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from ingest.base.format import PathLike
from ingest.io import limits
from ingest.io.streams import STDIN, ByteSource, Source
from ingest.io.text_check import HEAD_BYTES
from pearl_qdrant.cells import join_list
from pearl_qdrant.errors import InputError

INVALID_JSON = "invalid_json"
NOT_AN_OBJECT = "not_an_object"
NESTED_TOO_DEEP = "nested_too_deep"

_BOM = b"\xef\xbb\xbf"

# Numbers with a point stay as they are written: 1.10 may be an id.
_decoder = msgspec.json.Decoder(dict[str, Any], float_hook=str)


def decode_object(line: str | bytes) -> dict[str, Any] | str:
    """The object of a line, or the reason why there is none."""
    try:
        return _decoder.decode(line)
    except msgspec.ValidationError as error:  # also for a number of over 4,300 digits
        return NOT_AN_OBJECT if "`object`" in str(error) else INVALID_JSON
    except RecursionError:
        return NESTED_TOO_DEEP
    except ValueError:  # also UnicodeDecodeError
        return INVALID_JSON


def to_text(value: object) -> str:
    """A value as the text of a cell: a list joined by ``|``, an object as JSON.

    Raises:
        RecursionError: If it is nested too deep.
        ValueError: If it is a number of over 4,300 digits.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        return join_list(filter(None, (to_text(item).strip() for item in value)))
    return msgspec.json.encode(value).decode()


def to_cell(value: object) -> str | tuple[str, ...] | None:
    """A value as a cell of aliases or types: the texts of a list, any other value as `to_text`.

    Returns:
        The cell; None for an object, and for a list with lists or objects in it.

    Raises:
        ValueError: As `to_text`.
    """
    if not isinstance(value, list):
        return None if isinstance(value, dict) else to_text(value)
    texts = []
    for item in value:
        if type(item) is str:
            texts.append(item.strip())
        elif is_nested(item):
            return None
        else:
            texts.append(to_text(item))
    return tuple(dict.fromkeys(filter(None, texts)))


def is_nested(value: object) -> bool:
    """Whether a value is a list or an object, which no id or name is."""
    return isinstance(value, (list, dict))


def first_objects(source: ByteSource) -> list[dict[str, Any]]:
    """The objects in the first lines of a file. Raises as `ByteSource.head`."""
    found = (decode_object(line) for line in _first_lines(source))
    return [one for one in found if isinstance(one, dict)]


def _first_lines(source: ByteSource) -> list[bytes]:
    """The first lines that are whole and not blank; at least one, unless it is longer than a line may be."""
    for n_bytes in (HEAD_BYTES, limits.MAX_LINE_BYTES + 1):
        head = source.head(n_bytes)
        is_all = len(head) < n_bytes
        lines = head.removeprefix(_BOM).split(b"\n")
        whole = [line for line in (lines if is_all else lines[:-1]) if line.strip()]
        if is_all or whole:
            return whole
    return []


def is_jsonl(path: PathLike) -> bool:
    """Whether the first line of a file is a JSON object, and the second one, if there is one. Never raises."""
    if os.fspath(path) == STDIN or not os.path.isfile(path):  # noqa: PTH113 - a path with NUL is no error here
        return False
    try:
        source = Source(path)
        if source.head(1 << 10).removeprefix(_BOM).lstrip()[:1] != b"{":
            return False
        lines = _first_lines(source)[:2]
    except InputError:
        return False
    return bool(lines) and all(isinstance(decode_object(line), dict) for line in lines)
