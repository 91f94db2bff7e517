"""The payload and id of a point, and the manifest of a collection.

There is one point for each pair of entity and name. Its id is the UUID5 of the JSON array [kb, entity id, name], so
that ingesting the same base twice changes nothing.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha1
from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from pearl_qdrant._version import __version__
from pearl_qdrant.encoder.protocol import ModelInfo
from pearl_qdrant.errors import ManifestError, ModelMismatchError
from pearl_qdrant.lexical import ngrams

DENSE = "dense"
"""Name of the dense vector of every point that has one."""

LEXICAL = "lexical"
"""Name of the sparse vector of character n-grams (`lexical.ngrams`); Qdrant weights it by IDF."""

FILTER_FIELD = "filter_types"
"""Payload field of the type filter, `NamePoint.filter_types`. A filter over three fields took ten times as long."""

LANGUAGE_FIELD = "language"
"""Payload field of the language of a name, which is also filtered."""

INDEXED_FIELDS = ("entity_id", "name", "kb_types", "types", "predicted_type", FILTER_FIELD, LANGUAGE_FIELD)
"""Keyword payload indexes. They are made before the graph: Qdrant links the graph only for fields indexed by then."""

FACET_FIELDS = ("kb_types", "types", "predicted_type")
"""Type fields that are counted by value."""

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

Quantization = Literal["none", "int8"]
"""How vectors are kept for finding candidates; scores always come from the full vectors."""


def point_id(kb: str, entity_id: str, name: str) -> str:
    """Compute the UUID5 of a point, the same in every process and release; ValueError for a lone surrogate."""
    # uuid.uuid5 takes four times as long. The version is 5, the variant is the two highest bits of the 17th digit.
    hashed = _namespace_hash.copy()
    hashed.update(_encode_key((kb, entity_id, name)))
    digits = hashed.hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-5{digits[13:16]}-{_VARIANTS[digits[16]]}{digits[17:20]}-{digits[20:32]}"


@dataclass(frozen=True, slots=True)
class NamePoint:
    """The payload of one point: one name of one entity.

    Attributes:
        kb, entity_id, name, canonical_name, is_canonical, kb_types, types, description: As in `records.Entity`.
        phrase_type: Prediction of the type head for `name`, as "NP-ORG"; None without a head or a dense vector.
        lexical_class: First part of `phrase_type`.
        predicted_type: Second part of `phrase_type`.
        type_probability: Marginal probability of `predicted_type` over the lexical classes, in [0, 1].
        popularity: As in `records.Entity`; not in the payload if it is None.
        language: Code of the language of `name`, in lower case; None, and not in the payload, if the base states none.
        extra: Further fields of the reader; never one of the names above.
    """

    kb: str
    entity_id: str
    name: str
    canonical_name: str
    is_canonical: bool
    kb_types: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    description: str | None = None
    phrase_type: str | None = None
    lexical_class: str | None = None
    predicted_type: str | None = None
    type_probability: float | None = None
    popularity: float | None = None
    language: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The point's id."""
        return point_id(self.kb, self.entity_id, self.name)

    @property
    def filter_types(self) -> list[str]:
        """The values of the type filter: native and coarse types, and the predicted type if no coarse type is known."""
        guessed = () if self.types or self.predicted_type is None else (self.predicted_type,)
        return list(dict.fromkeys((*self.kb_types, *self.types, *guessed)))

    def to_payload(self) -> dict[str, Any]:
        """Make the payload that Qdrant stores; missing values are left out."""
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
                *fields, _ = msgspec.structs.astuple(_read_plain(payload))
                return cls(*fields)
            except msgspec.ValidationError:  # it has extra fields, or was not written by pearl-qdrant
                given = msgspec.json.decode(payload)
                parsed = msgspec.convert(given, _Payload)
        except (ValueError, RecursionError) as error:
            raise ManifestError(collection, f"the payload of a point is not valid: {error}") from error
        extra = {key: str(value) for key, value in given.items() if key not in OWN_FIELDS}
        return cls(**msgspec.structs.asdict(parsed), extra=extra)


class _Payload(msgspec.Struct, gc=False):
    """A payload as read back from the store; another program may have written it."""

    kb: str
    entity_id: str
    name: str
    canonical_name: str
    is_canonical: bool
    kb_types: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    description: str | None = None
    phrase_type: str | None = None
    lexical_class: str | None = None
    predicted_type: str | None = None
    type_probability: float | None = None
    popularity: float | None = None
    language: str | None = None


class _PlainPayload(_Payload, forbid_unknown_fields=True, gc=False):
    """A payload without extra fields."""

    filter_types: Any = None


_read_plain = msgspec.json.Decoder(_PlainPayload).decode
OWN_FIELDS = frozenset((*_Payload.__struct_fields__, FILTER_FIELD))
"""Keys of a payload that no further field may have."""


class Checkpoint(BaseModel):
    """How much of its input, whose content has this digest, an unfinished ingest has stored.

    Entities from the start of the input; it is done when all are stored, and only the graph is missing.
    """

    model_config = ConfigDict(frozen=True)

    input: str
    digest: str
    entities: int
    is_done: bool = False


class LoadedInput(BaseModel):
    """An input whose load is complete: its paths as given, and the digest of its content."""

    model_config = ConfigDict(frozen=True)

    input: str
    digest: str


class LinkCalibration(BaseModel):
    """Turns the linker's logits into probabilities in one collection; see `linking.ranking.Calibration`.

    Attributes:
        slope: Factor of every logit.
        nil_bias: Added to the logit of NIL.
        threshold: A mention with a lower probability is NIL.
        features, decision, nil_features: Coefficients of the ranking by name; None: those shipped with the package.
    """

    # Extra fields may say on what it was fitted, and how well.
    model_config = ConfigDict(frozen=True, extra="allow")

    slope: float = Field(gt=0, allow_inf_nan=False)
    nil_bias: float = Field(allow_inf_nan=False)
    threshold: float = Field(ge=0, le=1)
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
        quantization: How vectors are kept for finding candidates.
        has_plain_payloads: Whether an embedded collection has points as a server keeps them (`edge.points`).
        lexical_version: `ngrams.VERSION` of its sparse vectors.
        ngram_rarity: IDF of the n-grams among its names (`lexical.idf.IdfTable`), made at the end of a load.
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
        quantization: Quantization = "int8",
        type_map_version: str | None = None,
    ) -> Manifest:
        """Make the manifest of a new collection for a model."""
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
        """Return the manifest that a store writes with a new collection."""
        return self.model_copy(update={"has_plain_payloads": False})

    def with_checkpoint(self, checkpoint: Checkpoint) -> Manifest:
        """Return a copy with a checkpoint, which replaces the one of the same input."""
        return self.with_checkpoints((*self.without_input(checkpoint.input).checkpoints, checkpoint))

    def without_input(self, name: str) -> Manifest:
        """Return a copy without an input's checkpoint."""
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

    def is_of(self, info: ModelInfo) -> bool:
        """Whether a model's vectors can be compared with the collection's."""
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
