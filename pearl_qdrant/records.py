"""What flows between the parts: entities in, links and candidates out. All frozen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True, slots=True)
class Entity:
    """An item of a knowledge base.

    Attributes:
        entity_id: Its id within the base (CUI, QID, IRI, ...).
        canonical_name: The preferred name.
        aliases: All other names; never repeats the canonical one or itself.
        kb_types: The base's own types, ancestors included.
        types: Coarse OntoNotes types, mapped from `kb_types`.
        description: One sentence about it, where the base has one.
        extra: Further payload that a reader adds (source vocabulary, language, ...).
    """

    entity_id: str
    canonical_name: str
    aliases: tuple[str, ...] = ()
    kb_types: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    description: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)

    def names(self) -> Iterator[str]:
        """All names, the canonical one first."""
        yield self.canonical_name
        yield from self.aliases


class NilReason(str, Enum):
    """Why a mention has no entity."""

    NO_CANDIDATES = "no_candidates"
    BELOW_THRESHOLD = "below_threshold"
    AMBIGUOUS = "ambiguous"
    TOO_LONG = "too_long"


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entity proposed for a mention, with its scores.

    Attributes:
        entity_id: The entity's id in its base.
        kb: The base's short name.
        canonical_name: The entity's preferred name.
        name: The name of the entity that is closest to the mention.
        kb_types: Native types of the base.
        types: Coarse OntoNotes types from the base.
        phrase_type: What the type head says of `name`, as "NP-ORG"; None without a head.
        type_probability: Probability of the entity type in `phrase_type`, in [0, 1]; None without a head.
        description: The base's description, if any.
        dense_score: Cosine of the dense vectors, in [-1, 1]; None if neither side has a dense vector.
        lexical_score: Cosine of the rarity-weighted character n-gram vectors, in [0, 1].
        score: What candidates are ranked by, a logit; higher is better.
        probability: Probability that this is the mention's entity, in [0, 1].
        tie: Whether nothing separates this entity from another one with an equal best name.
        features: What the score is made of, by the names of `linking.ranking.FEATURES`.
    """

    entity_id: str
    kb: str
    canonical_name: str
    name: str
    kb_types: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    phrase_type: str | None = None
    type_probability: float | None = None
    description: str | None = None
    dense_score: float | None = None
    lexical_score: float | None = None
    score: float = 0.0
    probability: float | None = None
    tie: bool = False
    features: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Link:
    """What a mention was linked to.

    Attributes:
        mention: The string as given.
        entity_id: The entity, or None for NIL.
        canonical_name: Its preferred name, or None for NIL.
        probability: Probability of the link, in [0, 1]; None for NIL or while uncalibrated.
        nil_reason: Why there is no entity; None if there is one.
        candidates: Best first.
        kb: The short name of the entity's base, or None for NIL: with several collections an id alone may mean two.
    """

    mention: str
    entity_id: str | None
    canonical_name: str | None
    probability: float | None
    nil_reason: NilReason | None
    candidates: tuple[Candidate, ...] = ()
    kb: str | None = None


@dataclass(frozen=True, slots=True)
class Annotation:
    """A mention found in running text, and what it was linked to.

    Attributes:
        text: The mention as it stands in the passage: `passage[start:end]`.
        start: Offset of its first character in the passage, in code points.
        end: Offset after its last character.
        link: The link of the string that was looked up: the mention with its white space made single spaces, or its
            long form.
        long_form: What the mention stands for, where the passage defines it as an abbreviation; else None.
    """

    text: str
    start: int
    end: int
    link: Link
    long_form: str | None = None
