"""Two models as one: their vectors side by side, turned into fewer dimensions. The teacher of `joint_student.py`.

    joint.json            folders of the members within this one, their shares, and which read Latin letters alone
    projection.npy        (sum of the members' widths, dim), float32

The cosine of two names is the mean of the members' cosines, weighted by share, as far as the projection keeps it. A
member of the Latin script reads names of other scripts as zeros; their types come from the other members.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoded, Encoder, FloatArray, ModelInfo


@dataclass(frozen=True, slots=True)
class Member:
    """A model of a joint one: its folder, its part of the cosine, and whether it reads Latin letters alone."""

    model: str
    share: float
    latin: bool


def load(model: str) -> Encoder:
    """Load a joint model, or any other."""
    return JointEncoder(Path(model)) if (Path(model) / "joint.json").is_file() else load_encoder(model, device="cpu")


def write_joint(folder: Path, members: Sequence[Member], projection: FloatArray) -> None:
    """Write the files of a joint model; the members' folders are put beside them by hand."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "projection.npy", np.ascontiguousarray(projection, dtype=np.float32))
    (folder / "joint.json").write_text(json.dumps([asdict(member) for member in members], indent=1), encoding="utf-8")


def read_members(folder: Path) -> list[Member]:
    """The members of a joint model, the one that reads all scripts last."""
    return [Member(**row) for row in json.loads((folder / "joint.json").read_text("utf-8"))]


def read_parts(folder: Path, widths: Sequence[int]) -> list[FloatArray]:
    """The projection of each member, (its width, dim), with the square root of its share."""
    parts = np.split(np.load(folder / "projection.npy"), np.cumsum(widths)[:-1])
    return [np.sqrt(np.float32(m.share)) * part for m, part in zip(read_members(folder), parts, strict=True)]


class JointEncoder:
    """An `Encoder` over several others."""

    def __init__(self, folder: Path) -> None:
        self.members = read_members(folder)
        self.encoders = [load_encoder(str(folder / member.model), device="cpu") for member in self.members]
        self.parts = read_parts(folder, [encoder.info.dim for encoder in self.encoders])
        self.info: ModelInfo = replace(self.encoders[0].info, name=folder.name, dim=self.parts[0].shape[1])

    def encode(self, names: Sequence[str]) -> Encoded:
        """Encode names; see `Encoder.encode`."""
        vectors = np.zeros((len(names), self.info.dim), dtype=np.float32)
        encodable = np.zeros(len(names), dtype=np.bool_)
        types: FloatArray | None = None
        is_latin = np.fromiter(map(mostly_latin, names), dtype=np.bool_, count=len(names))
        for member, encoder, part in reversed(list(zip(self.members, self.encoders, self.parts, strict=True))):
            rows = np.flatnonzero(is_latin) if member.latin else np.arange(len(names))
            encoded = encoder.encode([names[i] for i in rows.tolist()])
            vectors[rows] += encoded.vectors @ part
            if (found := encoded.type_probabilities) is not None:
                types = found.copy() if types is None else types
                types[rows[encoded.encodable]] = found[encoded.encodable]
            encodable[rows] |= encoded.encodable
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors /= np.maximum(norms, np.float32(1e-12))
        return Encoded(vectors, encodable, types)


def mostly_latin(name: str) -> bool:
    """Whether at least half of the letters of a name are Latin, with or without marks; true without letters."""
    if name.isascii():
        return True
    letters = [letter for letter in name if letter.isalpha()]
    return 2 * sum("LATIN " in unicodedata.name(letter, "") for letter in letters) >= len(letters)
