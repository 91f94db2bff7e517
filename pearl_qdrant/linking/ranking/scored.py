"""What a search found for a mention, what scoring needs, and what it makes of it: names, entities, mentions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.ranking.model import FEATURES, RankingModel
from pearl_qdrant.records import Candidate
from pearl_qdrant.store.schema import NamePoint

RuleName = Literal["entity id", "exact name", "canonical name", "popularity", "namesakes", "learned name"]
"""Rules before the ranking model; see `rules.py`. The last one comes after it; see `linking.learned`."""

LEXICAL_SHARE = 0.5
"""Weight of the lexical score in the preliminary score, which sorts names before they are grouped and cut."""

EDIT_SHARE = 0.5  # weight of the edit similarity in the same
WORDS_SHARE = 0.5  # weight of the same words in another order in the same


@dataclass(slots=True)
class MatchedName:
    """A name that the search found, with its scores."""

    point: NamePoint  # payload of the name
    dense: float | None  # cosine, or None without vectors
    lexical: float = 0.0  # these three as in `lexical.idf.LexicalScores`
    mention_coverage: float = 0.0
    name_coverage: float = 0.0
    folded: str | None = None  # the folded name (`lexical.ngrams.fold_name`), as it is compared with the mention
    is_other_script: bool = False  # whether one of the two is in another script, and both are compared in Latin letters
    edit_similarity: float = 0.0  # edit similarity to the mention, in [0, 1]; 0 below 0.5
    is_same_spelling: bool = False  # whether it has the mention's spelling key (`lexical.keys`)
    has_same_words: bool = False  # whether it has the mention's key of sorted words, and there are several
    # another name of the same entity whose spelling is closer to the mention, if there is one
    closer: MatchedName | None = None

    @property
    def preliminary_score(self) -> float:
        """Sorts names before they are ranked; in [-1, 3.5]. A name of the mention's own spelling comes first."""
        dense = self.lexical if self.dense is None else self.dense
        shares = LEXICAL_SHARE * self.lexical + EDIT_SHARE * self.edit_similarity + WORDS_SHARE * self.has_same_words
        return dense + shares + self.is_same_spelling


@dataclass(frozen=True, slots=True)
class ScoredEntity:
    """A candidate entity with its features and logit."""

    name: MatchedName  # the best name of the entity
    features: npt.NDArray[np.float64]  # (len(FEATURES),)
    logit: float  # dot product of features and coefficients, plus the offset
    # what rules add to the logit (`rules.py`): the share among namesakes, and the bonus of an exact name
    offset: float = 0.0
    is_namesake: bool = False  # whether its best name is that of the first candidate, after folding; that one included
    tie: bool = False  # whether another entity has an equal best name, and nothing separates the two
    # what the parts of a document add to the logit, by name; None for a mention alone.
    document: Mapping[str, float] | None = None

    @property
    def point(self) -> NamePoint:
        """Payload of the best name."""
        return self.name.point

    @property
    def key(self) -> tuple[str, str]:
        """Base and id, which identify an entity."""
        return self.point.kb, self.point.entity_id

    def to_candidate(self, probability: float) -> Candidate:
        """The public record of this entity."""
        point = self.point
        return Candidate(
            entity_id=point.entity_id,
            kb=point.kb,
            canonical_name=point.canonical_name,
            name=point.name,
            kb_types=point.kb_types,
            types=point.types,
            phrase_type=point.phrase_type,
            type_probability=point.type_probability,
            description=point.description,
            popularity=point.popularity,
            language=point.language,
            dense_score=self.name.dense,
            lexical_score=self.name.lexical,
            score=self.logit,
            probability=probability,
            tie=self.tie,
            features=dict(zip(FEATURES, self.features.tolist(), strict=True)),
            document=self.document or {},
        )


@dataclass(frozen=True, slots=True)
class ScoredMention:
    """A mention with its candidate entities."""

    mention: str  # the string as given
    found: list[ScoredEntity]  # the entities, best first
    nil_logit: float  # logit of NIL
    nil_features: npt.NDArray[np.float64]  # (len(NIL_FEATURES),)
    rule: RuleName | None = None  # the rule that chose or ordered the first candidates, or None
    certainty: float = 1.0  # precision of the rule, in (0, 1]; multiplies the probabilities of the candidates

    @property
    def logits(self) -> list[float]:
        """Logits of the entities."""
        return [entity.logit for entity in self.found]


@dataclass(frozen=True, slots=True)
class LinkQuery:
    """What to search for, for every mention of a batch."""

    limit: int  # entities per mention
    types: tuple[str, ...] = ()  # types that the caller named
    is_filter: bool = True  # whether only entities of these types are searched; otherwise the types are a feature
    is_typed: bool = True  # whether the mention's predicted type counts
    names_first: bool = False  # whether a mention that is a name has no other candidates
    # only names in these languages, and those without a language, are searched; empty for all.
    languages: tuple[str, ...] = ()

    @property
    def filter(self) -> tuple[str, ...]:
        """Types that restrict the search; empty for all."""
        return self.types if self.is_filter else ()


@dataclass(frozen=True, slots=True)
class Scorer:
    """The parameters of the scoring."""

    model: RankingModel  # coefficients of the ranking
    baseline: float  # mean cosine of unrelated names with this encoder, in [0, 1)
    log_size: float  # natural logarithm of the number of names in all collections


_NAMES = (
    "granite",
    "tax return",
    "Marie Curie",
    "violin sonata",
    "liver enzyme",
    "Buenos Aires",
    "football league",
    "blue whale",
    "steam engine",
    "supreme court",
    "apple pie",
    "quadratic equation",
    "winter coat",
    "desert wind",
    "railway bridge",
    "peace treaty",
)

_HIGHEST = 0.95  # reached only by a broken encoder, for which all names are alike


def baseline_similarity(encoder: Encoder) -> float:
    """Mean cosine of 16 unrelated names, in [0, 0.95]."""
    vectors = encoder.encode(_NAMES).vectors
    cosines = vectors @ vectors.T
    n = len(_NAMES)
    return float(np.clip((cosines.sum() - np.trace(cosines)) / (n * (n - 1)), 0.0, _HIGHEST))
