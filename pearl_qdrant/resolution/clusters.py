"""Clusters of the forms that no collection knows: average linkage of the probabilities of pairs, without chains.

    linkage         mean probability over all pairs of a name of one cluster and a name of the other, and that of each
                    name and its nearest one: half of each; that of the nearest pair, if it is certain
    merge           the two clusters of the highest linkage, while it is at least the threshold, and no pair between
                    them is forbidden
    representative  the name of a cluster that the others agree with most; a name that does not agree with it, nor is
                    certainly the same as one that does, leaves

So a wrong pair joins nothing by itself. Pairs that the search did not find are scored when two clusters that need them
are about to merge.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.ranking.scoring import EXACT_CERTAINTY
from pearl_qdrant.resolution.contexts import ALIKE, APART, Contexts
from pearl_qdrant.resolution.names import Forms
from pearl_qdrant.resolution.pairs.comparison import Comparison, unpack_pairs
from pearl_qdrant.resolution.pairs.features import COLUMN, CONTRADICTED, POSSIBLE, UNLESS_SAME
from pearl_qdrant.resolution.pairs.model import (
    ALWAYS_ASKED,
    DOUBTS,
    EQUAL,
    INITIALS,
    PART_OF,
    PairModel,
    probability_of,
    reason_of,
)
from pearl_qdrant.resolution.pairs.same_words import PART, SAME, person_words

FORBIDDEN = -1.0  # The probability of a pair that nothing may merge
CERTAIN, LOGIT_CERTAIN = 0.99, 4.595  # Least probability of a pair that needs no other pair to agree

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
CodeArray = npt.NDArray[np.uint8]

Pair = tuple[int, int]
ScorePairs = Callable[[Sequence[Pair]], tuple[Sequence[float], Sequence[int]]]
"""Returns the probabilities of pairs of names, `FORBIDDEN` for those that nothing may merge, and numbers of doubts.

A pair with a doubt is not merged either, but its probability is kept; 0 is none.
"""


Prefer = Callable[[Sequence[int]], Mapping[int, float]]
"""How good each of the names of a cluster is to call it by; names below 0 are not taken if there are others."""


@dataclass(slots=True)
class Cluster:
    """Names of one entity by their numbers; `agreement`: the probability that each is what the representative is."""

    members: list[int]
    representative: int
    agreement: dict[int, float]


@dataclass(slots=True)
class Group:
    """Names that are one cluster from the start; `founder`: the representative, for good; None in a new cluster."""

    members: list[int]
    founder: int | None = None


class PairTable:
    """Probabilities and doubts of known pairs, (p,), by ascending `pack_pairs`; missing ones are scored on demand."""

    def __init__(self, keys: IntArray, probabilities: FloatArray, doubts: CodeArray, score: ScorePairs) -> None:
        self._keys = keys  # arrays take a tenth of the memory of a dictionary
        self._probabilities = probabilities
        self._doubts = doubts
        self._added: dict[int, tuple[float, int]] = {}
        self._score = score

    def add_missing(self, pairs: Iterable[Pair]) -> None:
        missing = list(dict.fromkeys(_key(*pair) for pair in pairs if self.get(*pair) is None))
        if missing:
            scored = self._score([(key >> 32, key & 0xFFFFFFFF) for key in missing])
            self._added.update(zip(missing, zip(*scored, strict=True), strict=True))

    def forbid(self, a: int, b: int, *, probability: float = FORBIDDEN, doubt: int = 0) -> None:
        """Nothing may merge a pair; with a doubt it has a probability."""
        key = _key(a, b)
        if (at := self._find(key)) is None:
            self._added[key] = (probability, doubt)
        else:
            self._probabilities[at], self._doubts[at] = probability, doubt

    def get(self, a: int, b: int) -> float | None:
        """The probability of a pair, `FORBIDDEN` where there is a doubt; None if it is not known."""
        found = self._known(a, b)
        return None if found is None else FORBIDDEN if found[1] else found[0]

    def is_excluded(self, a: int, b: int) -> bool:
        """Whether a known pair is none, whatever a person might say: something contradicts it, or it was decided."""
        return self._known(a, b) == (FORBIDDEN, 0)

    def _known(self, a: int, b: int) -> tuple[float, int] | None:
        """The probability and the doubt of a pair, if they are known."""
        found = self._added.get(key := _key(a, b))
        if found is None and (at := self._find(key)) is not None:
            found = float(self._probabilities[at]), int(self._doubts[at])
        return found

    def probability(self, a: int, b: int) -> float:
        """The probability of a pair as `get` has it, scored if need be."""
        if (found := self.get(a, b)) is not None:
            return found
        self.add_missing([(a, b)])
        return self.probability(a, b)

    def items(self, least: float) -> Iterator[tuple[int, int, float]]:
        """All known pairs of at least a probability, without those with a doubt."""
        return ((a, b, probability) for a, b, probability, doubt in self.with_doubts(least) if not doubt)

    def with_doubts(self, least: float) -> Iterator[tuple[int, int, float, int]]:
        """All known pairs of at least a probability, with their doubts."""
        for start in range(0, len(self._keys), _READ):
            block = slice(start, start + _READ)
            is_enough = self._probabilities[block] >= least
            columns = (self._keys[block], self._probabilities[block], self._doubts[block])
            for key, probability, doubt in zip(*(column[is_enough].tolist() for column in columns), strict=True):
                yield key >> 32, key & 0xFFFFFFFF, probability, doubt
        for key, (probability, doubt) in self._added.items():
            if probability >= least:
                yield key >> 32, key & 0xFFFFFFFF, probability, doubt

    def _find(self, key: int) -> int | None:
        at = int(self._keys.searchsorted(key))
        return at if at < len(self._keys) and self._keys[at] == key else None


_READ = 65_536


def _key(a: int, b: int) -> int:
    """Both numbers in one, which takes a third of the memory of a tuple."""
    return a << 32 | b if a < b else b << 32 | a


def cluster_names(table: PairTable, threshold: float, *, prefer: Prefer, groups: Sequence[Group] = ()) -> list[Cluster]:
    """Merge names into clusters of at least two, and those of groups.

    Args:
        table: Probabilities of pairs.
        threshold: Least linkage of a merge, and least probability of a member and its representative, in [0, 1].
        prefer: Says which name a cluster is called by, of those that the others agree with about as well.
        groups: Names that are together whatever their probability, without common members; two founders never merge.
    """
    founders = {group.founder: group for group in groups if group.founder is not None}
    held = {member for group in groups for member in group.members if len(group.members) > 1}
    found = []
    for members in _Merging(table, threshold, groups).run():
        founder = next((member for member in members if member in founders), None)
        if len(members) > 1 or founder is not None:
            first = _with_representative(table, members, prefer, founder)
            found += _agreeing(table, first, threshold, prefer, held)
    return found


def attach(
    of_name: dict[int, Cluster], table: PairTable, short: int, long: int, probability: float, founders: Collection[int]
) -> None:
    """Put the cluster of one name into that of another, unless both have founders, or something forbids a pair of their
    names; `of_name`: clusters by member. A name is as sure as the weakest pair on its way to the representative.
    """
    gone, kept = (of_name.get(one) or Cluster([one], one, {one: 1.0}) for one in (short, long))
    way = min(probability, gone.agreement[short], kept.agreement[long])
    if gone.representative in founders:
        gone, kept = kept, gone
    if gone is kept or gone.representative in founders:
        return
    others = [(a, b) for a in gone.members for b in kept.members if {a, b} != {short, long}]
    table.add_missing(others)
    if any(table.is_excluded(*pair) for pair in others):
        return
    kept.agreement.update({one: min(way, gone.agreement[one]) for one in gone.members})
    kept.members = sorted(kept.members + gone.members)
    of_name.update(dict.fromkeys(kept.members, kept))


class _Merging:
    """Clusters while they merge, by the number of one of their names: their names, the clusters that have a probable
    pair with each, a version that changes with each merge (so that old entries of the queue are recognised), and those
    that have a founder.
    """

    def __init__(self, table: PairTable, threshold: float, groups: Sequence[Group]) -> None:
        self._table, self._threshold = table, threshold
        self._members = {group.members[0]: list(group.members) for group in groups}
        self._fixed = {group.members[0] for group in groups if group.founder is not None}
        self._near: dict[int, set[int]] = {}
        of_name = {member: group.members[0] for group in groups for member in group.members}
        for a, b, _ in table.items(threshold):
            one, other = of_name.get(a, a), of_name.get(b, b)
            if one != other:
                for cluster, neighbour in ((one, other), (other, one)):
                    self._members.setdefault(cluster, [cluster])
                    self._near.setdefault(cluster, set()).add(neighbour)
        self._version = dict.fromkeys(self._members, 0)

    def run(self) -> Iterable[list[int]]:
        """The names of each cluster, when no two of them merge any more."""
        queue = [entry for cluster in self._members for entry in self._entries(cluster, once=True)]
        heapq.heapify(queue)
        while queue:
            _, a, b, version_a, version_b = heapq.heappop(queue)
            if self._version.get(a) == version_a and self._version.get(b) == version_b:
                self._join(a, b)
                for entry in self._entries(a):
                    heapq.heappush(queue, entry)
        return self._members.values()

    def _entries(self, cluster: int, *, once: bool = False) -> Iterator[tuple[float, int, int, int, int]]:
        """Entries of the queue for a cluster and those near it, or only those of a higher number."""
        for other in sorted(self._near.get(cluster, ())):
            if (once and other < cluster) or (cluster in self._fixed and other in self._fixed):
                continue
            linkage = _linkage(self._table, self._members[cluster], self._members[other])
            if linkage >= self._threshold:
                yield -linkage, cluster, other, self._version[cluster], self._version[other]

    def _join(self, a: int, b: int) -> None:
        self._members[a] += self._members.pop(b)
        self._version[a] += 1
        del self._version[b]
        if b in self._fixed:
            self._fixed.add(a)
        self._near[a] = (self._near[a] | self._near.pop(b)) - {a, b}
        for other in self._near[a]:
            self._near[other].discard(b)
            self._near[other].add(a)


def _linkage(table: PairTable, ours: Sequence[int], theirs: Sequence[int]) -> float:
    """How probable it is that two clusters are one, or `FORBIDDEN` if one of their pairs is.

    Half of it is the mean probability of all pairs, half the mean over the names of that with their nearest name.
    """
    cross = [(i, j) for i in ours for j in theirs]
    if any(table.get(i, j) == FORBIDDEN for i, j in cross):
        return FORBIDDEN
    table.add_missing(cross)
    probabilities = np.array([table.probability(i, j) for i, j in cross]).reshape(len(ours), len(theirs))
    if probabilities.min() == FORBIDDEN:
        return FORBIDDEN
    if probabilities.max() >= CERTAIN:
        return float(probabilities.max())
    nearest = (probabilities.max(axis=0).mean() + probabilities.max(axis=1).mean()) / 2
    return float(probabilities.mean() + nearest) / 2


def _with_representative(
    table: PairTable, members: Sequence[int], prefer: Prefer, founder: int | None = None
) -> Cluster:
    """A cluster with its founder, else the preferred of the members that the others agree with most, to a tenth."""
    if founder is None:
        table.add_missing([(a, b) for i, a in enumerate(members) for b in members[i + 1 :]])
        weights = prefer(members)

        def centrality(one: int) -> tuple[bool, float, float, int]:
            total = sum(table.probability(one, other) for other in members if other != one)
            return (weights[one] >= 0, round(total / max(len(members) - 1, 1), 1), weights[one], -one)

        founder = max(members, key=centrality)
    table.add_missing([(founder, one) for one in members if one != founder])
    agreement = {one: 1.0 if one == founder else table.probability(founder, one) for one in members}
    for one in sorted(members, key=lambda member: -agreement[member]):
        for other in members:
            if agreement[other] < agreement[one] and table.probability(one, other) >= CERTAIN:
                agreement[other] = min(agreement[one], table.probability(one, other))
    return Cluster(sorted(members), founder, agreement)


def _agreeing(table: PairTable, cluster: Cluster, least: float, prefer: Prefer, held: Collection[int]) -> list[Cluster]:
    """The cluster without members that do not agree with the representative, and clusters of those; groups stay."""
    leaving = [one for one in cluster.members if cluster.agreement[one] < least and one not in held]
    if not leaving:
        return [cluster]
    staying = [one for one in cluster.members if one not in set(leaving)]
    kept = [_with_representative(table, staying, prefer, cluster.representative)]
    if len(leaving) > 1:
        kept += _agreeing(table, _with_representative(table, leaving, prefer), least, prefer, held)
    return kept


KEPT = 0.1  # Least probability of a pair that is kept; others are scored again if two clusters need them

TOGETHER = 0.95
"""Probability of an acronym and its long form in one source: 95 % of those that a context defines are right
(`linking.mention_detection.abbreviations`)."""

DOUBTED = 0.75  # Of probable pairs with a doubt 61, 54, 86 and 84 % were right in four sets (runs/resolution)

_EVEN = 0.5
_MAY_BE_CUT, _CUT = -1.0, 3.5
"""Logit from which two names with words cut short (`Mk`, `Mark`) are one, and their least logit then: 20 of 20 with a
probability of 0.3 to 0.8 were right in the five sets of runs/resolution."""
_UNJUDGED = -30.0  # Logit of a pair that a quick look says enough of
_DOUBTED_FROM = -2.0  # Quick logit from which the judge reads a pair with a doubt, which is asked at most

_PART, _ACRONYM = DOUBTS.index("part of several names"), DOUBTS.index("acronym of several names")
_OTHER_TYPES, _NAMESAKES, _OTHER_CONTEXTS = map(
    DOUBTS.index,
    ("equal names of different types", "equal names of different contexts", "contexts about other things"),
)
_SPELLING = tuple(map(DOUBTS.index, ("no word in common", "short words that are spelt alike")))
"""Doubts that contexts about one thing settle: `Genf`, `Genève`."""
_SAID = 1.5  # What these add to the logit

_BLOCK = 32_768


@dataclass(frozen=True, slots=True)
class NearPair:
    """Two forms with a probability in the band for review, or with a doubt; and why they were not merged."""

    a: int
    b: int
    probability: float
    reason: str


class Measured(NamedTuple):
    """What is measured of p pairs, each (p,): logits by the model, whether nothing contradicts, `same_words.SAME`,
    `PART` or 0, whether one has all words of the other, and more, whether a doubt is asked though the pair is not
    probable: one has a word more, where no other name has something else; and doubts of pairs that may be probable.
    """

    logits: npt.NDArray[np.float32]
    is_possible: npt.NDArray[np.bool_]
    sameness: CodeArray
    is_longer: npt.NDArray[np.bool_]
    is_near: npt.NDArray[np.bool_]
    doubts: CodeArray


_NOTHING_MEASURED = Measured(np.empty(0, np.float32), *(np.empty(0, t) for t in (bool, np.uint8, bool, bool, np.uint8)))


class NilClusters:
    """Clusters at least one form; pairs of `apart` stay apart, merges need `threshold`, questions `asked_from`; doubts
    forbid a merge if it `is_strict`, else they make a pair less probable.
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
        is_strict: bool = True,
        contexts: Contexts | None = None,
    ) -> None:
        self._comparison = Comparison(forms, encoder, contexts)
        self._model = model
        self._apart = {(min(pair), max(pair)) for pair in apart}
        self._threshold, self._asked_from, self._is_strict = threshold, asked_from, is_strict
        self._longer = np.empty(0, np.int64)
        self._attached: dict[int, str] = {}
        self._shift = 0.0
        self._table = PairTable(*self._known(), self._score)
        self._ask_of_equal_names()
        self._parts = self._found_parts()

    def _known(self) -> tuple[IntArray, FloatArray, CodeArray]:
        """Candidates with a probability of at least `KEPT`, packed, their probabilities and doubts."""
        every = self._comparison.candidates()
        found, longer = [_NOTHING_MEASURED], []
        for start in range(0, len(every), _BLOCK):
            pairs = unpack_pairs(every[start : start + _BLOCK])
            found.append(self._measured(pairs))
            longer.append(self._short_first(pairs[found[-1].is_longer]))
        self._longer = np.sort(np.concatenate([self._longer, *longer]))
        known = Measured(*map(np.concatenate, zip(*found, strict=True)))
        self._shift = self._model.shift(known.logits[known.is_possible], len(every))
        kept = [(every[:0], np.empty(0), np.empty(0, np.uint8))]
        for start in range(0, len(every), _BLOCK):
            part = slice(start, start + _BLOCK)
            measures = Measured(*(column[part] for column in known))  # type: ignore[arg-type]
            scored = self._decided(unpack_pairs(every[part]).tolist(), measures)
            probabilities, doubts = np.array(scored[0]), np.array(scored[1], np.uint8)
            is_kept = (probabilities >= min(KEPT, self._threshold)) | (probabilities == FORBIDDEN)
            kept.append((every[part][is_kept], probabilities[is_kept], doubts[is_kept]))
        columns = list(zip(*kept, strict=True))
        return np.concatenate(columns[0]), np.concatenate(columns[1]), np.concatenate(columns[2])

    def _measured(self, pairs: IntArray) -> Measured:
        features = self._comparison.features(pairs)
        sameness = np.array([self._comparison.sameness(a, b) for a, b in pairs.tolist()], np.uint8)
        against = features[:, COLUMN["against"]]
        is_possible = (against == POSSIBLE) | ((sameness > 0) & (against == UNLESS_SAME))
        logits = np.where(sameness > 0, LOGIT_CERTAIN, _UNJUDGED).astype(np.float32)
        read = np.flatnonzero((against == POSSIBLE) & (sameness == 0))
        quick = self._model.quick_logits(features[read])
        read, quick = read[quick >= self._model.least], quick[quick >= self._model.least]
        doubts = np.zeros(len(pairs), np.uint8)
        for i in (*read.tolist(), *np.flatnonzero(sameness > 0).tolist()):
            doubts[i] = DOUBTS.index(self._comparison.doubt(*pairs[i].tolist(), is_same=bool(sameness[i])))
        logits[read] = quick
        alike = np.full(len(pairs), np.nan)
        heard = np.concatenate((read, np.flatnonzero(sameness > 0)))
        alike[heard] = self._comparison.alike_contexts(pairs[heard])
        doubts[(alike < APART) & (doubts == 0)] = _OTHER_CONTEXTS
        doubts[(alike >= ALIKE) & np.isin(doubts, _SPELLING)] = 0
        judged = read if not self._is_strict else read[(doubts[read] == 0) | (quick >= _DOUBTED_FROM)]
        if len(judged):
            logits[judged] = self._model.logits(features[judged], self._comparison.judged(pairs[judged]))
            logits[judged] += np.float32(_SAID) * (alike[judged] >= ALIKE)
            for i in judged[logits[judged] > _MAY_BE_CUT]:
                if self._comparison.has_cut_words(*pairs[i].tolist()):
                    logits[i] = max(logits[i], _CUT)
        has_more = features[:, COLUMN["only_more"]] > 0
        for i in np.flatnonzero(has_more & (sameness == 0) & (logits == _UNJUDGED)):
            has_more[i] = self._comparison.has_all_words(*pairs[i].tolist())  # `Acne Studios` has not that of `Acme`
        for i in np.flatnonzero(sameness == SAME):
            a, b = pairs[i].tolist()
            differ = self._comparison.differ_in_middle(a, b) and has_more[i]
            has_more[i] = differ or self._comparison.differ_in_form(a, b)
        is_longer = is_possible & (has_more | (sameness == PART))
        is_near = is_possible & (features[:, COLUMN["fillers"]] == 0) & (sameness == 0)
        for i in np.flatnonzero(is_near):
            is_near[i] = self._comparison.differ_in_a_word(*pairs[i].tolist())
        return Measured(logits, against < CONTRADICTED, sameness, is_longer, is_near, doubts)

    def _score(self, pairs: Sequence[Pair]) -> tuple[list[float], list[int]]:
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
        columns = (probabilities, measured.sameness, measured.is_near, measured.doubts)
        rows = zip(pairs, *(column.tolist() for column in columns), strict=True)
        for i, ((a, b), probability, sameness, is_near, doubt) in enumerate(rows):
            if (a, b) in self._apart or not comparison.types.agree_pair(a, b) or comparison.differ_in_signs(a, b):
                continue
            if comparison.is_equal(a, b):
                found[i] = EXACT_CERTAINTY
            elif probability >= self._asked_from:
                doubts[i] = doubt * self._is_strict or _PART * (sameness == PART)
                found[i] = probability * (DOUBTED if doubt and not self._is_strict else 1.0)
            elif is_near and (asked := comparison.doubt(a, b, is_same=False)) in ALWAYS_ASKED:
                found[i], doubts[i] = self._asked_from, DOUBTS.index(asked)
            else:
                found[i] = probability
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
        """Equal names whose types or contexts differ are asked, and those without one that equal two such names."""
        agree, keys = self._comparison.types.agree_pair, self._comparison.forms.keys
        senses: dict[int, str] = {}
        for group in self._comparison.namesakes():
            pairs = [(a, b) for a in group for b in group if a < b]
            alike = self._comparison.alike_contexts(np.array(pairs, np.int64)) < APART
            are_senses = any(keys[a] == keys[b] or other for (a, b), other in zip(pairs, alike, strict=True))
            senses.update((one, keys[one][0]) for one in group if are_senses)
            for a, b in pairs if are_senses or not all(agree(*pair) for pair in pairs) else ():
                if (a, b) not in self._apart:
                    doubt = _NAMESAKES if are_senses and agree(a, b) else _OTHER_TYPES
                    self._table.forbid(a, b, probability=self._asked_from, doubt=doubt)
        self._ask_of_namesakes(senses)

    def _ask_of_namesakes(self, senses: dict[int, str]) -> None:
        """Another name of several namesakes, forms with their spelling, is asked unless its contexts are about one."""
        near: dict[tuple[int, str], list[tuple[int, float]]] = {}
        for a, b, probability, doubt in list(self._table.with_doubts(self._asked_from)) if senses else ():
            for one, other in ((a, b), (b, a)) if not doubt else ():
                if other in senses and senses.get(one) != senses[other]:
                    near.setdefault((one, senses[other]), []).append((other, probability))
        for (one, _), others in near.items():
            alike = self._comparison.alike_contexts(np.array([(one, other) for other, _ in others], np.int64))
            least = max([ALIKE, *alike[alike >= ALIKE]])
            for (other, probability), likeness in zip(others, alike, strict=True):
                if len(others) > 1 and not likeness >= least:
                    self._table.forbid(one, other, probability=probability, doubt=_NAMESAKES)

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
        for short, long in sorted(set(comparison.acronyms())):  # in an order that no hash of a string decides
            if (min(short, long), max(short, long)) not in self._apart and comparison.types.agree_pair(short, long):
                self._table.forbid(short, long, probability=TOGETHER, doubt=_ACRONYM)
                found.append((short, long, TOGETHER))
                letters.setdefault(long, set()).add(comparison.form(short).strings.joined)
        for a, b, probability in list(self._table.items(self._asked_from)) if letters else ():
            is_other = a in letters and b in letters and letters[a].isdisjoint(letters[b])
            if is_other and probability < CERTAIN:
                self._table.forbid(a, b, probability=probability, doubt=DOUBTS.index("each has another acronym"))
        return found

    def _longer_than(self, short: int) -> list[int]:
        lower, upper = np.searchsorted(self._longer, (short << 32, (short + 1) << 32))
        return [int(key & 0xFFFFFFFF) for key in self._longer[lower:upper]]

    def _is_rival(self, one: int, other: int) -> bool:
        """Whether two names that have all words of a shorter one are those of different things."""
        if one == other:
            return False
        if self._comparison.have_other_forms(one, other):
            return True
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
                    attach(of_name, self._table, short, long, probability, founders)
        return list({id(cluster): cluster for cluster in of_name.values()}.values())

    def reasons(self, pairs: Sequence[Pair]) -> Iterator[str]:
        """Why the forms of each pair, the name of a cluster and another one, are one entity."""
        for start in range(0, len(pairs), _BLOCK):
            block = pairs[start : start + _BLOCK]
            features = self._comparison.features(np.array([(min(pair), max(pair)) for pair in block], np.int64))
            for (a, b), row in zip(block, features.tolist(), strict=True):
                equal = EQUAL if self._comparison.is_equal(a, b) else None
                is_same = self._comparison.sameness(a, b) > 0
                yield equal or self._attached.get(b) or reason_of(row, is_same=is_same)

    def near_pairs(self) -> Iterator[NearPair]:
        """All scored pairs that are probable enough to be asked, and those with a doubt."""
        for a, b, probability, doubt in self._table.with_doubts(self._asked_from):
            yield NearPair(a, b, probability, DOUBTS[doubt] or "less probable")
