"""A base's own types to the coarse OntoNotes types, from an editable table (`type_map.tsv` beside this file)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from hashlib import sha256
from importlib import resources
from pathlib import Path

from pearl_qdrant.errors import FormatError
from pearl_qdrant.phrase_types import ENTITY_TYPES

SHIPPED = "type_map.tsv"

_VERSION_MARK = "# version:"


class TypeMap:
    """Native types to coarse ones; a type that is not in the table has no coarse type.

    Attributes:
        version: The table's own version and the start of its hash, as in "1-3f9a0c2b"; an edited table differs.
    """

    def __init__(self, coarse_of: Mapping[str, str], *, version: str) -> None:
        """Make a map from native types to coarse types ("" for none); the 19 coarse types need no row."""
        self.version = version
        self._coarse_of = {native: native for native in ENTITY_TYPES}
        self._coarse_of.update((_fold(native), coarse) for native, coarse in coarse_of.items())

    @classmethod
    def load(cls, path: str | os.PathLike[str] | None = None) -> TypeMap:
        """The shipped table, with the rows of another one over it.

        Args:
            path: A table of the same form whose rows are added, and win.

        Raises:
            FormatError: If it cannot be read, a row is no pair, or a coarse type is unknown.
        """
        shipped = resources.files("ingest").joinpath(SHIPPED).read_bytes()
        coarse_of, version = _parse(SHIPPED, shipped)
        if path is not None:
            try:
                added = Path(path).read_bytes()
            except OSError as error:
                message = f"the type map cannot be read: {error.strerror or error}"
                raise FormatError(os.fspath(path), None, message) from error
            more, own_version = _parse(os.fspath(path), added)
            coarse_of.update(more)
            version = f"{version}+{own_version}"
        return cls(coarse_of, version=version)

    def map_types(self, kb_types: Iterable[str]) -> tuple[str, ...]:
        """Coarse types of an entity, each once, in the order of its native types."""
        coarse = (self._coarse_of.get(_fold(native)) for native in kb_types)
        return tuple(dict.fromkeys(filter(None, coarse)))


def _fold(native: str) -> str:
    """One spelling of a type's name: "Work of art", "work-of-art" and "WORK_OF_ART" are one."""
    return "_".join(native.replace("-", " ").replace("_", " ").upper().split())


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
            raise FormatError(path, number, f"'{cells[1]}' is no coarse type. There are: {', '.join(ENTITY_TYPES)}")
        native = _fold(cells[0])
        if coarse_of.setdefault(native, coarse) != coarse:
            raise FormatError(path, number, f"'{cells[0]}' is mapped to both {coarse_of[native]} and {coarse}")
    return coarse_of, f"{version}-{sha256(content).hexdigest()[:8]}"
