"""From the ledger to counts of what a name meant, and to the probabilities that follow.

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
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pearl_qdrant.lexical.keys import joined
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.linking.learned.ledger import LearnedRow
from pearl_qdrant.linking.mentions import clean_mention


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

    def links_only(self) -> Evidence:
        """The same without rejections."""
        return Evidence(Seen(self.as_written.links), Seen(self.other_forms.links))

    def rejections_only(self) -> Evidence:
        """The rejections alone."""
        return Evidence(Seen({}, self.as_written.rejections), Seen({}, self.other_forms.rejections))


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
    """The observations that counts of a name in a base are.

    Args:
        is_only_base: Whether no other base is searched: then a mention without an entity there is NIL.
        counts: Returns whether an entity counts: it exists, and passes the type filter.
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
