"""The files of an index of names: written once, then mapped."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

VERSION = 1
"""Version of the files; another one is built again."""

HEADER_FILE = "header.json"

ARRAYS = ("starts", "keys", "ranks", "owners", "entities", "name_offsets", "record_offsets", "type_offsets")
TYPED = "typed"
BLOBS = ("text", "names", "records")

Numbers = npt.NDArray[np.uint32]
Keys = npt.NDArray[np.uint64]
Text = bytes | mmap.mmap


@dataclass(frozen=True)
class NameFiles:
    """The parts of an index. Positions are bytes of `text`, in which each folded name ends with a zero byte.

    Attributes:
        text: The folded names.
        starts: (s,) positions where a word starts, sorted by the text from there to the end of its name.
        keys: (s,) the first eight bytes of that text as a number, zeros behind its end.
        ranks: (s,) which to show first: 0 is the best; each number once.
        owners: (s,) number of the name of each.
        entities: (n,) number of the entity of each name.
        names: The names as they are written, one after the other, UTF-8.
        name_offsets: (n + 1,) where each name starts in `names`.
        records: The entities as JSON, one after the other.
        record_offsets: (e + 1,) where each starts in `records`.
        types: Number of each type, by its name.
        type_offsets: (types + 1,) where the entities of each type start in `typed`.
        typed: Entities of each type.
        alphabet: The most frequent characters of the folded names.
    """

    text: Text
    starts: Numbers
    keys: Keys
    ranks: Numbers
    owners: Numbers
    entities: Numbers
    names: Text
    name_offsets: npt.NDArray[np.int64]
    records: Text
    record_offsets: npt.NDArray[np.int64]
    types: Mapping[str, int]
    type_offsets: npt.NDArray[np.int64]
    typed: Numbers
    alphabet: Sequence[str]

    def write(self, folder: Path) -> None:
        """Write the files; the folder appears when all of them are there. Raises OSError."""
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = folder.with_name(f".{folder.name}-{uuid.uuid4().hex[:8]}")
        made.mkdir()
        try:
            for name in (*ARRAYS, TYPED):
                np.save(made / f"{name}.npy", getattr(self, name))
            for name in BLOBS:
                (made / f"{name}.bin").write_bytes(getattr(self, name))
            header = {"version": VERSION, "types": list(self.types), "alphabet": list(self.alphabet)}
            (made / HEADER_FILE).write_text(json.dumps(header), "utf-8")
            if folder.exists():  # another worker was faster
                shutil.rmtree(made)
            else:
                made.rename(folder)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise

    @classmethod
    def read(cls, folder: Path) -> NameFiles | None:
        """Map the files of a folder; None if there are none, or of another version."""
        try:
            header = json.loads((folder / HEADER_FILE).read_text("utf-8"))
            if header["version"] != VERSION:
                return None
            parts: dict[str, Any] = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in (*ARRAYS, TYPED)}
            blobs: dict[str, Any] = {name: _map(folder / f"{name}.bin") for name in BLOBS}
        except (OSError, ValueError, KeyError, TypeError):
            return None
        # A plain array over the mapped memory: numpy's own class for mapped files makes each access slower.
        parts = {name: array.view(np.ndarray) for name, array in parts.items()}
        types = {name: i for i, name in enumerate(header["types"])}
        return cls(**parts, **blobs, types=types, alphabet=header["alphabet"])


def _map(path: Path) -> Text:
    """The bytes of a file, mapped."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return b""
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
