"""Native types of a base and those above them, and the coarse OntoNotes types of a table (`type_map.tsv` in this
folder).

The graph of classes takes 8 bytes an edge: 40 MB for all of Wikidata. Cycles are harmless. A walk ends at a maximal
number of classes.
"""

from __future__ import annotations

import math
import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import lru_cache
from hashlib import sha256
from importlib import resources
from itertools import islice
from typing import Any, Generic, TypeVar

import numpy as np

from ingest.io.streams import open_source
from pearl_qdrant.errors import FormatError, InvalidEntityError
from pearl_qdrant.phrase_types import ENTITY_TYPES
from pearl_qdrant.records import Entity

SHIPPED = "type_map.tsv"

MAX_BYTES = 1 << 22  # Bytes of a table; one with a row for each of 100,000 classes has half as many

_VERSION_MARK = "# version:"
_CACHED = 1 << 16
_MAX_CACHED_LENGTH = 1 << 10  # of a type: damaged files have some as long as a line


class TypeMap:
    """Maps native types to coarse ones; a type that is not in the table has no coarse type. `version` is that of the
    table and the start of its hash, such as "1-3f9a0c2b".
    """

    def __init__(self, coarse_of: Mapping[str, str], *, version: str) -> None:
        """Make a map from native types to coarse types ("" for none). The 19 coarse types map to themselves."""
        self.version = version
        self._coarse_of = {native: native for native in ENTITY_TYPES}
        self._coarse_of.update((_fold(native), coarse) for native, coarse in coarse_of.items())
        self._remember = lru_cache(maxsize=_CACHED)(self._look_up)

    @classmethod
    def load(cls, path: str | os.PathLike[str] | None = None) -> TypeMap:
        """The shipped table, with the rows of another table of the same form added, which win. Raises FormatError if it
        cannot be read, is too large for a table of types, a row is not a pair, or a coarse type is unknown.
        """
        shipped = resources.files("ingest.base").joinpath(SHIPPED).read_bytes()
        coarse_of, version = _parse(SHIPPED, shipped)
        if path is not None:
            more, own_version = _parse(os.fspath(path), _read(os.fspath(path)))
            coarse_of.update(more)
            version = f"{version}+{own_version}"
        return cls(coarse_of, version=version)

    def map_types(self, kb_types: Iterable[str]) -> tuple[str, ...]:
        """Coarse types of an entity, each once, in the order of its native types."""
        return tuple(dict.fromkeys(filter(None, map(self.coarse_type, kb_types))))

    def coarse_type(self, native: str) -> str | None:
        """The coarse type of a native type, or None."""
        return self._remember(native) if len(native) <= _MAX_CACHED_LENGTH else self._look_up(native)

    def _look_up(self, native: str) -> str | None:
        return self._coarse_of.get(_fold(native)) or None


default_types = lru_cache(maxsize=1)(TypeMap.load)
"""The shipped table."""


def _fold(native: str) -> str:
    """One spelling of a type: "Work of art", "work-of-art" and "WORK_OF_ART" are the same."""
    return "_".join(native.replace("-", " ").replace("_", " ").upper().split())


def _read(path: str) -> bytes:
    """The bytes of a table, not more than one can have."""
    with closing(open_source(path)) as source:
        content = source.head(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        message = f"has over {MAX_BYTES:,} bytes, more than a table of types can have. Is it another file?"
        raise FormatError(path, None, message)
    return content


def _parse(path: str, content: bytes) -> tuple[dict[str, str], str]:
    """Rows and version of a table."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(path, None, f"the type map is not valid UTF-8 (byte {error.start})") from error
    coarse_of: dict[str, str] = {}
    version = "unversioned"
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.rstrip("\r")
        if line.startswith(_VERSION_MARK):
            version = line.removeprefix(_VERSION_MARK).strip() or version
        if line.startswith("#") or not line.strip():
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) < 2 or not cells[0]:
            message = "expected a native type, a tab and a coarse type (or nothing after the tab, for none)"
            raise FormatError(path, number, message)
        coarse = cells[1].upper()
        if coarse and coarse not in ENTITY_TYPES:
            raise FormatError(path, number, f"'{cells[1]}' is not a coarse type. There are: {', '.join(ENTITY_TYPES)}")
        native = _fold(cells[0])
        if coarse_of.setdefault(native, coarse) != coarse:
            raise FormatError(path, number, f"'{cells[0]}' is mapped to both {coarse_of[native]} and {coarse}")
    return coarse_of, f"{version}-{sha256(content).hexdigest()[:8]}"


def make_entity(
    entity_id: str,
    name: str,
    *,
    aliases: Iterable[str] = (),
    kb_types: Iterable[str] = (),
    description: str | None = None,
    popularity: float | None = None,
    type_map: TypeMap | None = None,
) -> Entity:
    """Make an entity to add to a collection, as the readers do. Blank and repeated aliases are skipped; `popularity` is
    finite and >= 0, in the unit of the base. Raises InvalidEntityError if the id or the name is empty, or the
    popularity is not finite or below 0.
    """
    if not entity_id.strip() or not name.strip():
        raise InvalidEntityError("An entity needs an id and a name.")
    if popularity is not None and not 0 <= popularity < math.inf:
        raise InvalidEntityError(f"The popularity of an entity is a finite number of at least 0, not {popularity}.")
    native = tuple(kb_types)
    return Entity(
        entity_id=entity_id,
        canonical_name=name,
        aliases=tuple(alias for alias in dict.fromkeys(aliases) if alias.strip() and alias != name),
        kb_types=native,
        types=(type_map or default_types()).map_types(native),
        description=description,
        popularity=popularity,
    )


_MAX_KNOWN = 1 << 16
_STEPS = 8  # for each class: most have one or two parents

T = TypeVar("T")


def nearest_types(found: Iterable[T], heights: Iterable[int], type_of: Callable[[T], str | None]) -> tuple[str, ...]:
    """Types of the lowest classes of a walk that have any; those of higher classes are vaguer, or another sense."""
    types: dict[str, None] = {}
    lowest = 0
    for one, height in zip(found, heights, strict=True):
        if types and height > lowest:
            break
        if (coarse := type_of(one)) is not None:
            types[coarse] = None
            lowest = height
    return tuple(types)


class ClassGraph(Generic[T]):
    """Classes, their direct parents, and obsolete ids by the id that replaces them: 12 bytes an edge, and the parents'
    ids. A class is known by a 64-bit hash of Python, with a new seed in each process, so that nobody can make two
    collide. Where classes are numbers from 0 to 2^31 - 1 (`is_numbered`), they need no hash: 8 bytes an edge.
    """

    def __init__(self, *, is_numbered: bool = False) -> None:
        self.replaced: dict[T, list[T]] = {}
        self._children, self._parents = array("i" if is_numbered else "q"), array("i")
        self._numbers: dict[T, int] = {}
        self._ids: list[T] | None = None if is_numbered else []
        self._known: dict[T, tuple[T, ...]] = {}

    def add(self, child: T, parent: T) -> None:
        number = hash(parent) if self._ids is None else self._numbers.setdefault(parent, len(self._numbers))
        self._children.append(hash(child))
        self._parents.append(number)

    def replace(self, old: T, new: T) -> None:
        """Note that an obsolete id was replaced by another one."""
        self.replaced.setdefault(new, []).append(old)

    def finish(self) -> ClassGraph[T]:
        """Index the edges; no more can be added. A class keeps its parents in the order in which they were added."""
        children, parents = np.asarray(self._children), np.asarray(self._parents)
        order = np.argsort(children, kind="stable")
        # Arrays of the standard library: a search for one number is ten times faster in them than in numpy's.
        self._children = array(self._children.typecode, children[order].tobytes())
        self._parents = array("i", parents[order].tobytes())
        if self._ids is not None:
            self._ids, self._numbers = list(self._numbers), {}
        return self

    def walk_up(self, classes: Iterable[T], most: int) -> tuple[list[T], list[int]]:
        """The classes and their ancestors, nearest first, each once, and the height of each in steps; both (n,). The
        walk ends after `most` classes, or after `_STEPS` times as many steps from one to another.
        """
        found = list(islice(dict.fromkeys(classes), most))
        heights, seen, n_steps = [0] * len(found), set(found), 0
        for one, height in zip(found, heights, strict=False):  # both grow during the walk
            parents = self.parents(one)
            for parent in parents:
                if parent not in seen:
                    if len(found) >= most:
                        return found, heights
                    seen.add(parent)
                    found.append(parent)
                    heights.append(height + 1)
            n_steps += len(parents)
            if n_steps > _STEPS * most:
                break
        return found, heights

    def parents(self, one: T) -> tuple[T, ...]:
        """Direct parents. They are cached, since most walks pass through the same few classes."""
        found = self._known.get(one)
        if found is None:
            key = hash(one)
            start = bisect_left(self._children, key)
            numbers: Any = dict.fromkeys(self._parents[start : bisect_right(self._children, key, start)])
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            found = self._known[one] = tuple(numbers if self._ids is None else [self._ids[i] for i in numbers])
        return found
