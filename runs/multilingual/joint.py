"""Two models as one, their vectors side by side, turned into fewer dimensions: the teacher of `joint_student.py`.

    joint.json            folders of the members within this one, their shares, and which read Latin letters alone
    projection.npy        (sum of the members' widths, dim), float32

The cosine of two names is the mean of the members' cosines, weighted by share, as far as the projection keeps it.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pearl_qdrant.encoder.protocol import FloatArray


@dataclass(frozen=True, slots=True)
class Member:
    """A model of a joint one: its folder, its part of the cosine, and whether it reads Latin letters alone."""

    model: str
    share: float
    latin: bool


def read_members(folder: Path) -> list[Member]:
    """The members of a joint model, the one that reads all scripts last."""
    return [Member(**row) for row in json.loads((folder / "joint.json").read_text("utf-8"))]


def read_parts(folder: Path, widths: Sequence[int]) -> list[FloatArray]:
    """The projection of each member, (its width, dim), with the square root of its share."""
    parts = np.split(np.load(folder / "projection.npy"), np.cumsum(widths)[:-1])
    return [np.sqrt(np.float32(m.share)) * part for m, part in zip(read_members(folder), parts, strict=True)]


def mostly_latin(name: str) -> bool:
    """Whether at least half of the letters of a name are Latin, with or without marks; true without letters."""
    if name.isascii():
        return True
    letters = [letter for letter in name if letter.isalpha()]
    return 2 * sum("LATIN " in unicodedata.name(letter, "") for letter in letters) >= len(letters)
