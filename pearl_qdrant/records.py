"""Public records: entities as input; links, candidates and annotations as output. All are frozen dataclasses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from typing import Any, Literal

Assertion = Literal["affirmed", "negated", "possible", "historical", "other_person"]
"""What a text says of a mention; the last one: it is another person's."""

LINKS_FIELD = "links_to"
"""The field of `Entity.extra` with the ids of the entities that it is linked to, joined by ``|``."""


@dataclass(frozen=True, slots=True)
class Entity:
    """An item of a knowledge base.

    Attributes:
        entity_id: Its id within the base (CUI, QID, IRI, ...).
        canonical_name: The preferred name.
        aliases: All other names, without the canonical name and without duplicates.
        kb_types: Types of the base itself, including ancestors.
        types: Coarse OntoNotes types, mapped from `kb_types`.
        description: One sentence about it, if the base has one.
        extra: Further payload from the reader (source vocabulary, links, ...).
        popularity: How well known it is, finite and >= 0, in any unit of the base (links, page views); None if unknown.
        languages: The language code of each name for which the base states one, in lower case, such as "en" or "de-at".
    """

    entity_id: str
    canonical_name: str
    aliases: tuple[str, ...] = ()
    kb_types: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    description: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    popularity: float | None = None
    languages: Mapping[str, str] = field(default_factory=dict)

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
    NO_NAME = "no_name"
    SEVERAL_NAMES = "several_names"


NO_SINGLE_NAME = (NilReason.NO_NAME, NilReason.SEVERAL_NAMES)
"""Reasons after which neither a judge nor a row is asked which candidate it is."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entity proposed for a mention, with its scores.

    Attributes:
        entity_id: The entity's id in its base.
        kb: The base's short name.
        canonical_name: The entity's preferred name.
        name: The name of the entity that is closest to the mention.
        language: Code of the language of `name`; None if the base states none.
        kb_types: Types of the base itself.
        types: Coarse OntoNotes types from the base.
        phrase_type: Phrase type that the type head predicts for `name`, such as "NP-ORG"; None without a head.
        type_probability: Probability of the entity type in `phrase_type`, in [0, 1]; None without a head.
        description: The base's description, if any.
        popularity: As in `Entity`; None if the base has none.
        dense_score: Cosine of the dense vectors, in [-1, 1]; None if mention or name has no dense vector.
        lexical_score: Cosine of the rarity-weighted character n-gram vectors, in [0, 1].
        score: Logit by which candidates are ranked; higher is better.
        probability: Probability that this is the right entity, in [0, 1].
        tie: Whether another entity has an equal best name, and nothing separates the two.
        features: The features of the name, by the names in `linking.ranking.model.FEATURES`; behind the score of a
            mention alone.
        decision: Of the first candidate: what each feature adds to the logit that it is right.
        properties: How well its values agree with those of the row, in [0, 1]; without those that either side lacks.
        document: In a document or a context: what each of its parts adds to the score, in logits, by the names in
            `linking.documents.model.FEATURES`; empty for a mention alone.
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
    popularity: float | None = None
    dense_score: float | None = None
    lexical_score: float | None = None
    score: float = 0.0
    probability: float | None = None
    tie: bool = False
    features: Mapping[str, float] = field(default_factory=dict)
    document: Mapping[str, float] = field(default_factory=dict)
    decision: Mapping[str, float] = field(default_factory=dict)
    language: str | None = None
    properties: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LearnedCount:
    """How often a mention meant an entity, as a collection learned it.

    Attributes:
        entity_id: The entity, or None for NIL.
        kb: Short name of the base that it was learned for.
        as_written: How often the very same string meant it.
        other_forms: How often another form of the name did, such as one in capitals.
        rejected: How often it was rejected for the name.
    """

    entity_id: str | None
    kb: str
    as_written: int = 0
    other_forms: int = 0
    rejected: int = 0


@dataclass(frozen=True, slots=True)
class Link:
    """The link of a mention: an entity, or NIL with a reason.

    Attributes:
        mention: The string as given.
        entity_id: Id of the entity, or None for NIL.
        canonical_name: Its preferred name, or None for NIL.
        probability: Probability of the link, in [0, 1]; None for NIL or while uncalibrated.
        nil_reason: Why there is no entity; None if there is one.
        candidates: Best first.
        kb: Short name of the entity's base, or None for NIL. Ids of several collections may be equal.
        rule: The rule that chose or ordered the first candidates ("entity id", "exact name", "slip", "canonical name",
            "popularity", "namesakes", "learned name"), or "properties" where the row changed the link; None if the
            ranking model alone did.
        warnings: Why the answer may be wrong: a collection is incomplete, since its load did not finish. Usually empty.
        learned: What was learned of the name, most frequent first, where the rule is "learned name".
        parts: The links of the names of a list, where `split` asked for them.
    """

    mention: str
    entity_id: str | None
    canonical_name: str | None
    probability: float | None
    nil_reason: NilReason | None
    candidates: tuple[Candidate, ...] = ()
    kb: str | None = None
    warnings: tuple[str, ...] = ()
    rule: str | None = None
    learned: tuple[LearnedCount, ...] = ()
    parts: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True)
class Annotation:
    """A mention found in running text, with its link.

    Attributes:
        text: The text of the mention, `passage[start:end]`.
        start: Offset of its first character in the passage, in code points.
        end: Offset after its last character.
        link: The link of the string that was looked up: the mention with single spaces, without soft hyphens and
            ligatures, or its long form.
        long_form: The long form, if the mention is an abbreviation that the passage defines; else None.
        assertion: What the passage says of it: "affirmed", "negated", "possible", "historical" or "other_person".
        trigger: The words that say so, as written; None if it is affirmed.
        sentence: Offsets of its sentence.
        section: The heading above it, if there is one.
    """

    text: str
    start: int
    end: int
    link: Link
    long_form: str | None = None
    assertion: Assertion = "affirmed"
    trigger: str | None = None
    sentence: tuple[int, int] = (0, 0)
    section: str | None = None


_OF_LINK = tuple(one.name for one in fields(Link))
_OF_CANDIDATE = tuple(one.name for one in fields(Candidate))


def link_record(link: Link, *, is_explained: bool = False) -> dict[str, Any]:
    """A link as JSON, with features where it is explained; warnings, parts, what was learned and how values of the row
    agree only where there are any.
    """
    record = {name: getattr(link, name) for name in _OF_LINK}
    record["candidates"] = [_candidate_record(one, is_explained=is_explained) for one in link.candidates]
    record["learned"] = [asdict(one) for one in link.learned]
    record["parts"] = [link_record(one, is_explained=is_explained) for one in link.parts]
    return {name: value for name, value in record.items() if value or name not in ("warnings", "learned", "parts")}


def _candidate_record(candidate: Candidate, *, is_explained: bool) -> dict[str, Any]:
    record = {name: getattr(candidate, name) for name in _OF_CANDIDATE}
    for name in ("features", "document", "decision", "properties"):
        values = dict(record.pop(name))
        if values if name == "properties" else is_explained:
            record[name] = values
    return record
