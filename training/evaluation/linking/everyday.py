"""Everyday mentions of a base, and the linker's answers to them: links and NIL at its defaults, not rankings."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.decision import decide
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.mention_kinds.kinds import KINDS
from pearl_qdrant.linking.mention_kinds.make import MadeMention, NamedEntity, make_mentions
from pearl_qdrant.linking.mention_kinds.owners import NameOwners
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.store.schema import NamePoint
from training.evaluation.linking.loaded_bases import LoadedBases
from training.evaluation.linking.peers import EVERYDAY, Answers
from training.evaluation.linking.sets import Base
from training.evaluation.methods import Method

MAX_COMPARISONS = 100_000_000
"""Mentions times names, since rapidfuzz compares each mention with every name: 200 mentions of each kind for 30,000
names, which takes it two minutes."""

FEWEST_OF_KIND = 20
"""At least so many mentions of each kind, however large the base is."""

TIMED = 1000
"""Mentions on which the linker is timed."""


class EverydayMethod(Method, Protocol):
    """A method that links mentions to the entities of a base, or answers NIL."""

    def answer(self, mentions: Sequence[MadeMention], base: Base) -> Answers:
        """Link mentions, each without what it excludes."""
        ...


@dataclass(frozen=True, slots=True)
class EverydaySet:
    """Mentions of a base, by kind.

    Attributes:
        base: The entities.
        mentions: In the order of the kinds.
    """

    base: Base
    mentions: tuple[MadeMention, ...]


def make_set(base: Base, n_mentions: int, *, seed: int = 0) -> EverydaySet:
    """Make mentions of every kind from a base.

    Args:
        base: The entities.
        n_mentions: At most this many, equally many of each kind; fewer for a large base (`MAX_COMPARISONS`).
        seed: Seed of all choices.
    """
    entities = [NamedEntity(one.entity_id, tuple(one.names()), one.types) for one in base.entities]
    owners = NameOwners((one.entity_id, name) for one in entities for name in one.names)
    affordable = max(MAX_COMPARISONS // max(1, len(owners)), FEWEST_OF_KIND * len(KINDS))
    per_kind = max(1, min(n_mentions, affordable) // len(KINDS))
    return EverydaySet(base, tuple(make_mentions(entities, owners, per_kind=per_kind, seed=seed)))


class EverydayLinker:
    """The linker at its defaults, without calibration.

    Args:
        encoder: The model.
        bases: Its collections.
    """

    def __init__(self, encoder: Encoder, bases: LoadedBases) -> None:
        self.name = encoder.info.name
        self.supports = EVERYDAY
        self._encoder = encoder
        self._bases = bases

    def answer(self, mentions: Sequence[MadeMention], base: Base) -> Answers:
        """Link mentions; the time is that of `link_batch` on the first mentions, without exclusions."""
        linker = EntityLinker(self._bases.store, [self._bases.collection(base, self._encoder)], self._encoder)
        options, threshold = LinkOptions(), linker.calibration.threshold

        def exclude(number: int, point: NamePoint) -> bool:
            return mentions[number].excludes(point.entity_id, point.name)

        scored = linker.score_batch([one.mention for one in mentions], options, exclude=exclude)
        links = [decide(one, linker.calibration, options.limit, threshold, options.on_tie) for one in scored]
        return Answers(tuple(link.entity_id for link in links), _milliseconds(linker, mentions))


def _milliseconds(linker: EntityLinker, mentions: Sequence[MadeMention]) -> float:
    """Wall clock a mention of `link_batch`, over mentions of all kinds."""
    step = max(1, len(mentions) // TIMED)
    timed = [one.mention for one in mentions[::step]]
    start = time.perf_counter()
    for _ in linker.link_batch(timed):
        pass
    return 1000 * (time.perf_counter() - start) / max(1, len(timed))
