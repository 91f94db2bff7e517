"""What a search found for a mention, what scoring needs, and what it makes of it: names, entities, mentions.

Scored mentions are remembered, so that one that comes again is not searched again. A mention is kept as bytes, so that
the garbage collector, for which an event loop waits, has nothing to visit. 10 candidates take 4 to 5 KB, 30 take 12 to
14. Packing takes 0.06 to 0.2 ms, unpacking 0.15 to 0.5, a search 4 to 10.
"""

from __future__ import annotations

import pickle
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter, is_
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.ranking.model import FEATURES, RankingModel
from pearl_qdrant.records import Candidate
from pearl_qdrant.store.schema import NamePoint

RuleName = Literal["entity id", "exact name", "canonical name", "popularity", "namesakes", "learned name"]
"""Rules before the ranking model; see `scoring.py`. The last one comes after it; see `linking.learned`."""

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
    """A candidate entity with its features and logit.

    Attributes:
        name: The best name of the entity.
        features: (len(FEATURES),).
        logit: Dot product of features and coefficients, plus the offset.
        offset: What rules add to the logit (`scoring.py`): the share among namesakes, and the bonus of an exact name.
        is_namesake: Whether its best name is that of the first candidate, after folding; that one included.
        tie: Whether another entity has an equal best name, and nothing separates the two.
        document: What the parts of a document add to the logit, by name; None for a mention alone.
    """

    name: MatchedName
    features: npt.NDArray[np.float64]
    logit: float
    offset: float = 0.0
    is_namesake: bool = False
    tie: bool = False
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
    """A mention with its candidate entities.

    Attributes:
        mention: The string as given.
        found: The entities, best first.
        nil_logit: Logit of NIL.
        nil_features: (len(NIL_FEATURES),).
        rule: The rule that chose or ordered the first candidates, or None.
        certainty: Precision of the rule, in (0, 1]; multiplies the probabilities of the candidates.
    """

    mention: str
    found: list[ScoredEntity]
    nil_logit: float
    nil_features: npt.NDArray[np.float64]
    rule: RuleName | None = None
    certainty: float = 1.0

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


_UNRELATED = (
    "granite/tax return/Marie Curie/violin sonata/liver enzyme/Buenos Aires/football league/blue whale/steam engine/"
    "supreme court/apple pie/quadratic equation/winter coat/desert wind/railway bridge/peace treaty"
).split("/")

_HIGHEST = 0.95  # reached only by a broken encoder, for which all names are alike


def baseline_similarity(encoder: Encoder) -> float:
    """Mean cosine of 16 unrelated names, in [0, 0.95]."""
    vectors = encoder.encode(_UNRELATED).vectors
    cosines = vectors @ vectors.T
    n = len(_UNRELATED)
    return float(np.clip((cosines.sum() - np.trace(cosines)) / (n * (n - 1)), 0.0, _HIGHEST))


CACHE_BYTES = 32 << 20  # packed mentions that are kept: about 6,500 with 10 candidates each, 2,400 with 30
ENTRY_BYTES = 250  # what an entry takes beside its key and its mention: objects, and the dictionary


class MentionCache:
    """Packed mentions, the last ones used, up to a number of bytes. Safe to use from several threads. They are valid
    for one state of the collections: those of another state are forgotten with the first use of the new one.
    """

    def __init__(self, max_bytes: int = CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._packed: OrderedDict[str, bytes] = OrderedDict()
        self._state: Sequence[object] = ()
        self._n_bytes = 0

    @property
    def n_bytes(self) -> int:
        """Bytes that are kept."""
        return self._n_bytes

    def __len__(self) -> int:
        return len(self._packed)

    def get(self, texts: Iterable[str], link_query: LinkQuery, state: Sequence[object]) -> dict[str, bytes]:
        """The packed mentions that are known, by their cleaned text, in the state that the collections have now."""
        query = repr(link_query)
        with self._lock:
            if not is_same_state(state, self._state):
                self._packed.clear()
                self._state, self._n_bytes = tuple(state), 0
            found = {text: packed for text in texts if (packed := self._packed.get(query + text)) is not None}
            for text in found:
                self._packed.move_to_end(query + text)
        return found

    def put(self, text: str, link_query: LinkQuery, packed: bytes, state: Sequence[object]) -> None:
        """Keep a packed mention, unless the collections have changed since they were searched in this state."""
        key = repr(link_query) + text
        with self._lock:
            if not is_same_state(state, self._state) or key in self._packed:
                return
            self._packed[key] = packed
            self._n_bytes += len(packed) + len(key) + ENTRY_BYTES
            while self._n_bytes > self._max_bytes:
                oldest, dropped = self._packed.popitem(last=False)
                self._n_bytes -= len(dropped) + len(oldest) + ENTRY_BYTES

    def clear(self) -> None:
        """Forget all mentions."""
        with self._lock:
            self._packed.clear()
            self._n_bytes = 0


def is_same_state(state: Sequence[object], other: Sequence[object]) -> bool:
    """Whether two states have the same objects as items."""
    return len(state) == len(other) and all(map(is_, state, other))


def pack(scored: ScoredMention) -> bytes:
    """A scored mention as bytes, but for its text."""
    found = scored.found
    points = [_point_fields(entity.name.point) for entity in found]
    names = [_name_fields(entity.name) for entity in found]
    entities = [_entity_fields(entity) for entity in found]
    features = np.array([entity.features for entity in found], dtype=np.float64).ravel()
    at = np.flatnonzero(features)  # two thirds are 0
    of_mention = (scored.nil_logit, scored.nil_features.tobytes(), scored.rule, scored.certainty)
    packed = of_mention, at.astype(np.uint32).tobytes(), features[at].tobytes(), points, names, entities
    return pickle.dumps(packed, pickle.HIGHEST_PROTOCOL)


def unpack(packed: bytes, mention: str) -> ScoredMention:
    """The scored mention that `pack` packed; all of it is new, so that a caller may change it."""
    of_mention, at, values, points, names, entities = pickle.loads(packed)  # noqa: S301 - packed by this process
    features = np.zeros((len(points), len(FEATURES)))
    features.ravel()[np.frombuffer(at, dtype=np.uint32)] = np.frombuffer(values)
    found = [
        ScoredEntity(MatchedName(NamePoint(*of_point), *of_name), row, *of_entity)
        for of_point, of_name, of_entity, row in zip(points, names, entities, features, strict=True)
    ]
    nil_logit, nil_features, rule, certainty = of_mention
    return ScoredMention(mention, found, nil_logit, np.frombuffer(nil_features).copy(), rule, certainty)


def _fields_after(record: type, n: int) -> attrgetter[tuple[Any, ...]]:
    """Reads the fields of a record as a tuple, in their order, without the first `n`."""
    return attrgetter(*[one.name for one in fields(record)[n:]])


_point_fields = _fields_after(NamePoint, 0)
_name_fields = _fields_after(MatchedName, 1)  # the point is packed by itself
_entity_fields = _fields_after(ScoredEntity, 2)  # the name and the features are
