"""Objects of JSON files: one a line (JSON Lines), or in an array, a wrapper, or one after the other (through ijson)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from ingest.io import limits
from ingest.io.lines import BOM, BadLine, byte_lines
from ingest.io.report import INVALID_UTF8, NUL_CHARACTER
from ingest.io.source import ByteSource
from ingest.io.text_check import HEAD_BYTES
from pearl_qdrant.errors import FormatError

INVALID_JSON = "invalid_json"
NOT_AN_OBJECT = "not_an_object"
NESTED_TOO_DEEP = "nested_too_deep"

MAX_DEPTH = 200
"""Levels of an object; deeper ones are no names."""

_BINDINGS = "results.bindings.item"  # of SPARQL's results
_EXCERPT = 1 << 8
# Numbers with a point stay as they are written: 1.10 may be an id.
_decoder = msgspec.json.Decoder(dict[str, Any], float_hook=str)

Record = tuple[int, dict[str, Any] | BadLine]


def decode_object(line: bytes) -> dict[str, Any] | str:
    """The object of a line, or the reason why there is none."""
    try:
        return _decoder.decode(line)
    except msgspec.ValidationError as error:  # also for a number of over 4,300 digits
        return NOT_AN_OBJECT if "`object`" in str(error) else INVALID_JSON
    except RecursionError:
        return NESTED_TOO_DEEP
    except UnicodeDecodeError:
        return INVALID_UTF8
    except ValueError:
        return INVALID_JSON


def is_lines(head: bytes) -> bool:
    """Whether a file has an object a line: the first line that is not blank is one, or is longer than the head."""
    text = head.removeprefix(BOM).lstrip()
    first, newline, rest = text.partition(b"\n")
    if not text.startswith(b"{"):
        return False
    if isinstance(decode_object(first.strip()), dict):
        return bool(rest.strip()) or not _find_prefix(text)
    if first.rstrip().endswith(b"}") and rest.lstrip().startswith(b"{"):  # its first line is damaged
        return True
    return not newline and len(head) >= HEAD_BYTES and _wrapper(text) is None


def looks_like_json(head: bytes) -> bool:
    """Whether a file begins with an object, or an array of objects."""
    return re.match(rb"(?:\xef\xbb\xbf)?\s*(?:\[\s*)?\{\s*[\"}]", head) is not None


def read_records(source: ByteSource, *, prefix: str | None = None) -> Iterator[Record]:
    """Objects with their line, or their number in the file where they are not lines; bad ones as `BadLine`.

    Args:
        source: UTF-8 text.
        prefix: Where the objects are, in ijson's words (``results.bindings.item``); None: found.

    Raises:
        FormatError: If the file is not JSON, or ends early; with the object that was reached.
    """
    head = source.head(HEAD_BYTES)
    if not head.removeprefix(BOM).strip():
        raise FormatError(source.path, None, "has no JSON object at its start")
    if prefix is None and is_lines(head):
        yield from _read_lines(source)
        return
    yield from _read_items(source, _find_prefix(head.removeprefix(BOM)) if prefix is None else prefix)


def _read_lines(source: ByteSource) -> Iterator[Record]:
    for number, line in byte_lines(source, max_bytes=limits.MAX_ITEM_BYTES):
        if isinstance(line, BadLine):
            yield number, line
        elif line and not line.isspace():
            found: dict[str, Any] | str = NUL_CHARACTER if b"\0" in line else decode_object(line)
            yield (
                number,
                BadLine(found, line[:_EXCERPT].decode("utf-8", "replace")) if isinstance(found, str) else found,
            )


def _wrapper(text: bytes) -> str | None:
    """The key of the first array of objects, or object of objects, in a wrapping object."""
    found = re.match(rb'\{(?:\s*"[^"\\]{1,60}"\s*:\s*(?:"[^"\\]*"|[\w.+-]+|\{[^{}\[\]]*\}|\[[^{}\[\]]*\])\s*,)*'
                     rb'\s*"([^"\\]{1,60})"\s*:\s*\[\s*\{', text)  # fmt: skip
    return None if found is None else found[1].decode("utf-8", "replace")


def _find_prefix(head: bytes) -> str:
    text = head.lstrip()
    if text.startswith(b"["):
        return "item"
    if re.match(rb'\{\s*"head"\s*:', text) and b'"bindings"' in text:
        return _BINDINGS
    if re.match(rb'\{\s*"[^"\\]{1,60}"\s*:\s*\{', text) and _wrapper(text) is None:
        return "*"  # from ids to objects
    key = _wrapper(text)
    # An object with an id of its own and a list of objects in it is a record, and no wrapper.
    is_record = key is not None and re.search(rb'"(?:id|@id|_id|name)"\s*:\s*"', text[: text.find(b"[")]) is not None
    return "" if key is None or is_record else f"{key}.item"


class _File:
    """A source as a file; a single object that takes more bytes than one may have is an error."""

    def __init__(self, source: ByteSource) -> None:
        self._path, self._chunks = source.path, source.chunks()
        self._rest = next(self._chunks, b"").removeprefix(BOM)
        self.n_since = 0

    def read(self, n_bytes: int = -1, /) -> bytes:
        if not self._rest:
            self._rest = next(self._chunks, b"")
        data, self._rest = self._rest[:n_bytes], self._rest[n_bytes:]
        self.n_since += len(data)
        if self.n_since > 2 * limits.MAX_ITEM_BYTES:
            raise FormatError(self._path, None, f"has an object of over {limits.MAX_ITEM_BYTES:,} bytes. Is it a base?")
        return data


def _read_items(source: ByteSource, prefix: str) -> Iterator[Record]:
    import ijson

    file, number = _File(source), 0
    try:
        events = ijson.basic_parse(file, multiple_values=True, use_float=True, buf_size=1 << 16)
        for key, item in _build(events, prefix.split(".") if prefix else []):
            number += 1
            file.n_since = 0
            if isinstance(item, dict):
                if prefix == _BINDINGS:  # {"item": {"type": "uri", "value": ...}}
                    item = {name: one.get("value") if isinstance(one, dict) else one for name, one in item.items()}
                elif prefix == "*":
                    item.setdefault("id", key)
                yield number, item
            else:
                yield number, BadLine(NOT_AN_OBJECT, str(item)[:_EXCERPT])
    except _TooDeepError:
        message = f"has an object that is nested over {MAX_DEPTH} levels deep"
        raise FormatError(source.path, number or None, message) from None
    except (ijson.JSONError, UnicodeDecodeError) as error:
        message = f"is not valid JSON ({' '.join(str(error).split())[:120]})"
        raise FormatError(
            source.path, number or None, f"after this object, {message}" if number else message
        ) from error


class _TooDeepError(Exception):
    """Containers inside containers, more than `MAX_DEPTH`."""


def _build(events: Iterator[tuple[str, Any]], prefix: list[str]) -> Iterator[tuple[str, Any]]:
    """Values at a path out of the events of a parser, each with its key; nothing else is held."""
    keys: list[str] = []  # of each open container: its key at the moment, or "item"
    open_ones: list[Any] = []  # the containers inside the value that is built
    depth = len(prefix)
    for event, value in events:
        if event == "map_key":
            keys[-1] = value
            continue
        if event in ("start_map", "start_array"):
            if len(keys) >= MAX_DEPTH:
                raise _TooDeepError
            if len(keys) >= depth and (open_ones or _matches(keys, prefix)):
                open_ones.append({} if event == "start_map" else [])
            keys.append("" if event == "start_map" else "item")
            continue
        if event in ("end_map", "end_array"):
            keys.pop()
            if not open_ones:
                continue
            value = open_ones.pop()
        if open_ones:
            parent = open_ones[-1]
            if isinstance(parent, dict):
                parent[keys[-1]] = value
            else:
                parent.append(value)
        elif len(keys) == depth and _matches(keys, prefix):
            yield keys[-1] if keys else "", value


def _matches(keys: list[str], prefix: list[str]) -> bool:
    return len(keys) == len(prefix) and all(step in ("*", key) for key, step in zip(keys, prefix, strict=True))
