"""Clusters of the forms that no collection knows, by the scores of their pairs, decisions and earlier nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.ranking.rules import EXACT_CERTAINTY
from pearl_qdrant.resolution.clusters import (
    CERTAIN,
    FORBIDDEN,
    Cluster,
    CodeArray,
    FloatArray,
    Group,
    IntArray,
    Pair,
    PairTable,
    Prefer,
    attach,
    cluster_names,
    unpack_pairs,
)
from pearl_qdrant.resolution.names import Forms
from pearl_qdrant.resolution.pairs.comparison import Comparison
from pearl_qdrant.resolution.pairs.features import COLUMN, CONTRADICTED, POSSIBLE, UNLESS_SAME, contradictions
from pearl_qdrant.resolution.pairs.model import DOUBTS, EQUAL, INITIALS, PART_OF, PairModel, probability_of, reason_of
from pearl_qdrant.resolution.pairs.same_words import PART, SAME, person_words

KEPT = 0.1
"""Least probability of a pair that is kept; others are scored again if two clusters need them."""

TOGETHER = 0.95
"""Probability of an acronym and its long form in one source: 95 % of those that a context defines are right
(`linking.mention_detection.abbreviations`)."""

_EVEN = 0.5

_PART, _ACRONYM = DOUBTS.index("part of several names"), DOUBTS.index("acronym of several names")

_BLOCK = 32_768


@dataclass(frozen=True, slots=True)
class NearPair:
    """Two forms with a probability in the band for review, or with a doubt.

    Attributes:
        a, b: Forms.
        probability: In [0, 1].
        reason: Why they were not merged.
    """

    a: int
    b: int
    probability: float
    reason: str


class Measured(NamedTuple):
    """What is measured of p pairs, whatever the list is like; every field is (p,).

    Attributes:
        logits: By the model.
        is_possible: Whether nothing contradicts.
        sameness: `same_words.SAME`, `PART`, or 0.
        is_longer: Whether one has all words of the other, and more.
    """

    logits: npt.NDArray[np.float32]
    is_possible: npt.NDArray[np.bool_]
    sameness: CodeArray
    is_longer: npt.NDArray[np.bool_]


_NOTHING_MEASURED = Measured(np.empty(0, np.float32), np.empty(0, bool), np.empty(0, np.uint8), np.empty(0, bool))


class NilClusters:
    """Clusters forms.

    Args:
        forms: All of them; at least one.
        encoder: Makes their vectors.
        model: Scores pairs.
        apart: Pairs that a person decided to be different.
        threshold: Least probability of a merge.
        asked_from: Least probability of a pair that is asked.
    """

    def __init__(
        self,
        forms: Forms,
        encoder: Encoder,
        model: PairModel,
        apart: Collection[Pair],
        *,
        threshold: float,
        asked_from: float,
    ) -> None:
        self._comparison = Comparison(forms, encoder)
        self._model = model
        self._apart = {(min(pair), max(pair)) for pair in apart}
        self._threshold, self._asked_from = threshold, asked_from
        self._longer = np.empty(0, np.int64)
        self._attached: dict[int, str] = {}
        self._shift = 0.0
        self._table = PairTable(*self._known(), self._score)
        self._ask_of_equal_names()
        self._parts = self._found_parts()

    def _known(self) -> tuple[IntArray, FloatArray, CodeArray]:
        """Candidates with a probability of at least `KEPT`, packed, their probabilities and doubts."""
        packed = self._comparison.candidates()
        keys, measured = [packed[:0]], [_NOTHING_MEASURED]
        longer = []
        for start in range(0, len(packed), _BLOCK):
            block = packed[start : start + _BLOCK]
            pairs = unpack_pairs(block)
            scores = self._comparison.scores(pairs, with_words=False)
            is_worth = self._model.is_worth_comparing(scores["dense"], scores["lexical"])
            is_worth |= np.array([self._comparison.is_equal(a, b) for a, b in pairs.tolist()], bool)
            measured.append(self._measured(pairs[is_worth]))
            keys.append(block[is_worth])
            longer.append(self._short_first(pairs[is_worth][measured[-1].is_longer]))
        self._longer = np.sort(np.concatenate([self._longer, *longer]))
        every, known = np.concatenate(keys), Measured(*map(np.concatenate, zip(*measured, strict=True)))
        self._shift = self._model.shift(known.logits[known.is_possible], len(packed))
        kept = [(every[:0], np.empty(0), np.empty(0, np.uint8))]
        for start in range(0, len(every), _BLOCK):
            part = slice(start, start + _BLOCK)
            measures = Measured(*(column[part] for column in known))  # type: ignore[arg-type]
            scored = self._decided(unpack_pairs(every[part]).tolist(), measures)
            probabilities, doubts = np.array(scored[0]), np.array(scored[1], np.uint8)
            is_kept = (probabilities >= KEPT) | (probabilities == FORBIDDEN)
            kept.append((every[part][is_kept], probabilities[is_kept], doubts[is_kept]))
        columns = list(zip(*kept, strict=True))
        return np.concatenate(columns[0]), np.concatenate(columns[1]), np.concatenate(columns[2])

    def _measured(self, pairs: IntArray) -> Measured:
        features = self._comparison.features(pairs)
        sameness = np.array([self._comparison.sameness(a, b) for a, b in pairs.tolist()], np.uint8)
        against = contradictions(features)
        is_possible = (against == POSSIBLE) | ((sameness > 0) & (against == UNLESS_SAME))
        logits = self._model.logits(features).astype(np.float32)
        logits[~is_possible & (against == UNLESS_SAME)] = -30
        has_more = features[:, COLUMN["only_more"]] > 0
        for i in np.flatnonzero(has_more & (sameness == SAME)):
            has_more[i] = self._comparison.differ_in_middle(*pairs[i].tolist())
        is_longer = is_possible & (has_more | (sameness == PART))
        return Measured(logits, against < CONTRADICTED, sameness, is_longer)

    def _score(self, pairs: Sequence[Pair]) -> tuple[list[float], list[int]]:
        """Probabilities and doubts of pairs."""
        return self._decided(pairs, self._measured(np.array(pairs, np.int64)))

    def _decided(self, pairs: Sequence[Pair], measured: Measured) -> tuple[list[float], list[int]]:
        """Probabilities and doubts of pairs."""
        comparison = self._comparison
        found, doubts = [FORBIDDEN] * len(pairs), [0] * len(pairs)
        probabilities = probability_of(measured.logits + self._shift)
        is_same = measured.sameness > 0
        # Of such pairs of the made lists 1,338 of 1,341 are right.
        probabilities[is_same] = np.maximum(probabilities[is_same], CERTAIN)
        probabilities[~measured.is_possible] = FORBIDDEN
        rows = zip(pairs, probabilities.tolist(), measured.sameness.tolist(), strict=True)
        for i, ((a, b), probability, sameness) in enumerate(rows):
            if (a, b) in self._apart or not comparison.types.agree_pair(a, b) or comparison.differ_in_signs(a, b):
                continue
            if comparison.is_equal(a, b):
                found[i] = EXACT_CERTAINTY
            else:
                found[i] = probability
                if probability >= self._asked_from:
                    doubts[i] = DOUBTS.index(comparison.doubt(a, b, is_same=sameness > 0)) or _PART * (sameness == PART)
        return found, doubts

    def _short_first(self, pairs: IntArray) -> IntArray:
        """Pairs of a name and a longer one, packed with the shorter one first."""
        lengths = [
            [len("".join(person_words(self._comparison.form(one).strings)[0])) for one in pair]
            for pair in pairs.tolist()
        ]
        is_turned = np.array([a > b for a, b in lengths], bool)
        short, long = np.where(is_turned, pairs[:, 1], pairs[:, 0]), np.where(is_turned, pairs[:, 0], pairs[:, 1])
        packed: IntArray = short << 32 | long
        return packed

    def _ask_of_equal_names(self) -> None:
        """Equal names whose types differ are asked, and those without a type that equal two such names."""
        agree = self._comparison.types.agree_pair
        for group in self._comparison.namesakes():
            pairs = [(a, b) for a in group for b in group if a < b]
            differing = [pair for pair in pairs if not agree(*pair)]
            for a, b in pairs if differing else ():
                if (a, b) not in self._apart:
                    doubt = DOUBTS.index("equal names of different types")
                    self._table.forbid(a, b, probability=self._asked_from, doubt=doubt)

    def _found_parts(self) -> list[tuple[int, int, float]]:
        """Pairs of a name and one that it is a part or the initials of, with their probabilities; the longest first.

        None of them merges with others' help. A name that is no person's, and a part of one thing's names alone, is as
        any other.
        """
        found = []
        for a, b, probability, doubt in list(self._table.with_doubts(self._asked_from)):
            for short, long in ((a, b), (b, a)) if doubt in (0, _PART) else ():
                longer = self._longer_than(short)
                if long in longer and (doubt or any(self._is_rival(long, other) for other in longer)):
                    self._table.forbid(a, b, probability=probability, doubt=_PART)
                    found.append((short, long, probability))
        found.sort(key=lambda part: -len(self._comparison.form(part[0]).strings.content))
        comparison = self._comparison
        letters: dict[int, set[str]] = {}
        for short, long in dict.fromkeys(comparison.acronyms()):
            if (min(short, long), max(short, long)) not in self._apart and comparison.types.agree_pair(short, long):
                self._table.forbid(short, long, probability=TOGETHER, doubt=_ACRONYM)
                found.append((short, long, TOGETHER))
                letters.setdefault(long, set()).add(comparison.form(short).strings.joined)
        for a, b, probability in list(self._table.items(self._asked_from)) if letters else ():
            if a in letters and b in letters and letters[a].isdisjoint(letters[b]):
                self._table.forbid(a, b, probability=probability, doubt=DOUBTS.index("each has another acronym"))
        return found

    def _longer_than(self, short: int) -> list[int]:
        lower, upper = np.searchsorted(self._longer, (short << 32, (short + 1) << 32))
        return [int(key & 0xFFFFFFFF) for key in self._longer[lower:upper]]

    def _is_rival(self, one: int, other: int) -> bool:
        """Whether two names that have all words of a shorter one are those of different things."""
        if one == other:
            return False
        ours, theirs = (self._comparison.form(form).strings.content_set for form in (one, other))
        if ours <= theirs or theirs <= ours:
            return False
        return self._table.probability(one, other) < _EVEN

    def cluster(self, *, groups: Sequence[Group], prefer: Prefer) -> list[Cluster]:
        """The clusters; see `cluster_names`.

        A name that is a part of others, or their initials, joins these if all of them are in one cluster.
        """
        for pair in self._apart:
            self._table.forbid(*pair)
        found = cluster_names(self._table, self._threshold, prefer=prefer, groups=groups)
        founders = {group.founder for group in groups if group.founder is not None}
        of_short: dict[tuple[int, bool], list[tuple[int, float]]] = {}
        for short, long, probability in self._parts:
            of_short.setdefault((short, probability == TOGETHER), []).append((long, probability))
        of_name = {member: cluster for cluster in found for member in cluster.members}
        for (short, is_acronym), longer in of_short.items():
            every = [long for long, _ in longer] if is_acronym else self._longer_than(short)
            if any(
                (of_name.get(one) is not of_name.get(other) or of_name.get(one) is None) and self._is_rival(one, other)
                for one, _ in longer
                for other in every
            ):
                continue
            self._attached[short] = INITIALS if is_acronym else PART_OF
            for long, probability in longer:
                if probability >= self._threshold:
                    attach(of_name, short, long, probability, founders)
        return list({id(cluster): cluster for cluster in of_name.values()}.values())

    def reasons(self, pairs: Sequence[Pair]) -> Iterator[str]:
        """Why the forms of each pair, the name of a cluster and another one, are one entity."""
        for start in range(0, len(pairs), _BLOCK):
            block = pairs[start : start + _BLOCK]
            features = self._comparison.features(np.array([(min(pair), max(pair)) for pair in block], np.int64))
            for (a, b), row in zip(block, features.tolist(), strict=True):
                equal = EQUAL if self._comparison.is_equal(a, b) else None
                yield equal or self._attached.get(b) or reason_of(row)

    def near_pairs(self) -> Iterator[NearPair]:
        """All scored pairs that are probable enough to be asked, and those with a doubt."""
        for a, b, probability, doubt in self._table.with_doubts(self._asked_from):
            yield NearPair(a, b, probability, DOUBTS[doubt] or "less probable")
