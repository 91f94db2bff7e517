"""Objects of JSON files: one a line (JSON Lines, dumps with an array around the lines), or anywhere in documents.

Documents of any size are read as a stream.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import msgspec
from pydantic_core import from_json

from ingest.io import limits, reasons
from ingest.io.encoding import BOM, HEAD_BYTES, BadLine, byte_lines
from ingest.io.report import make_excerpt
from ingest.io.streams import ByteSource
from ingest.readers.headers import columns_of
from pearl_qdrant.errors import FormatError

_BINDINGS = "results.bindings.item"  # of SPARQL's results
_EXCERPT = 1 << 8
_MAX_SKIPPED_DEPTH = 4  # levels of what is passed over that are read piece by piece
_MANY = 20  # objects by key, which are no fields of one
_MAX_LEVELS = 12  # in which objects are looked for
_SURVEYED = 4 << 20  # bytes, in which the lists of objects are found
_DOCUMENT = re.compile(
    rb'\{(?:\s*"[^"\\]{1,60}"\s*:\s*(?:"[^"\\]*"|[\w.+-]+|\{[^{}\[\]]*\}|\[[^{}\[\]]*\])\s*,)*'
    rb'\s*"[^"\\]{1,60}"\s*:\s*\[\s*\{|\{\s*"[^"\\]{1,60}"\s*:\s*\{'
)
_OF_RECORDS = frozenset("id @id _id name label title".split())
_SPACE = re.compile(r"[ \t\r\n]*")
_SURROGATE = re.compile(r"\\u[dD][89A-Fa-f]")
# Numbers with a point stay as they are written: 1.10 may be an id.
_decoder = msgspec.json.Decoder(dict[str, Any], float_hook=str)

Record = tuple[int, dict[str, Any] | BadLine]


def decode_object(line: bytes) -> dict[str, Any] | str:
    """The object of a line, or the reason why there is none."""
    try:
        return _decoder.decode(line)
    except msgspec.ValidationError as error:  # also for a number of over 4,300 digits
        return reasons.NOT_AN_OBJECT if "`object`" in str(error) else reasons.INVALID_JSON
    except RecursionError:
        return reasons.NESTED_TOO_DEEP
    except UnicodeDecodeError:
        return reasons.INVALID_UTF8
    except ValueError:
        return reasons.INVALID_JSON


def is_lines(head: bytes) -> bool:
    """Whether a file has an object a line, perhaps in an array: the first one is whole, or longer than the head."""
    text = head.removeprefix(BOM).lstrip()
    items = list(filter(None, map(_trim, text.split(b"\n"))))
    if not items or not items[0].startswith(b"{"):
        return False
    is_document = _DOCUMENT.match(text) is not None
    if len(items) == 1 and len(head) >= HEAD_BYTES:
        return not text.startswith(b"[{") and not is_document
    is_array = text.startswith(b"[")
    if isinstance(decode_object(items[0]), dict):
        return len(items) > 1 or is_array or not is_document
    is_whole = not text.startswith(b"[{") and items[0].endswith(b"}")  # a damaged line
    is_open = items[0].count(b"{") > items[0].count(b"}")  # that of a document, with the first of its list
    return is_whole and not is_open and len(items) > 1 and items[1].startswith(b"{")


def _trim(line: bytes) -> bytes:
    """A line without the comma at its end, and without the brackets of an array around the lines."""
    line = line.strip()
    if line.endswith(b","):
        line = line[:-1].rstrip()
    if line.startswith(b"["):
        line = line[1:].lstrip()
    return line[:-1].rstrip() if line == b"]" or line.endswith(b"}]") else line


def read_records(source: ByteSource, *, prefix: str | None = None, wanted: bytes = b"") -> Iterator[Record]:
    """Objects with their line, or their number in the file where they are not lines; bad ones as `BadLine`. `prefix`:
    where the objects are, as a path of `read_values`; None: one on each line. Lines without the bytes `wanted` are left
    out. Raises FormatError if the file is not JSON, or ends early; with the object that was reached.
    """
    if not source.head(HEAD_BYTES).removeprefix(BOM).strip():
        raise FormatError(source.path, None, "has no JSON object at its start")
    yield from _read_lines(source, wanted) if prefix is None else _read_items(source, prefix)


def _read_lines(source: ByteSource, wanted: bytes) -> Iterator[Record]:
    for number, line in byte_lines(source, max_bytes=limits.MAX_ITEM_BYTES):
        if isinstance(line, BadLine):
            yield number, line
        elif wanted in line and (item := _trim(line)):
            found: dict[str, Any] | str = reasons.NUL_CHARACTER if b"\0" in item else decode_object(item)
            if isinstance(found, str):
                yield number, BadLine(found, item[:_EXCERPT].decode("utf-8", "replace"))
            else:
                yield number, found


@dataclass(slots=True)
class Place:
    """Where objects are in a file: a path of `read_values`, how many were seen there, and the keys of the first."""

    path: str
    n: int
    keys: set[str]

    @property
    def may_have_names(self) -> bool:
        return "attributes" in self.keys or bool(columns_of([*self.keys], "name"))  # as those of JSON:API


def find_places(source: ByteSource) -> tuple[set[str], list[Place]] | None:
    """The keys of the whole document, "" among them if it is an array, and the outermost lists and maps of objects of
    one shape in its beginning, the largest first; None if the objects are one a line. Never raises.
    """
    head = source.head(HEAD_BYTES).removeprefix(BOM).lstrip()
    if is_lines(head) and (head.startswith(b"[") or sum(bool(line.strip()) for line in head.split(b"\n", 9)) > 1):
        return None
    document, places = _beginning(source), list[Place]()
    keys = _survey(document, (), places)
    keys = {""} if isinstance(document, list) else keys or set()
    return keys, sorted(places, key=lambda place: -place.n)


def _beginning(source: ByteSource) -> Any:
    """The first document of a file, as far as it goes in its first `_SURVEYED` bytes; None if it is damaged."""
    data = source.head(_SURVEYED).removeprefix(BOM)
    try:
        return json.JSONDecoder().raw_decode(data.decode("utf-8", "replace").lstrip())[0]
    except (ValueError, RecursionError):
        with suppress(ValueError):
            return from_json(data, allow_partial=True)
    return None


def _survey(value: Any, path: tuple[str, ...], places: list[Place]) -> set[str] | None:
    """The keys of an object, else None. Takes down the places in a value, unless it is one itself."""
    if not isinstance(value, (dict, list)):
        return None
    is_list, n_places = isinstance(value, list), len(places)
    items = zip(repeat("item"), value) if isinstance(value, list) else value.items()
    found = list[set[str]]()
    for key, one in items:
        steps = (*path, "*" if "." in key else key)
        inner = _survey(one, steps, places) if len(path) < _MAX_LEVELS else set(one) if isinstance(one, dict) else None
        if inner is not None:
            found.append(inner)
    alike = [one for one in found if 2 * len(found[0] & one) >= len(found[0] | one) > 0]  # most keys of the first
    is_map = len(found) > max(1, 0.8 * len(value)) and len(alike) > 0.8 * len(found)
    if found and (is_list or is_map or len(found) == len(value) > _MANY):
        del places[n_places:]
        places.append(Place(".".join((*path, "item" if is_list else "*")), len(found), set().union(*found)))
    return None if is_list else set(value)


def choose_place(
    path: str, found: tuple[set[str], list[Place]] | None, wanted: str | None, *, is_record: bool
) -> str | None:
    """Where the objects of a file are, as a path of `read_values`: the one that is wanted, else the largest of
    `find_places`, or the document itself if it `is_record` or has no others; None: one on each line. Raises FormatError
    if it may be either.
    """
    if wanted is not None:
        plain = wanted.strip(".").removesuffix(".item").removesuffix(".*")
        paths = [one.path for one in found[1]] if found is not None else []
        return next((one for one in paths if one.rpartition(".")[0] == plain), f"{plain}.*" if plain else "")
    if found is None:
        return None
    keys, places = found
    if is_record or not places:
        return ""
    first = places[0]
    header = sorted(keys)
    is_entity = bool(columns_of(header, "id") and columns_of(header, "name"))
    if first.path not in ("item", "*", "children.item") and is_entity and "resourceType" not in keys:
        if first.n > 1 and first.keys & _OF_RECORDS and len(places) == 1:
            where = first.path.rpartition(".")[0]
            message = (
                f"is one object with an id or a name of its own, and a list '{where}' of {first.n:,} objects. Say "
            )
            raise FormatError(path, None, f"{message}which are the records: '.' or '{where}'", option="records")
        return ""
    return "" if is_entity and first.path == "children.item" else first.path


def _read_items(source: ByteSource, prefix: str) -> Iterator[Record]:
    *_, last = ("", *prefix.removesuffix(".item").removesuffix(".*").split("."))
    for number, (_, _, key, item) in enumerate(read_values(source, prefix), start=1):
        if not isinstance(item, dict):
            yield number, BadLine(reasons.NOT_AN_OBJECT, str(item)[:_EXCERPT])
            continue
        if prefix == _BINDINGS:  # {"item": {"type": "uri", "value": ...}}
            item = {name: one.get("value") if isinstance(one, dict) else one for name, one in item.items()}
        elif prefix.endswith("*") and key not in ("item", str(number - 1)):
            item.setdefault("id", key)
        yield from with_nested((number, item), last)


def with_nested(record: Record, key: str = "children") -> Iterator[Record]:
    """An object, and those that it holds in a list under this key, and so on."""
    number, item = record
    waiting = [item]
    while waiting:
        item = waiting.pop()
        inner = item.get(key) if isinstance(item, dict) else None
        inner = [inner] if isinstance(inner, dict) and inner else inner
        if isinstance(item, dict) and isinstance(inner, list) and inner and all(isinstance(one, dict) for one in inner):
            waiting += reversed(inner)
            item = {name: value for name, value in item.items() if name != key}
        yield number, item


def unwrap(record: dict[str, Any], key: str) -> dict[str, Any]:
    """The object that an object of a list holds, as those of Elasticsearch, GeoJSON and GraphQL do, with its id."""
    inner = record.get(key)
    rest = {name: value for name, value in record.items() if name not in (key, "geometry", "bbox")}
    if key in ("properties", "tags"):  # of GeoJSON and OpenStreetMap, whose types are shapes
        rest.pop("type", None)
    return {**rest, **inner} if isinstance(inner, dict) else record


WRAPPED = ("_source", "node", "properties", "attributes", "fields", "document", "resource", "tags", "data", "row")
"""Keys of the object proper in an object of a list; those of `WITH_ID` if the id is in it, too."""

WITH_ID = ("data", "row")


def read_values(source: ByteSource, *paths: str) -> Iterator[tuple[int, str, str, Any]]:
    """Values at some paths of the documents of a file, each with its line, path and key; they are held one at a time. A
    path is keys joined by points: ``item`` is each element of an array, ``*`` any key, "" a whole document. Raises
    FormatError if the file is not JSON, ends early, or has a value that is larger than one may be.
    """
    stream = _Stream(source)
    while stream.peek():
        yield from stream.find({path: ["", *filter(None, path.split("."))] for path in paths}, 0, [""])


class _Stream:
    """Reads JSON piece by piece; only what `value` returns is held in memory."""

    def __init__(self, source: ByteSource) -> None:
        self._path = source.path
        self._chunks = source.chunks()
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._parse = json.JSONDecoder(parse_float=str, parse_constant=_refuse, strict=False).raw_decode
        self._text, self._place, self._counted, self._line = "", 0, 0, 1
        self._is_ended = False

    def find(self, paths: dict[str, list[str]], depth: int, keys: Iterable[str]) -> Iterator[tuple[int, str, str, Any]]:
        """What is at the paths, whose first steps led here, of the next values, which have these keys."""
        last, found, inside = None, None, dict[str, list[str]]()
        for key in keys:
            if key != last:  # in an array it is the same for all elements
                last, inside = key, {path: steps for path, steps in paths.items() if steps[depth] in ("*", key)}
                found = next((path for path, steps in inside.items() if len(steps) == depth + 1), None)
            opening = self.peek()
            if found is not None:
                yield self._count_lines(), found, key, self.value()
            elif opening in ("[", "{") and (inside or depth < _MAX_SKIPPED_DEPTH):
                yield from self.find(inside, depth + 1, self.keys("]" if opening == "[" else "}"))
            else:
                self.value()

    def peek(self) -> str:
        """The next character that is not space; empty at the end."""
        while True:
            self._place = _SPACE.match(self._text, self._place).end()  # type: ignore[union-attr] # matches anything
            if self._place < len(self._text):
                return self._text[self._place]
            if not self._fill(1):
                return ""

    def keys(self, closing: str) -> Iterator[str]:
        """Keys of the object or array that begins here; the caller consumes the value of each."""
        self._place += 1
        if self.peek() == closing:
            self._place += 1
            return
        while True:
            if closing == "]":
                yield "item"
            else:
                key = self.value()
                self._take(":")
                yield str(key)
            if self.peek() == closing:
                self._place += 1
                return
            self._take(",")

    def _take(self, sign: str) -> None:
        if self.peek() != sign:
            raise self._error(f"is not valid JSON, or ends early (expected {sign!r})")
        self._place += 1

    def value(self) -> Any:
        self.peek()
        while True:
            try:
                value, end = self._parse(self._text, self._place)
            except RecursionError as error:
                raise self._error("has an object that is nested too deep") from error
            except ValueError as error:
                size = len(self._text) - self._place
                if size > limits.MAX_ITEM_BYTES:
                    message = f"has an object of over {limits.MAX_ITEM_BYTES:,} bytes. Is it a base?"
                    raise self._error(message) from error
                what, place = getattr(error, "msg", str(error)), getattr(error, "pos", self._place)
                where = make_excerpt(self._text[max(self._place, place - 30) : place + 30])
                if not self._fill(2 * size):
                    raise self._error(f"is not valid JSON, or ends early ({what}, in: {where})") from error
                continue
            if end == len(self._text) and self._fill(1):  # a number may go on
                continue
            if _SURROGATE.search(self._text, self._place, end):  # lone ones are no text that could be stored
                value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
            self._place = end
            return value

    def _fill(self, n_chars: int) -> bool:
        """Read on until there are this many more characters; False if nothing was left."""
        if self._is_ended:
            return False
        self._count_lines()
        parts, size = [self._text[self._place :]], 0
        try:
            while size < n_chars and not self._is_ended:
                chunk = next(self._chunks, b"")
                self._is_ended = not chunk
                parts.append(self._decode(chunk, final=not chunk))
                size += len(parts[-1])
        except UnicodeDecodeError as error:
            raise self._error(f"is not valid UTF-8 ({error.reason})") from error
        self._text, self._place, self._counted = "".join(parts), 0, 0
        return size > 0

    def _count_lines(self) -> int:
        self._line += self._text.count("\n", self._counted, self._place)
        self._counted = self._place
        return self._line

    def _error(self, message: str) -> FormatError:
        return FormatError(self._path, self._count_lines(), message)


def _refuse(constant: str) -> Any:
    raise ValueError(constant)  # NaN and Infinity are no JSON
