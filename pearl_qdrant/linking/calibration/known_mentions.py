"""Mentions with their right answers for a calibration: labelled pairs, or mentions made from the base."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from pearl_qdrant.errors import CalibrationError
from pearl_qdrant.linking.calibration.held_out import HeldOut
from pearl_qdrant.linking.calibration.labels import Label, as_nil, check_ids
from pearl_qdrant.linking.calibration.own_mentions import sample_entities
from pearl_qdrant.linking.mention_kinds import KINDS, MadeMention, make_mentions
from pearl_qdrant.linking.mention_kinds.owners import NameOwners
from pearl_qdrant.settings import DEFAULT_NIL_SHARE
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import NamePoint

MIN_MENTIONS = 50
"""Fewer mentions cannot show a precision of 95 %."""

PER_KIND = 200
"""Mentions of each kind that are made from the base."""

LABELLED = "labelled"
"""The kind of mentions that come from labelled pairs."""


@dataclass(frozen=True, slots=True)
class KnownMentions:
    """Mentions with right answers, n of each.

    Attributes:
        labels: The labels.
        mentions: Their mentions, with the points to exclude for each.
        right_ids: Right entity ids of each; empty for NIL.
        kinds: The kind of each.
        weights: The weight of each.
    """

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
        [frozenset[str]() if one.entity_id is None else frozenset((one.entity_id,)) for one in made],
        [one.kind for one in made],
        [shares[one.kind] / counts[one.kind] / mean for one in made],
    )


def _excludes(made: MadeMention, point: NamePoint) -> bool:
    return made.excludes(point.entity_id, point.name)


def from_labels(
    collection: Collection, labels: Sequence[Label], nil_share: float | None, rng: np.random.Generator
) -> KnownMentions:
    """The labelled mentions; some become NIL if none is."""
    given = list(labels)
    _check_enough(given)
    check_ids(collection, given)
    mentions = [HeldOut(label.mention) for label in given]
    is_nil = [label.entity_id is None for label in given]
    if not any(is_nil) and nil_share != 0:
        share = DEFAULT_NIL_SHARE if nil_share is None else nil_share
        for i, mention in _exclude_entities(given, collection, share, rng).items():
            mentions[i], is_nil[i] = mention, True
    right_ids = [
        frozenset[str]() if nil else frozenset((str(label.entity_id),))
        for label, nil in zip(given, is_nil, strict=True)
    ]
    return KnownMentions(given, mentions, right_ids, [LABELLED] * len(given), [1.0] * len(given))


def _exclude_entities(
    labels: Sequence[Label], collection: Collection, share: float, rng: np.random.Generator
) -> dict[int, HeldOut]:
    """A random share of the labels as NIL mentions, by row: their entities are excluded."""
    n_excluded = max(1, round(share * len(labels)))
    chosen = sorted(rng.permutation(len(labels))[:n_excluded].tolist())
    owners = NameOwners((point.entity_id, point.name) for point in collection.scroll())
    return {i: as_nil(labels[i], owners.sharing_names_with(str(labels[i].entity_id))) for i in chosen}


def check_made(collection: Collection, made: KnownMentions) -> None:
    """Raise a CalibrationError if the base gives too few mentions."""
    if len(made.labels) < MIN_MENTIONS or sum(map(bool, made.right_ids)) < MIN_MENTIONS // 2:
        raise CalibrationError(
            f"The names of collection '{collection.name}' give {len(made.labels)} mentions, and at least "
            f"{MIN_MENTIONS} are needed. Use labelled pairs: a mention, a tab and an entity id or NIL.",
            option="pairs",
        )


def _check_enough(labels: Sequence[Label]) -> None:
    """Raise a CalibrationError if there are too few labels."""
    n_known = sum(label.entity_id is not None for label in labels)
    if len(labels) < MIN_MENTIONS or n_known < MIN_MENTIONS // 2:
        raise CalibrationError(
            f"There are {len(labels):,} pairs, {n_known:,} of them with an entity. At least {MIN_MENTIONS} are needed, "
            f"{MIN_MENTIONS // 2} of them with an entity; a thousand are better."
        )
