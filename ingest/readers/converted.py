"""XML with a flat list of records, and YAML, as the JSON that `json_records` reads.

An element becomes an object: its attributes and the elements in it by their names without prefix, those of one name a
list, its text under ``value`` where it has attributes, too. Elements that all have a ``name`` go by it
(``<binding name="item">``); an element around a list of one kind is left out (``SynonymList``), as are marks of the
language, and those inside a text. YAML is read without types, so that ``NO`` and ``007`` stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from html.entities import name2codepoint
from itertools import chain
from typing import Any
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

import msgspec

from ingest.io import limits
from ingest.io.encoding import Utf8Source
from ingest.io.streams import ByteSource, check_expansion
from pearl_qdrant.errors import FormatError

_SURVEYED = 40_000  # elements, in which the records are looked for
_MAX_YAML = 64 << 20  # bytes of a document, which is held as a whole
_NAME_SPACE_END = "}"
_OF_TEXTS = ("lang", "space")  # attributes that leave a text what it is
_LEAST_COMMON = 3  # letters of the name of a list and those of its elements


class XmlSource(ByteSource):
    """XML as JSON Lines, an object for each record: for each element at the path that is wanted, else at the place
    where most elements of one name are, and none around them is repeated.
    """

    def __init__(self, source: ByteSource, wanted: str | None) -> None:
        self.path, self._source = source.path, source
        self.others: list[tuple[str, int]] = []  # lists that are not read, known with the place
        self._wanted = tuple(filter(None, wanted.split("."))) if wanted is not None else None

    @property
    def about(self) -> str:
        return f"XML, the elements '{'.'.join(self.place)}'"

    @cached_property
    def place(self) -> tuple[str, ...]:
        """The names of the records and of the elements around them. Raises FormatError if there is none."""
        counts = Counter[tuple[str, ...]]()

        def is_enough(path: Sequence[str]) -> bool:
            counts[tuple(path)] += 1
            is_full = counts.total() > _SURVEYED
            counts.update(tuple(path[:i]) for i in range(1, len(path) if is_full else 0))  # those that are open
            return is_full

        next(read_elements(self._source, is_enough), None)
        if self._wanted is not None:
            found = [path for path in counts if path[-len(self._wanted) :] == self._wanted]
            found = [path for path in found if not any(path[:i] in found for i in range(1, len(path)))]
        else:
            found = [
                path for path, n in counts.items() if n > 1 and all(counts[path[:i]] == 1 for i in range(1, len(path)))
            ]
        if found:
            best = max(found, key=lambda path: counts[path])
            inner = {path[:-1] for path in counts}
            self.others = [(".".join(path), counts[path]) for path in found if path != best and path in inner]
            return best
        names = ", ".join(sorted({".".join(path) for path in counts})[:20])
        what = "repeats" if self._wanted is None else f"is at '{'.'.join(self._wanted)}'"
        message = f"is XML that is no known base of names, and no element {what} (there are: {names})"
        raise FormatError(self.path, None, f"{message}. Name the path of its records", option="records")

    def chunks(self) -> Iterator[bytes]:
        place = self.place
        for _, element in read_elements(self._source, lambda path: tuple(path) == place):
            yield msgspec.json.encode(_as_object(element)) + b"\n"


def _as_object(element: Element) -> dict[str, Any]:
    found: dict[str, Any] = {_local(key): value for key, value in element.attrib.items()}
    filled = [inner for inner in element if inner.tag != element.tag and (len(inner) or text_of(inner))]
    is_named = len({inner.get("name") for inner in filled}) == len(element) > 0
    for inner in element:
        key, value = _local(inner.tag), _value_of(inner)
        if is_named and (name := inner.get("name")):
            one = inner[0] if len(inner) == 1 else inner
            key, value = name, text_of(one) or _value_of(one)
        elif (listed := _listed(inner)) and listed not in found:
            key, value = listed, [_value_of(one) for one in inner]
        if key in found:
            found[key] = [*found[key], value] if isinstance(found[key], list) else [found[key], value]
        else:
            found[key] = value
    if text := text_of(element):
        found.setdefault("value", text)
    return found


def _value_of(element: Element) -> Any:
    """An element as a text, if it has no more than one; else as an object."""
    if text_of(element) and len(element):
        return " ".join("".join(element.itertext()).split())
    if not len(element) and list(element.attrib) == ["value"] and not text_of(element):  # as FHIR writes texts
        return element.attrib["value"]
    is_text = not len(element) and all(_local(key) in _OF_TEXTS for key in element.attrib)
    return text_of(element) if is_text else _as_object(element)


def _listed(element: Element) -> str:
    """The name of the elements in one that is there for them alone, as in ``akaList`` and ``aliases``; else ""."""
    names = {_local(inner.tag) for inner in element}
    if len(names) != 1 or text_of(element) or not all(value.isdecimal() for value in element.attrib.values()):
        return ""
    name = names.pop()
    stem = name.casefold()[: max(_LEAST_COMMON, len(name) - 1)]  # categories, category
    return name if _local(element.tag).casefold().startswith(stem) else ""


def text_of(element: Element | None) -> str:
    """The text at the start of an element, on one line; "" if there is none."""
    return "" if element is None else " ".join((element.text or "").split())


def _local(name: str) -> str:
    return name.rpartition(_NAME_SPACE_END)[2]


def read_elements(source: ByteSource, is_wanted: Callable[[Sequence[str]], bool]) -> Iterator[tuple[int, Element]]:
    """The line after each element whose path of names is wanted, and the element; what was read is let go. Raises
    FormatError if the file is damaged, declares an entity, or has too large an element.
    """
    parser: Any = XMLPullParser(("start", "end"))
    parser._parser.entity.update({name: chr(code) for name, code in name2codepoint.items()})  # those of DTDs for texts
    line, n_bytes, path, names = 1, 0, list[Element](), list[str]()
    try:
        for chunk in chain(source.chunks(), (None,)):
            if chunk is None:
                parser.close()
                return
            if b"<!ENTITY" in chunk or n_bytes > limits.MAX_ITEM_BYTES:
                message = f"declares an entity, or has a record of over {limits.MAX_ITEM_BYTES:,} bytes. Is it a base?"
                raise FormatError(source.path, line, message)
            parser.feed(chunk)
            line, n_bytes = line + chunk.count(b"\n"), n_bytes + len(chunk)
            for event, element in parser.read_events():
                if event == "start":
                    path.append(element)
                    names.append(_local(element.tag))
                    continue
                if is_wanted(names):
                    n_bytes = 0
                    yield line, element
                    for above in path[:-1]:
                        above.clear()
                path.pop()
                names.pop()
    except ParseError as error:
        raise FormatError(source.path, line, f"is damaged or cut off ({error}). Fetch it again") from error


class YamlSource(ByteSource):
    """YAML as one document of JSON, or as a list of its documents."""

    about = "YAML"

    def __init__(self, source: ByteSource) -> None:
        self.path, self._source = source.path, Utf8Source(source)

    def chunks(self) -> Iterator[bytes]:
        """Raises FormatError if it is no YAML, is too large, or refers to itself so that it grows without end."""
        import yaml

        loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
        data = self._source.head(_MAX_YAML + 1)
        if len(data) > _MAX_YAML:
            raise FormatError(self.path, None, f"is YAML of over {_MAX_YAML:,} bytes (limit). Convert it to JSON Lines")
        try:
            documents = list(yaml.load_all(data.decode("utf-8", "replace"), Loader=loader))
            check_expansion(self.path, len(data), _size(documents, {}), "YAML")
            yield msgspec.json.encode(documents[0] if len(documents) == 1 else documents)
        except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
            raise FormatError(self.path, None, f"is no YAML that can be read ({error})") from error


def _size(value: Any, known: dict[int, int]) -> int:
    """The characters of a value, those of what it refers to each time; `known`: of what was met, by its identity."""
    if isinstance(value, str):
        return len(value)
    if id(value) not in known:
        known[id(value)] = 0
        inner = chain.from_iterable(value.items()) if isinstance(value, dict) else value
        known[id(value)] = 2 + sum(_size(one, known) for one in inner)
    return known[id(value)]
