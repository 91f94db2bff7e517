"""Points, as entities become them and as they are stored, and the manifest and name of a collection.

There is one point for each pair of entity and name. Its id is the UUID5 of the JSON array [kb, entity id, name], so
that ingesting the same base twice changes nothing.
"""

from __future__ import annotations

import json
import math
import struct
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha1
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from pearl_qdrant._version import __version__
from pearl_qdrant.encoder.protocol import BoolArray, Encoded, FloatArray, ModelInfo, predict_types
from pearl_qdrant.errors import InvalidPointError, ManifestError, ModelMismatchError, StoreRejectedError
from pearl_qdrant.lexical import ngrams
from pearl_qdrant.records import Entity
from pearl_qdrant.settings import DEFAULT_QUANTIZATION

DENSE = "dense"  # name of the dense vector of every point that has one
LEXICAL = "lexical"  # name of the sparse vector of character n-grams (`lexical.ngrams`); Qdrant weights it by IDF

FILTER_FIELD = "filter_types"
"""Payload field of the type filter, `NamePoint.filter_types`. A filter over three fields took ten times as long."""

LANGUAGE_FIELD = "language"  # payload field of the language of a name, which is also filtered

INDEXED_FIELDS = ("entity_id", "name", "kb_types", "types", "predicted_type", FILTER_FIELD, LANGUAGE_FIELD)
"""Keyword payload indexes. They are made before the graph: Qdrant links the graph only for fields indexed by then."""

FACET_FIELDS = ("kb_types", "types", "predicted_type")  # type fields that are counted by value
MANIFEST_VERSION = 4

# Any fixed namespace works, but it must never change: all point ids depend on it.
_NAMESPACE = uuid.UUID("8f9e1a52-6a0b-5d43-9a57-2d1f0c1b7e11")


def _plain_text(value: object) -> str:
    """Turn a subclass of `str`, such as numpy's, into plain text."""
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not text")


_encode_key = msgspec.json.Encoder(enc_hook=_plain_text).encode
_namespace_hash = sha1(_NAMESPACE.bytes, usedforsecurity=False)
_VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}

State = Literal["loading", "ready"]

Quantization = Literal["none", "int8", "turbo4"]
"""How vectors are kept: as float32 alone; as float32, with 8 bits a number beside it; as float16, with 4 bits a number
beside it (TurboQuant). What stands beside finds candidates; scores always come from the float numbers."""


def stored_bytes(quantization: Quantization) -> int:
    """The bytes of a number of a vector that gives scores."""
    return 2 if quantization == "turbo4" else 4


def point_id(kb: str, entity_id: str, name: str) -> str:
    """Compute the UUID5 of a point, the same in every process and release; ValueError for a lone surrogate."""
    # uuid.uuid5 takes four times as long. The version is 5, the variant is the two highest bits of the 17th digit.
    hashed = _namespace_hash.copy()
    hashed.update(_encode_key((kb, entity_id, name)))
    digits = hashed.hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-5{digits[13:16]}-{_VARIANTS[digits[16]]}{digits[17:20]}-{digits[20:32]}"


class _Payload(msgspec.Struct, frozen=True, gc=False):
    """A payload as read back from the store, which another program may have written, without extra fields."""

    kb: str
    entity_id: str
    name: str
    canonical_name: str
    is_canonical: bool
    kb_types: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    description: str | None = None
    phrase_type: str | None = None  # of the type head for `name`, as "NP-ORG"; None without a head or a dense vector
    lexical_class: str | None = None  # its first part
    predicted_type: str | None = None  # its second part
    type_probability: float | None = None  # of `predicted_type` over the lexical classes, in [0, 1]
    popularity: float | None = None
    language: str | None = None  # of `name`, in lower case; None if the base states none


class NamePoint(_Payload, frozen=True, gc=False):
    """The payload of one point: one name of one entity, of which most fields are those of `records.Entity`.

    A search reads dozens for each mention: this is made in a third of a frozen dataclass's time, and the garbage
    collector does not visit it.
    """

    # further fields of the reader; never one of the names above
    extra: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def id(self) -> str:
        return point_id(self.kb, self.entity_id, self.name)

    @property
    def filter_types(self) -> list[str]:
        """The values of the type filter: native and coarse types, and the predicted type if no coarse type is known."""
        guessed = () if self.types or self.predicted_type is None else (self.predicted_type,)
        return list(dict.fromkeys((*self.kb_types, *self.types, *guessed)))

    def to_payload(self) -> dict[str, Any]:
        payload: dict[str, Any] = {
            **self.extra,
            "kb": self.kb,
            "entity_id": self.entity_id,
            "name": self.name,
            "canonical_name": self.canonical_name,
            "is_canonical": self.is_canonical,
            "kb_types": list(self.kb_types),
            "types": list(self.types),
            FILTER_FIELD: self.filter_types,
        }
        if self.phrase_type is not None:
            payload["phrase_type"] = self.phrase_type
            payload["lexical_class"] = self.lexical_class
            payload["predicted_type"] = self.predicted_type
            payload["type_probability"] = self.type_probability
        for key in ("description", "popularity", LANGUAGE_FIELD):
            if (value := getattr(self, key)) is not None:
                payload[key] = value
        return payload

    @classmethod
    def from_json(cls, payload: bytes | msgspec.Raw, collection: str) -> NamePoint:
        """Read a payload back from a server's bytes; ManifestError if it was not written by pearl-qdrant."""
        try:
            try:
                *values, _ = msgspec.structs.astuple(_read_plain(payload))
                return cls(*values)
            except msgspec.ValidationError:  # it has extra fields, or was not written by pearl-qdrant
                given = msgspec.json.decode(payload)
                parsed = msgspec.convert(given, _Payload)
        except (ValueError, RecursionError) as error:
            raise ManifestError(collection, f"the payload of a point is not valid: {error}") from error
        extra = {key: str(value) for key, value in given.items() if key not in OWN_FIELDS}
        return cls(**msgspec.structs.asdict(parsed), extra=extra)


_PlainPayload = msgspec.defstruct(
    "_PlainPayload", [(FILTER_FIELD, Any, None)], bases=(_Payload,), forbid_unknown_fields=True, frozen=True, gc=False
)
_read_plain = msgspec.json.Decoder(_PlainPayload).decode
OWN_FIELDS = frozenset((*_Payload.__struct_fields__, FILTER_FIELD))  # keys of a payload that no further field may have


class LoadedInput(BaseModel):
    """An input whose load is complete: its paths as given, and the digest of its content."""

    model_config = ConfigDict(frozen=True)

    input: str
    digest: str


class Checkpoint(LoadedInput):
    """How many entities of its input, from its start, an unfinished ingest has stored; done: but for the graph, all."""

    entities: int
    is_done: bool = False


class LinkCalibration(BaseModel):
    """Turns the linker's logits into probabilities in one collection; see `linking.ranking.Calibration`."""

    # Extra fields may say on what it was fitted, and how well.
    model_config = ConfigDict(frozen=True, extra="allow")

    slope: float = Field(gt=0, allow_inf_nan=False)  # factor of every logit
    nil_bias: float = Field(allow_inf_nan=False)  # added to that of NIL
    threshold: float = Field(ge=0, le=1)  # a mention with a lower probability is NIL
    # Coefficients of the ranking by name; None: those shipped with the package.
    features: dict[str, FiniteFloat] | None = None
    decision: dict[str, FiniteFloat] | None = None
    nil_features: dict[str, FiniteFloat] | None = None


class Manifest(BaseModel):
    """The base and the model of a collection; stored beside its points.

    Attributes:
        format_version: Version of this layout.
        collection: Name of the collection.
        kb: Short name of the base; part of every point id.
        kb_version: Release of the base, if given.
        model, weights_hash, dim, pooling, prefix: As in `ModelInfo`.
        has_head: Whether points have predicted phrase types.
        quantization: How vectors are kept; "int8" where it is not stated, as by older releases.
        has_plain_payloads: Whether an embedded collection has points as a server keeps them (`edge.points`).
        lexical_version: `ngrams.VERSION` of its sparse vectors.
        ngram_rarity: IDF of the n-grams among its names (`lexical.ngrams.IdfTable`), made at the end of a load.
        calibration: Result of `pearl-qdrant calibrate`; None: the values shipped with the package.
        type_map_version: Version of the table from native to coarse types.
        state: "loading" until every started ingest has written its last point, then "ready".
        entities: Entities written by the last ingest that completed.
        names: Points written by it.
        created_by: "pearl-qdrant VERSION".
        loaded: The inputs that the collection holds, each as it was loaded last; empty for collections of older
            versions, and after an update that kept names which the new release lacks.
        edited: Whether entities were added, replaced or deleted by hand since the last load or update.
        checkpoints: Progress of unfinished ingests, one for each input; on a server several may run at the same time.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())

    format_version: int = MANIFEST_VERSION
    collection: str
    kb: str
    kb_version: str | None = None
    model: str
    weights_hash: str
    dim: int
    pooling: str = "mean"
    prefix: str = ""
    has_head: bool
    quantization: Quantization = "int8"
    has_plain_payloads: bool = False
    lexical_version: int = ngrams.VERSION
    ngram_rarity: str | None = None
    calibration: LinkCalibration | None = None
    type_map_version: str | None = None
    state: State = "loading"
    entities: int = 0
    names: int = 0
    created_by: str = ""
    loaded: tuple[LoadedInput, ...] = ()
    edited: bool = False
    checkpoints: tuple[Checkpoint, ...] = ()

    @classmethod
    def for_model(
        cls,
        info: ModelInfo,
        *,
        collection: str,
        kb: str,
        kb_version: str | None = None,
        quantization: Quantization = DEFAULT_QUANTIZATION,
        type_map_version: str | None = None,
    ) -> Manifest:
        return cls(
            collection=collection,
            kb=kb,
            kb_version=kb_version,
            model=info.name,
            weights_hash=info.weights_hash,
            dim=info.dim,
            pooling=info.pooling,
            prefix=info.prefix,
            has_head=info.has_head,
            quantization=quantization,
            type_map_version=type_map_version,
            created_by=f"pearl-qdrant {__version__}",
        )

    def as_created(self) -> Manifest:
        return self.model_copy(update={"has_plain_payloads": False})

    def kept_as(self, quantization: Quantization) -> Manifest:
        """Return a copy for a new version in a store that keeps vectors so; whole vectors stay alone."""
        return self if self.quantization == "none" else self.model_copy(update={"quantization": quantization})

    def with_checkpoint(self, checkpoint: Checkpoint) -> Manifest:
        return self.with_checkpoints((*self.without_input(checkpoint.input).checkpoints, checkpoint))

    def without_input(self, name: str) -> Manifest:
        return self.with_checkpoints(tuple(one for one in self.checkpoints if one.input != name))

    def with_checkpoints(self, checkpoints: tuple[Checkpoint, ...]) -> Manifest:
        """Return a copy with these checkpoints. If there is any, the state is "loading", whatever it was."""
        state = "loading" if checkpoints else self.state
        return self.model_copy(update={"state": state, "checkpoints": checkpoints})

    @classmethod
    def parse(cls, text: str | bytes | Mapping[str, Any] | None, collection: str) -> Manifest:
        """Read a manifest from JSON text or an object; ManifestError if none is valid, or another version wrote it."""
        if text is None:
            raise ManifestError(collection, "there is none")
        try:
            manifest = cls.model_validate(json.loads(text) if isinstance(text, (str, bytes)) else text)
        except RecursionError as error:
            raise ManifestError(collection, "unreadable: its JSON is nested too deeply") from error
        except (ValueError, ValidationError) as error:
            raise ManifestError(collection, f"unreadable: {str(error).splitlines()[0]}") from error
        theirs = (manifest.format_version, manifest.lexical_version)
        if theirs != (MANIFEST_VERSION, ngrams.VERSION):
            raise ManifestError(
                collection,
                f"format {theirs[0]}.{theirs[1]} of {manifest.created_by or 'an unknown program'}, this program has "
                f"{MANIFEST_VERSION}.{ngrams.VERSION}",
                is_other_version=True,
            )
        return manifest

    def is_of(self, info: ModelInfo | Manifest) -> bool:
        """Whether a model's vectors, or those of another collection, can be compared with the collection's."""
        theirs = (self.weights_hash, self.dim, self.pooling, self.prefix)
        return theirs == (info.weights_hash, info.dim, info.pooling, info.prefix)

    def check_model(self, info: ModelInfo) -> None:
        """Raise ModelMismatchError if a model's vectors cannot be compared with the collection's."""
        if not self.is_of(info):
            expected = f"{self.model} ({self.dim} dim, {self.pooling} pooling, prefix {self.prefix!r}, "
            raise ModelMismatchError(
                self.collection,
                expected=f"{expected}{self.weights_hash[:19]})",
                actual=info.identity,
                expected_name=self.model,
            )


MAX_NAME_BYTES = 200  # file systems and servers allow 255; versions and ledgers have longer names

_FORBIDDEN = set('/\\:*?"<>|')  # not allowed by one file system or another, or by a server


def check_name(name: str) -> None:
    """Raise StoreRejectedError for a name that a folder or a server cannot have, before anything is done for it."""
    reason = None
    if not name or name.startswith(".") or name[-1] in ". ":
        reason = "it must not be empty, begin with a dot, or end with a dot or space"
    elif _FORBIDDEN & set(name) or not name.isprintable():
        reason = f"it must not hold control characters or any of {' '.join(sorted(_FORBIDDEN))}"
    elif len(name.encode()) > MAX_NAME_BYTES:
        reason = f"it has {len(name.encode())} bytes, {MAX_NAME_BYTES} are allowed"
    if reason:
        raise StoreRejectedError(f"{name!a} cannot be the name of a collection: {reason}.")


MAX_NAMES = 10_000  # more names than any entity has: Wikidata's longest list of aliases has a few thousand
_LABEL_CHARS = 80  # of a name in an error message


def name_points(kb: str, names: Iterable[tuple[Entity, str]], encoded: Encoded) -> list[NamePoint]:
    """Make one point of a base for each of n names, in the order of the rows of `encoded`."""
    kinds = predicted_types(encoded)
    return [_point(kb, entity, name, kind) for (entity, name), kind in zip(names, kinds, strict=True)]


class PredictedType(NamedTuple):
    """What the type head says of a name; the fields are those of `NamePoint`."""

    phrase_type: str | None = None
    lexical_class: str | None = None
    predicted_type: str | None = None
    type_probability: float | None = None


NO_TYPE = PredictedType()


def predicted_types(encoded: Encoded) -> list[PredictedType]:
    """What the type head says of each row: n types, without any for an unencodable name, of which it saw no letter."""
    encodable = encoded.encodable.tolist()
    if encoded.type_probabilities is None:
        return [NO_TYPE] * len(encodable)
    types = predict_types(encoded.type_probabilities)
    kinds = zip(types.phrase_types, types.lexical_classes, types.predicted_types, types.type_probabilities, strict=True)
    return [PredictedType(*kind) if ok else NO_TYPE for ok, kind in zip(encodable, kinds, strict=True)]


def _point(kb: str, entity: Entity, name: str, kind: PredictedType = NO_TYPE) -> NamePoint:
    return NamePoint(
        kb=kb,
        entity_id=entity.entity_id,
        name=name,
        canonical_name=entity.canonical_name,
        is_canonical=name == entity.canonical_name,
        kb_types=entity.kb_types,
        types=entity.types,
        description=entity.description,
        popularity=entity.popularity,
        language=entity.languages.get(name),
        extra=entity.extra,
        **kind._asdict(),
    )


def is_same_point(first: NamePoint, second: NamePoint) -> bool:
    """Whether two points are the same but for the last digits of numbers, of which Qdrant reads 15 without an error."""
    if first == second:
        return True
    alike = {}
    for name in ("type_probability", "popularity"):
        one, other = getattr(first, name), getattr(second, name)
        if one and math.isclose(one, other or 0.0, rel_tol=1e-12):
            alike[name] = one
    return first == msgspec.structs.replace(second, **alike)


def names_of(entities: Iterable[Entity]) -> Iterator[tuple[Entity, str]]:
    """Yield each name of each entity, with its entity."""
    return ((entity, name) for entity in entities for name in entity.names())


def plain_points(kb: str, entities: Iterable[Entity]) -> list[NamePoint]:
    """Make one point for each name of each entity, without phrase types."""
    return [_point(kb, entity, name) for entity, name in names_of(entities)]


def entity_from_points(points: Sequence[NamePoint]) -> Entity:
    """Return the entity that all these points belong to; at least one point."""
    first = next((p for p in points if p.is_canonical), points[0])
    aliases = sorted({p.name for p in points} - {first.canonical_name})
    return Entity(
        entity_id=first.entity_id,
        canonical_name=first.canonical_name,
        aliases=tuple(aliases),
        kb_types=first.kb_types,
        types=first.types,
        description=first.description,
        extra=dict(first.extra),
        popularity=first.popularity,
        languages={p.name: p.language for p in points if p.language is not None},
    )


def check_vectors(
    points: Sequence[NamePoint], vectors: FloatArray, encodable: BoolArray, *, dim: int
) -> tuple[FloatArray, BoolArray]:
    """Check n points, vectors (n, dim) and `encodable` (n,) before anything is written.

    Returns copies: the vectors as float32, with zeros for unencodable names, and `encodable`. Raises InvalidPointError
    if a vector is NaN, zero or has another width than `dim`, ValueError if the three have different lengths.
    """
    if vectors.ndim != 2 or not len(points) == len(vectors) == len(encodable):
        raise ValueError(
            f"{len(points)} points, vectors {vectors.shape} and encodable {encodable.shape} do not pair up"
        )
    if len(points) and vectors.shape[1] != dim:
        raise InvalidPointError(
            f"The vector of {label_point(points[0])} has {vectors.shape[1]} dimensions, but the collection holds "
            f"vectors of {dim}. Use the model that made the collection."
        )
    flags: BoolArray = np.array(encodable, dtype=np.bool_)
    rows: FloatArray = np.array(vectors, dtype=np.float32)
    rows[~flags] = 0
    finite: BoolArray = np.asarray(np.isfinite(rows).all(axis=1))
    bad: BoolArray = flags & ~(finite & np.asarray(rows.any(axis=1)))
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        raise InvalidPointError(
            f"The vector of {label_point(points[first])} {'is zero' if finite[first] else 'holds NaN or infinity'}. "
            f"Mark a name without a vector as not encodable."
        )
    return rows, flags


def invalid_payload(point: NamePoint, error: Exception) -> InvalidPointError:
    """Make the error for a payload that cannot be written as JSON."""
    reason = "holds a lone surrogate" if "surrogate" in str(error) else f"cannot be written as JSON ({error})"
    return InvalidPointError(f"The payload of {label_point(point)} {reason}. Correct it where it was read.")


def label_point(point: NamePoint) -> str:
    """Name a point in an error message. Unprintable characters are escaped, long names are cut."""
    name = point.name if point.name.isprintable() else ascii(point.name)[1:-1]
    entity_id = point.entity_id if point.entity_id.isprintable() else ascii(point.entity_id)[1:-1]
    return f"'{name if len(name) <= _LABEL_CHARS else name[: _LABEL_CHARS - 3] + '...'}' (entity {entity_id})"


@dataclass(frozen=True, slots=True)
class NameRows:
    """n points with their vectors, (n, dim) float32, and whether each has one, (n,); zeros where not. Sparse vectors
    are made of the names where they are written.
    """

    points: list[NamePoint]
    vectors: FloatArray
    encodable: BoolArray

    def where(self, wanted: BoolArray) -> NameRows:
        """Return some of the points: (n,) says which."""
        points = [point for point, is_wanted in zip(self.points, wanted.tolist(), strict=True) if is_wanted]
        return NameRows(points, self.vectors[wanted], self.encodable[wanted])


def pack_rows(points: list[NamePoint], vectors: Iterable[Sequence[float] | None], *, dim: int) -> NameRows:
    """Make arrays of the vectors that an engine returned, None for a name without one. They are taken one by one and
    not held: 448 numbers of Python are 14 KB. ValueError for another width than `dim`.
    """
    row = struct.Struct(f"={dim}f")  # takes a third of the time that numpy takes to read a list
    packed, encodable = list[bytes](), list[bool]()
    for values in vectors:
        if values is not None and len(values) != dim:
            raise ValueError(f"a vector does not have {dim} dimensions")
        packed.append(bytes(row.size) if values is None else row.pack(*values))
        encodable.append(values is not None)
    rows: FloatArray = np.frombuffer(b"".join(packed), dtype=np.float32).reshape(len(encodable), dim)
    return NameRows(points, rows, np.array(encodable, dtype=np.bool_))
