"""A model that joins others: the vectors of its members side by side, turned into fewer dimensions.

    joint.json            `JointConfig`: the members, and the SHA-256 of the file beside it
    projection.npy        (sum of the members' widths, dim), float32
    README.md             the model card; not verified

The cosine of two names is the mean of the members' cosines, weighted by share, as far as the projection keeps it. A
member of the Latin script reads names of other scripts as zeros; their types come from the other members.
"""

from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from pearl_qdrant.encoder.checkpoint import file_sha256, joint_sha256
from pearl_qdrant.encoder.json_files import read_json, validated
from pearl_qdrant.encoder.protocol import Encoded, Encoder, FloatArray, ModelInfo
from pearl_qdrant.errors import CheckpointError, ModelError

JOINT_JSON = "joint.json"
JOINT_FILE = "projection.npy"


class Member(BaseModel):
    """A model of a joint one.

    Attributes:
        model: A shipped name, a folder or a hub id; a folder of that name within the joint's goes first.
        weights_hash: Its weights, as `ModelInfo` has them.
        dim: Width of its vectors.
        share: Its part of the cosine, in (0, 1]; all members together have 1.
        latin: Whether it reads only names whose letters are mostly Latin.
    """

    model_config = ConfigDict(frozen=True)

    model: str = Field(min_length=1)
    weights_hash: str
    dim: int = Field(gt=0)
    share: float = Field(gt=0, le=1)
    latin: bool = False


class JointConfig(BaseModel):
    """joint.json.

    Attributes:
        name: The model's name.
        dim: Width of its vectors.
        members: The models; the last one reads every script. Types come from the first that reads a name.
        precision: Precision of the members' weights in ONNX.
        weights_hash: "sha256:..." over the members and the projection.
        projection_sha256: Hash of the file beside.
        training: How it was made; free form.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str = Field(min_length=1)
    dim: int = Field(gt=0)
    members: tuple[Member, ...] = Field(min_length=2)
    precision: str = "int8"
    weights_hash: str = ""
    projection_sha256: str = ""
    training: dict[str, Any] = Field(default_factory=dict)


def is_joint(folder: Path) -> bool:
    """Whether the folder has a joint.json."""
    return (folder / JOINT_JSON).is_file()


def refuse_joint(folder: Path, action: str) -> None:
    """Raise ModelError if the folder is a joint model, with which the action, such as "fine-tune", is not possible."""
    if is_joint(folder):
        names = " or ".join(member.model for member in read_joint(folder).members)
        raise ModelError(f"Model '{folder.name}' joins others and has no weights of its own. You can {action} {names}.")


def read_joint(folder: Path) -> JointConfig:
    """Read and check joint.json; reads no other file. Raises CheckpointError if it is broken."""
    path = folder / JOINT_JSON
    config = validated(path, read_json(path), JointConfig)
    if config.members[-1].latin:
        raise CheckpointError(str(path), "its last member reads Latin letters alone. Put one that reads all there")
    return config


def read_projection(folder: Path, config: JointConfig) -> FloatArray:
    """The verified projection, (sum of the members' widths, dim). Raises CheckpointError if the file is missing,
    changed, or has another shape.
    """
    path = folder / JOINT_FILE
    try:
        if file_sha256(path) != config.projection_sha256:
            raise CheckpointError(str(path), "changed, or truncated: it has another SHA-256. Fetch the model again")
        projection: FloatArray = np.load(path, allow_pickle=False)
    except OSError as error:
        raise CheckpointError(str(path), f"missing or unreadable ({error.strerror}). Fetch the model again") from error
    expected = sum(member.dim for member in config.members), config.dim
    if projection.shape != expected:
        raise CheckpointError(str(path), f"its projection is {projection.shape}, {expected} expected")
    return projection


def write_joint(folder: Path, config: JointConfig, projection: FloatArray, *, model_card: str = "") -> JointConfig:
    """Write a joint model; returns its sealed configuration.

    Args:
        folder: Created if necessary.
        config: Content of joint.json; the hashes are filled in.
        projection: (sum of the members' widths, dim).
        model_card: Text of README.md.
    """
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / JOINT_FILE, np.ascontiguousarray(projection, dtype=np.float32))
    sha256 = file_sha256(folder / JOINT_FILE)
    parts = {f"{i} {member.share!r} {member.latin}": member.weights_hash for i, member in enumerate(config.members)}
    sealed = config.model_copy(
        update={"projection_sha256": sha256, "weights_hash": joint_sha256({**parts, JOINT_FILE: sha256})}
    )
    (folder / JOINT_JSON).write_text(sealed.model_dump_json(indent=1) + "\n", encoding="utf-8", newline="\n")
    (folder / "README.md").write_text(model_card, encoding="utf-8", newline="\n")
    return sealed


def copy_joint(source: Path, target: Path) -> None:
    """Copy the files of a joint model, without members."""
    target.mkdir(parents=True, exist_ok=True)
    for name in (JOINT_JSON, JOINT_FILE, "README.md", "NOTICE"):
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def load_joint(name: str, folder: Path, load: Callable[[str], Encoder]) -> JointEncoder:
    """Load a joint model. Raises CheckpointError if a file is broken, or a member is another model than it was.

    Args:
        name: Name of the model, as the user types it.
        folder: Its folder.
        load: Loads a member by its name.
    """
    config = read_joint(folder)
    projection = read_projection(folder, config)
    members = [load(member.model) for member in config.members]
    for member, encoder in zip(config.members, members, strict=True):
        if (encoder.info.weights_hash, encoder.info.dim) != (member.weights_hash, member.dim):
            raise CheckpointError(
                str(folder / JOINT_JSON),
                f"was made of {member.model} ({member.weights_hash[:19]}), which is another model now "
                f"({encoder.info.weights_hash[:19]}). Fetch both again",
            )
    info = replace(
        members[0].info,
        name=name,
        weights_hash=config.weights_hash,
        dim=config.dim,
        prefix="",
        has_head=all(member.info.has_head for member in members),
    )
    ends = np.cumsum([member.dim for member in config.members])[:-1]
    parts = np.split(projection, ends)
    scaled = [np.sqrt(np.float32(member.share)) * part for member, part in zip(config.members, parts, strict=True)]
    return JointEncoder(info, config.members, members, scaled)


@dataclass(frozen=True, slots=True)
class JointEncoder:
    """An `Encoder` over several others.

    Attributes:
        info: Identity of the model.
        members: What each has of the cosine, and what it reads.
        encoders: The models of the members.
        projections: Of each member, (its width, dim), with the square root of its share.
    """

    info: ModelInfo
    members: Sequence[Member]
    encoders: Sequence[Encoder]
    projections: Sequence[FloatArray]

    def encode(self, names: Sequence[str]) -> Encoded:
        """Encode names; see `Encoder.encode`."""
        vectors = np.zeros((len(names), self.info.dim), dtype=np.float32)
        encodable = np.zeros(len(names), dtype=np.bool_)
        types: FloatArray | None = None
        is_latin = np.fromiter(map(mostly_latin, names), dtype=np.bool_, count=len(names))
        # The last first: it reads all names, and an error tells their places.
        parts = list(zip(self.members, self.encoders, self.projections, strict=True))
        for member, encoder, projection in reversed(parts):
            rows = np.flatnonzero(is_latin) if member.latin else np.arange(len(names))
            encoded = encoder.encode([names[i] for i in rows.tolist()])
            vectors[rows] += encoded.vectors @ projection
            if (found := encoded.type_probabilities) is not None and self.info.has_head:
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
