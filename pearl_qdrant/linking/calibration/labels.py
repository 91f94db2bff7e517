"""Mentions with their right answers for a calibration: labelled pairs, or mentions of every kind made from the base.

`choose_to_label` finds the mentions of a list whose answers would tell most: those that are nearly decided either way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pearl_qdrant.errors import CalibrationError
from pearl_qdrant.linking.calibration.held_out import HeldOut
from pearl_qdrant.linking.editing import names_by_entity
from pearl_qdrant.linking.learned.learning import learned_pairs, read_labelled, unknown_ids
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.mention_kinds import KINDS, MadeMention, NamedEntity, make_mentions
from pearl_qdrant.linking.mention_kinds.make import NameOwners
from pearl_qdrant.linking.mentions import clean_mention
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.records import Link
from pearl_qdrant.settings import DEFAULT_NIL_SHARE
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import NamePoint


class Label(NamedTuple):
    """A mention with its right entity, or None if the base does not have it."""

    mention: str
    entity_id: str | None


def read_pairs(path: Path) -> list[Label]:
    """Pairs of mention and entity id from a file; each counts once. Format and errors as for `read_labelled`."""
    return list(dict.fromkeys(Label(one.mention, one.entity_id) for one in read_labelled(path)))


def with_learned(collection: Collection, labels: Sequence[Label]) -> list[Label]:
    """Labels, and the mentions that a collection learned or accepted and whose entity it still has; each once."""
    pairs = learned_pairs(collection)
    unknown = unknown_ids(collection, {entity_id for _, entity_id in pairs if entity_id is not None})
    learned = [Label(mention, entity_id) for mention, entity_id in pairs if entity_id not in unknown]
    return list(dict.fromkeys([*labels, *learned]))


def check_ids(collection: Collection, labels: Iterable[Label]) -> None:
    """Raise a CalibrationError, with three of the ids, unless the collection has every entity id."""
    wanted = {label.entity_id for label in labels if label.entity_id is not None}
    unknown = sorted(unknown_ids(collection, wanted))
    if unknown:
        shown = ", ".join(key[:80] for key in unknown[:3])
        raise CalibrationError(
            f"{len(unknown):,} of {len(wanted):,} entity ids are not in collection '{collection.name}', e.g. {shown}. "
            f"Are they ids of this base? Use NIL for a mention without an entity."
        )


MAX_ENTITIES = 5000  # size of the random sample of entities that mentions are made from


def sample_entities(collection: Collection, rng: np.random.Generator) -> tuple[list[NamedEntity], NameOwners]:
    """A random sample of the entities with their names, and the owners of all names, from one pass.

    Takes 32 bytes a name: names and ids are kept as 64-bit hashes.
    """
    sample: list[str] = []
    n_seen = 0

    def pairs() -> Iterator[tuple[str, str]]:
        nonlocal n_seen
        for point in collection.scroll():
            if point.is_canonical:
                # Reservoir sampling: entity number n replaces a random one with probability MAX_ENTITIES / n.
                n_seen += 1
                place = len(sample) if len(sample) < MAX_ENTITIES else int(rng.integers(n_seen))
                if place < MAX_ENTITIES:
                    sample[place : place + 1] = [point.entity_id]
            yield point.entity_id, point.name

    owners = NameOwners(pairs())
    found = names_by_entity(collection, sample)
    entities = []
    for entity_id in sample:
        points = sorted(found.get(entity_id, ()), key=lambda point: (not point.is_canonical, point.name))
        # A name that cleaning changes could not be found by its own string.
        names = tuple(point.name for point in points if clean_mention(point.name) == point.name)
        if names and points[0].is_canonical and names[0] == points[0].name:
            entities.append(NamedEntity(entity_id, names, points[0].types))
    return entities, owners


MIN_MENTIONS = 50  # fewer made mentions cannot show a precision of 95 %
MIN_PAIRS = 30  # labelled pairs with which the fit helped on every curated set
PER_KIND = 200  # mentions of each kind that are made from the base


@dataclass(frozen=True, slots=True)
class KnownMentions:
    """Mentions with right answers, n of each: right ids are empty for NIL; kinds are `KINDS`, or "labelled"."""

    labels: list[Label]
    mentions: list[HeldOut]
    right_ids: list[frozenset[str]]
    kinds: list[str]
    weights: list[float]


def from_names(collection: Collection, rng: np.random.Generator) -> KnownMentions:
    """Mentions of every kind from the names of the base, weighted by the shares of the kinds."""
    entities, owners = sample_entities(collection, rng)
    made = make_mentions(entities, owners, per_kind=PER_KIND, seed=int(rng.integers(1 << 30))) if entities else []
    counts = Counter(one.kind for one in made)
    shares = {kind.name: kind.share for kind in KINDS}
    mean = sum(shares[kind] for kind in counts) / max(1, len(made))
    return KnownMentions(
        [Label(one.mention, one.entity_id) for one in made],
        [HeldOut(one.mention, partial(_excludes, one)) for one in made],
        [_right_ids(one.entity_id) for one in made],
        [one.kind for one in made],
        [shares[one.kind] / counts[one.kind] / mean for one in made],
    )


def _excludes(made: MadeMention, point: NamePoint) -> bool:
    return made.excludes(point.entity_id, point.name)


def _is_one_of(hashed_ids: frozenset[int], point: NamePoint) -> bool:
    return hash(point.entity_id) in hashed_ids


def _right_ids(entity_id: str | None) -> frozenset[str]:
    return frozenset() if entity_id is None else frozenset((entity_id,))


def from_labels(
    collection: Collection, labels: Sequence[Label], nil_share: float | None, rng: np.random.Generator
) -> KnownMentions:
    """The labelled mentions; some become NIL if none is."""
    given = list(labels)
    n_known = sum(label.entity_id is not None for label in given)
    if len(given) < MIN_PAIRS or n_known < MIN_PAIRS // 2:
        raise CalibrationError(
            f"There are {len(given):,} pairs, {n_known:,} of them with an entity. At least {MIN_PAIRS} are needed, "
            f"{MIN_PAIRS // 2} of them with an entity; a thousand are better."
        )
    check_ids(collection, given)
    mentions = [HeldOut(label.mention) for label in given]
    right_ids = [_right_ids(label.entity_id) for label in given]
    if n_known == len(given) and nil_share != 0:
        # A random share becomes NIL: its entities are excluded, with all that share their names.
        share = DEFAULT_NIL_SHARE if nil_share is None else nil_share
        chosen = sorted(rng.permutation(len(given))[: max(1, round(share * len(given)))].tolist())
        owners = NameOwners((point.entity_id, point.name) for point in collection.scroll())
        for i in chosen:
            ids = owners.sharing_names_with(str(given[i].entity_id))
            mentions[i] = HeldOut(given[i].mention, partial(_is_one_of, ids))
            right_ids[i] = frozenset()
    return KnownMentions(given, mentions, right_ids, ["labelled"] * len(given), [1.0] * len(given))


def check_made(collection: Collection, made: KnownMentions) -> None:
    """Raise a CalibrationError if the base gives too few mentions."""
    if len(made.labels) < MIN_MENTIONS or sum(map(bool, made.right_ids)) < MIN_MENTIONS // 2:
        raise CalibrationError(
            f"The names of collection '{collection.name}' give {len(made.labels)} mentions, and at least "
            f"{MIN_MENTIONS} are needed. Use labelled pairs: a mention, a tab and an entity id or NIL.",
            option="pairs",
        )


READ, SPREAD = 20_000, 3
"""Distinct mentions that are linked, of more the first; those that are asked are every third of three times as many
that are nearest to the threshold."""


def choose_to_label(
    linker: EntityLinker, mentions: Iterable[str], n: int, options: LinkOptions | None = None
) -> list[Link]:
    """The n links of the mentions of one source whose right answers would help a calibration most, least certain first.

    Fewer come if there are fewer that no rule decides. Raises ValueError if n is less than 1.
    """
    if n < 1:
        raise ValueError(f"at least one mention can be asked, not {n}")
    distinct = dict.fromkeys(filter(None, map(clean_mention, mentions)))
    chosen = options or LinkOptions()
    threshold = linker.calibration.threshold if chosen.threshold is None else chosen.threshold
    open_links = [
        link for link in linker.link_batch(list(islice(distinct, READ)), chosen) if link.candidates and not link.rule
    ]
    # Equally far ones in an order that does not depend on that of the list.
    nearest = sorted(open_links, key=lambda one: (abs((one.candidates[0].probability or 0) - threshold), one.mention))
    return nearest[: SPREAD * n][:: max(1, min(SPREAD, len(nearest) // n))][:n]
