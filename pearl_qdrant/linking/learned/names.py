"""What was learned of names: counts of the ledger, and how they change the probabilities of a scored mention.

Names are looked up by their spelling key (`lexical.keys`), so that `U.S.` knows of `US`. What was seen of the very same
string is kept apart from what was seen of other forms, and not every form speaks for another: letter case does.

    one word in small letters             `us`       does not count what was seen of `US` or `Us`, which are names
    one in capitals, five at most         `US`       does not count what was seen of `us`, a word
    any other, several words too          `Us`       counts what was seen of all

The counts of a million distinct pairs take 290 MB. What was learned goes before what the model says:

    p(e | name) = (n(name, e) + K * p_model(e)) / (n(name) + K),   and the same for NIL

The model's probabilities, NIL included, are the prior of a Dirichlet distribution, and worth K observations. It is
applied twice: counts of other forms of the name give the prior for the counts of the very same string.

A rejection is one observation of "not this entity". It adds 1 to n(name), and its share goes to the other outcomes that
were never rejected for this name, in proportion to the prior; to NIL if there is none. "No entity" in one of several
collections is an observation of "none of this base" likewise.

Where nothing was learned this costs nothing; else a dictionary lookup a mention, and one request for each learned
entity that the search did not find, once.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np

from pearl_qdrant.errors import EntityNotFoundError, LearningError
from pearl_qdrant.lexical.keys import joined
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.linking.learned.ledger import BatchKind, LearnedBatch, LearnedRow, Ledger, append_batch, read_ledger
from pearl_qdrant.linking.mentions import clean_mention
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.linking.ranking.model import FEATURES, Calibration, MatchedName, ScoredEntity, ScoredMention
from pearl_qdrant.linking.ranking.scoring import BONUS, decide
from pearl_qdrant.records import LearnedCount, Link
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import NamePoint


@dataclass(slots=True)
class Seen:
    """How often a string meant each entity, by id, or None, which is NIL; and how often it was not the entity."""

    links: dict[str | None, int] = field(default_factory=dict)
    rejections: dict[str, int] = field(default_factory=dict)

    def add(self, row: LearnedRow) -> None:
        """Add a row; its count is negative for a rejection."""
        if row.count > 0:
            self.links[row.entity_id] = self.links.get(row.entity_id, 0) + row.count
        elif row.entity_id is not None:
            self.rejections[row.entity_id] = self.rejections.get(row.entity_id, 0) - row.count


class Evidence(NamedTuple):
    """What was learned of one mention: counts of the very same string, and of others of the same spelling key."""

    as_written: Seen
    other_forms: Seen

    def only(self, what: Literal["links", "rejections"]) -> Evidence:
        """The links or the rejections alone."""
        return Evidence(*(Seen(**{what: getattr(seen, what)}) for seen in self))


def name_of(mention: object) -> str:
    """The form in which a mention is learned and looked up: cleaned, with single spaces; "" if it is no text."""
    return " ".join(clean_mention(mention).split())


def spelling_key(name: str) -> str:
    """The spelling key of a name; the name itself if it has neither letters nor digits."""
    return joined(fold_name(name).split()) or name


def letter_case(name: str) -> str:
    """The letter case: "small" for one word without capitals, "acronym" for a short name in capitals, else "name"."""
    if name == name.lower() and " " not in name:
        return "small"
    return "acronym" if name == name.upper() and sum(map(str.isalpha, name)) <= 5 else "name"


_COUNTED: Mapping[str, frozenset[str]] = {
    "small": frozenset(("small",)),
    "acronym": frozenset(("acronym", "name")),
    "name": frozenset(("small", "acronym", "name")),
}
"""Letter cases of the forms that count for a mention, by its own."""


class Counts:
    """Counts of all learned names of one collection."""

    def __init__(self) -> None:
        # A row for itself or a list of them, by spelling key; the count of a rejection is negative. Dictionaries in
        # the place of rows would take twice the memory.
        self._rows: dict[str, LearnedRow | list[LearnedRow]] = {}

    def __len__(self) -> int:
        """The number of spelling keys."""
        return len(self._rows)

    def add(self, rows: Iterable[LearnedRow], *, are_rejections: bool = False) -> None:
        """Add rows of the ledger."""
        for row in rows:
            if are_rejections:
                row = LearnedRow(row.mention, row.entity_id, -row.count)
            key = spelling_key(row.mention)
            known = self._rows.setdefault(row.mention if key == row.mention else key, row)
            if known is not row:
                self._rows[key] = _merged(known if isinstance(known, list) else [known], row)

    def rows(self) -> Iterator[Sequence[LearnedRow]]:
        """Yield the rows of each spelling key."""
        return (rows if isinstance(rows, list) else (rows,) for rows in self._rows.values())

    def evidence(self, name: str) -> Evidence | None:
        """What was learned of a name as `name_of` gives it; None if nothing was."""
        known = self._rows.get(spelling_key(name))
        if known is None:
            return None
        counted = _COUNTED[letter_case(name)]
        own, others = Seen(), Seen()
        for row in known if isinstance(known, list) else (known,):
            if row.mention == name:
                own.add(row)
            elif letter_case(row.mention) in counted:
                others.add(row)
        return Evidence(own, others) if any((own.links, own.rejections, others.links, others.rejections)) else None


def counts_of(ledger: Ledger) -> Counts:
    """The counts of all effective batches."""
    counts = Counts()
    for batch, rows in ledger.effective():
        counts.add(rows, are_rejections=batch.kind == "reject")
    return counts


def _merged(rows: list[LearnedRow], added: LearnedRow) -> list[LearnedRow]:
    """Rows with one more, which is added to that of the same mention and entity."""
    for i, row in enumerate(rows):
        same = row.mention == added.mention and row.entity_id == added.entity_id
        if same and (row.count > 0) == (added.count > 0):
            rows[i] = LearnedRow(row.mention, row.entity_id, row.count + added.count)
            return rows
    rows.append(added)
    return rows


PRIOR_WEIGHT = 0.5  # K: observations that the model's probabilities are worth
Outcome = tuple[str, str] | None  # what a mention may mean: base and id of an entity, or None for NIL


@dataclass(frozen=True, slots=True)
class Observation:
    """Something seen several times: what the mention meant; or, with `excludes`, which outcomes it did not mean."""

    count: int
    outcome: Outcome = None
    excludes: Callable[[Outcome], bool] | None = None


def observations(seen: Seen, kb: str, *, is_only_base: bool, counts: Callable[[str], bool]) -> list[Observation]:
    """The observations that counts of a name in a base are, of entities that count: they exist, and pass the type
    filter. If no other base is searched, a mention without an entity there is NIL.
    """
    found = []
    for entity_id, n in seen.links.items():
        if entity_id is not None:
            if counts(entity_id):
                found.append(Observation(n, (kb, entity_id)))
        elif is_only_base:
            found.append(Observation(n))
        else:
            found.append(Observation(n, excludes=lambda outcome: outcome is not None and outcome[0] == kb))
    rejected = frozenset((kb, entity_id) for entity_id in seen.rejections if counts(entity_id))
    if rejected:
        n = sum(seen.rejections[entity_id] for _, entity_id in rejected)
        found.append(Observation(n, excludes=rejected.__contains__))
    return found


def posterior(prior: Mapping[Outcome, float], seen: Iterable[Observation]) -> dict[Outcome, float]:
    """Probabilities of all outcomes after observations; those before sum to 1, with NIL and all observed entities."""
    mass = dict.fromkeys(prior, 0.0)
    total = 0
    for one in seen:
        total += one.count
        if one.excludes is None:
            mass[one.outcome] += one.count
            continue
        others = {outcome: p for outcome, p in prior.items() if not one.excludes(outcome)}
        of_others = sum(others.values())
        if of_others <= 0.0:
            others, of_others = {None: 1.0}, 1.0
        for outcome, p in others.items():
            mass[outcome] += one.count * p / of_others
    return {outcome: (mass[outcome] + PRIOR_WEIGHT * p) / (total + PRIOR_WEIGHT) for outcome, p in prior.items()}


log = logging.getLogger(__name__)

_LEAST = _SAME = 1e-9
"""The least probability of a candidate that gets a logit again; and a difference between equal ones: sums of counts are
exact, products with the prior are not."""

_generations: defaultdict[tuple[str, str], int] = defaultdict(int)
"""How often each collection, by store and name, learned something in this process: other linkers read it again then."""

_warned: set[tuple[str, str, int, int | None]] = set()  # what was said of ledgers in this process
_learning = threading.Lock()
"""Held while a ledger is read and appended to, so that threads do not choose the same number for a batch."""


@dataclass(frozen=True, slots=True)
class LearnedMention:
    """What was learned of a mention before its document counts: the mention with learned entities among its candidates
    and logits of the probabilities that learned links give; and all counts, of which rejections count afterwards.
    """

    scored: ScoredMention
    counts: tuple[LearnedCount, ...]


@dataclass(slots=True)
class _Known:
    """What one collection learned: its batches, without rows, and their counts, of a generation of `_generations`."""

    generation: int
    ledger: Ledger
    counts: Counts
    # Canonical points of learned entities that were looked up; None for one that the collection lacks.
    points: dict[str, NamePoint | None] = field(default_factory=dict)


class LearnedNames:
    """What the collections of a linker in one store learned. Safe to use from several threads. Raises LearningError if
    a later version of this package wrote a ledger; StoreError if a ledger cannot be read.
    """

    def __init__(self, location: str, collections: Sequence[Collection]) -> None:
        self._location = location
        self._collections = tuple(collections)
        self._lock = threading.Lock()
        self._known = [self._read(collection) for collection in self._collections]

    def decide(self, scored: ScoredMention, calibration: Calibration, options: LinkOptions, threshold: float) -> Link:
        """The link of a scored mention; as `scoring.decide`, with what was learned of it."""
        found = self._evidence(scored.mention)
        if found and (changed := self._apply(scored, calibration, found, options)) is not None:
            scored, probabilities, learned = changed
            link = decide(scored, calibration, options.most_candidates, threshold, options.on_tie, probabilities)
            return replace(link, learned=learned)
        has_types = bool(options.types) and options.type_mode != "off"
        return decide(scored, calibration, options.most_candidates, threshold, options.on_tie, has_types=has_types)

    def in_document(
        self, scored: ScoredMention, calibration: Calibration, options: LinkOptions
    ) -> LearnedMention | None:
        """What was learned of a mention of a document; None if nothing was."""
        found = self._evidence(scored.mention)
        changed = self._apply(scored, calibration, found, options) if found else None
        if changed is None:
            return None
        counts = changed[2]
        links = [(at, evidence.only("links")) for at, evidence in found]
        changed = self._apply(scored, calibration, links, options)
        if changed is None:  # rejections alone
            return LearnedMention(scored, counts)
        answer, probabilities, _ = changed
        nil = max(_LEAST, 1.0 - math.fsum(probabilities))
        slope, bias = calibration.slope, calibration.nil_bias
        logits = [math.log(max(_LEAST, p)) / slope for p in probabilities]
        entities = [replace(entity, logit=logit) for entity, logit in zip(answer.found, logits, strict=True)]
        nil_logit = (math.log(nil) - bias) / slope
        return LearnedMention(replace(answer, found=entities, nil_logit=nil_logit, certainty=1.0), counts)

    def decide_in_document(
        self,
        scored: ScoredMention,
        learned: LearnedMention | None,
        calibration: Calibration,
        options: LinkOptions,
        threshold: float,
    ) -> Link:
        """The link of a mention that its document scored; rejections count now."""
        if learned is None:
            return decide(scored, calibration, options.most_candidates, threshold, options.on_tie)
        probabilities = None
        if any(count.rejected for count in learned.counts):
            found = [(at, evidence.only("rejections")) for at, evidence in self._evidence(scored.mention)]
            changed = self._apply(scored, calibration, found, options)
            if changed is not None:
                scored, probabilities, _ = changed
        link = decide(scored, calibration, options.most_candidates, threshold, options.on_tie, probabilities)
        return replace(link, learned=learned.counts)

    def forget_points(self) -> None:
        """Look entities up again: the collections were edited."""
        for known in self._known:
            known.points.clear()

    def batches(self, collection: Collection) -> tuple[LearnedBatch, ...]:
        """The batches that a collection learned."""
        return self._current(self._collections.index(collection)).ledger.batches

    @contextmanager
    def changing(self, collection: Collection) -> Iterator[None]:
        """Hold off other changes of ledgers; then let every linker of this process read that of this collection."""
        with _learning:
            try:
                yield
            finally:
                self._changed(collection)

    def learn_one(self, collection: Collection, mention: str, entity_id: str | None, kind: BatchKind) -> LearnedBatch:
        """Accept or reject; the counts are changed in place, so that it takes no longer with many batches."""
        name = name_of(mention)
        if not name:
            raise LearningError(
                f"The mention {mention!r:.80} cannot be learned: it is no valid text, empty or too long."
            )
        if entity_id is not None and not collection.find(entity_ids=[entity_id], limit=1):
            raise EntityNotFoundError(entity_id, [collection.name])
        rows = [LearnedRow(name, entity_id, 1)]
        at = self._collections.index(collection)
        with _learning:
            known = self._current(at)
            batch = append_batch(collection, known.ledger.next_number, kind, rows)
            known.counts.add(rows, are_rejections=kind == "reject")
            known.ledger = replace(known.ledger, batches=(*known.ledger.batches, batch))
            known.generation = self._changed(collection)
        return batch

    def _changed(self, collection: Collection) -> int:
        """Let every linker of this process read the ledger of a collection again; returns the generation."""
        key = (self._location, collection.name)
        _generations[key] += 1
        return _generations[key]

    def _read(self, collection: Collection) -> _Known:
        generation = _generations[self._location, collection.name]
        ledger = read_ledger(collection)
        said = (self._location, collection.name, ledger.n_unreadable, ledger.first_damaged)
        if ledger.n_unreadable and said not in _warned:
            _warned.add(said)
            n = f"{ledger.n_unreadable:,}"
            what = f"{n} lines of a batch of learned names whose writer died do not count: learn it again"
            if ledger.first_damaged is not None:
                what = (
                    f"its learned names are damaged from line {ledger.first_damaged:,} of the ledger (learned.jsonl) "
                    f"on, so {n} lines do not count, their whole batches included. Restore the ledger from a copy, or "
                    f"learn these batches again"
                )
            log.warning("Collection '%s': %s", collection.name, what)
        return _Known(generation, replace(ledger, rows={}), counts_of(ledger))

    def _current(self, at: int) -> _Known:
        """What a collection learned; read again if this process changed it since."""
        known = self._known[at]
        key = (self._location, self._collections[at].name)
        if known.generation == _generations[key]:
            return known
        with self._lock:
            if self._known[at].generation != _generations[key]:
                self._known[at] = self._read(self._collections[at])
            return self._known[at]

    def has(self, mention: str) -> bool:
        """Whether something was learned of a mention."""
        return bool(self._evidence(mention))

    def _evidence(self, mention: str) -> list[tuple[int, Evidence]]:
        """What each collection learned of a mention, by its position; empty if nothing."""
        found = []
        name = None
        for at in range(len(self._collections)):
            counts = self._current(at).counts
            if len(counts):
                name = name_of(mention) if name is None else name
                if name and (evidence := counts.evidence(name)) is not None:
                    found.append((at, evidence))
        return found

    def _apply(
        self,
        scored: ScoredMention,
        calibration: Calibration,
        found: Sequence[tuple[int, Evidence]],
        options: LinkOptions,
    ) -> tuple[ScoredMention, list[float], tuple[LearnedCount, ...]] | None:
        """The mention with its candidates in their new order, their probabilities, and the counts. Returns None if
        nothing of what was learned counts, for its entities lack the wanted types or are deleted.
        """
        types = frozenset(options.types) if options.type_mode == "hard" else frozenset[str]()
        by_key: dict[Outcome, ScoredEntity] = {entity.key: entity for entity in scored.found}
        of_model = calibration.probabilities(scored.logits, scored.nil_logit, certainty=scored.certainty)
        prior: dict[Outcome, float] = {entity.key: p for entity, p in zip(scored.found, of_model, strict=True)}
        prior[None] = max(0.0, 1.0 - math.fsum(of_model))
        lowest = min([scored.nil_logit, *scored.logits]) - BONUS
        steps: tuple[list[Observation], list[Observation]] = ([], [])
        learned: list[LearnedCount] = []
        seen: set[Outcome] = set()
        for at, evidence in found:
            kb = self._collections[at].manifest.kb

            def counts(entity_id: str, at: int = at, kb: str = kb) -> bool:
                if (kb, entity_id) in by_key:
                    return True
                point = self._point(at, entity_id)
                if point is None or (types and types.isdisjoint(point.filter_types)):
                    return False
                name = MatchedName(point, None)
                by_key[kb, entity_id] = ScoredEntity(name, np.zeros(len(FEATURES)), lowest, lowest)
                prior[kb, entity_id] = 0.0
                return True

            is_only = len(self._collections) == 1
            steps[0].extend(observations(evidence.other_forms, kb, is_only_base=is_only, counts=counts))
            steps[1].extend(observations(evidence.as_written, kb, is_only_base=is_only, counts=counts))
            links = {**evidence.as_written.links, **evidence.other_forms.links}
            seen.update((kb, entity_id) for entity_id in links if entity_id is not None)
            learned += _learned_counts(evidence, kb, by_key)
        if not any(steps):
            return None
        after = posterior(posterior(prior, steps[0]), steps[1])
        ordered = _in_order(by_key, after, seen)
        answer = replace(scored, found=ordered, rule="learned name")
        return answer, [after[entity.key] for entity in ordered], tuple(learned)

    def _point(self, at: int, entity_id: str) -> NamePoint | None:
        """The canonical point of a learned entity, or another one of it; None if the collection lacks it."""
        points = self._known[at].points
        if entity_id not in points:
            own = self._collections[at].find(entity_ids=[entity_id], limit=100)  # of its names
            points[entity_id] = min(own, key=lambda point: not point.is_canonical, default=None)
        return points[entity_id]


def _learned_counts(evidence: Evidence, kb: str, by_key: dict[Outcome, ScoredEntity]) -> list[LearnedCount]:
    """The public records of the counts that apply, most frequent first."""
    own, others = evidence.as_written, evidence.other_forms
    keys = [*own.links, *others.links, *own.rejections, *others.rejections]
    counts = []
    for key in dict.fromkeys(keys):
        if key is None or (kb, key) in by_key:
            rejected = 0 if key is None else own.rejections.get(key, 0) + others.rejections.get(key, 0)
            counts.append(LearnedCount(key, kb, own.links.get(key, 0), others.links.get(key, 0), rejected))
    return sorted(counts, key=lambda one: (-one.as_written, -one.other_forms, one.rejected, one.entity_id or ""))


def _in_order(
    by_key: dict[Outcome, ScoredEntity], after: dict[Outcome, float], seen: set[Outcome]
) -> list[ScoredEntity]:
    """Candidates by their new probabilities, equal ones by base and id; those of equal highest probability are tied."""
    least = max((after[key] for key in by_key), default=0.0) - _SAME
    ordered = sorted(by_key.values(), key=lambda entity: (-min(after[entity.key], least), entity.key))
    tied = [after[entity.key] >= least for entity in ordered]
    has_ties = sum(tied) > 1
    return [
        replace(entity, tie=has_ties and is_first, is_namesake=entity.is_namesake or entity.key in seen)
        for entity, is_first in zip(ordered, tied, strict=True)
    ]
