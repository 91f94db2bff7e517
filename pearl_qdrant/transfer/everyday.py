"""Everyday mentions of the stored names, answered with the model before and with the new one.

The same mentions, equally many of each kind (`linking.mention_kinds`), are linked in both versions at the linker's
defaults: a calibration belongs to one model. The figure is that of `pearl-qdrant evaluate --task everyday`: the share
of right answers, NIL included, as the mean over the kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.calibration.calibrate import sample_entities
from pearl_qdrant.linking.mention_kinds import KINDS, MadeMention, make_mentions
from pearl_qdrant.linking.mention_stream import MentionStream
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.linking.ranking.model import Calibration, shipped_model
from pearl_qdrant.linking.ranking.scored import baseline_similarity
from pearl_qdrant.linking.ranking.scoring import decide
from pearl_qdrant.linking.state import CollectionStatistics
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import NamePoint


@dataclass(frozen=True, slots=True)
class EverydayKind:
    """Right answers to one kind of mention, before and after, in percent."""

    kind: str
    mentions: int
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class EverydayChange:
    """What another model changes for everyday mentions of a collection.

    Attributes:
        kinds: The kinds that the names give mentions of.
        error: Standard error of the difference of the means, in points; mentions are compared one by one.
    """

    kinds: tuple[EverydayKind, ...]
    error: float

    @property
    def mentions(self) -> int:
        """Mentions of all kinds."""
        return sum(one.mentions for one in self.kinds)

    @property
    def before(self) -> float:
        """Right answers with the model before: the mean over the kinds, in percent; 0 without mentions."""
        return _mean([one.before for one in self.kinds])

    @property
    def after(self) -> float:
        """The same with the new model."""
        return _mean([one.after for one in self.kinds])

    @property
    def fall(self) -> float:
        """By how many points the mean is lower with the new model; negative if it is higher."""
        return self.before - self.after

    def to_json(self) -> dict[str, Any]:
        """Return all figures as one JSON object."""
        kinds = {
            one.kind: {"mentions": one.mentions, "before": round(one.before, 2), "after": round(one.after, 2)}
            for one in self.kinds
        }
        means = {"before": round(self.before, 2), "after": round(self.after, 2), "error": round(self.error, 2)}
        return {"mentions": self.mentions, **means, "kinds": kinds}


def compare_everyday(before: tuple[Collection, Encoder], after: tuple[Collection, Encoder], n: int) -> EverydayChange:
    """Answer at most `n` everyday mentions, equally many of each kind, in two versions of a collection.

    The version before gives the names; each comes with its model.
    """
    entities, owners = sample_entities(before[0], np.random.default_rng(0))
    made = make_mentions(entities, owners, per_kind=max(1, n // len(KINDS))) if entities else []
    first, second = (_is_right(collection, encoder, made) for collection, encoder in (before, after))
    return summarise(made, first, second)


def summarise(
    made: Sequence[MadeMention], before: npt.NDArray[np.bool_], after: npt.NDArray[np.bool_]
) -> EverydayChange:
    """Make the figures of n mentions that were answered twice: (n,) each says whether that was right."""
    kinds: list[EverydayKind] = []
    variance = 0.0
    for kind in KINDS:
        rows = [row for row, one in enumerate(made) if one.kind == kind.name]
        if rows:
            first, second = before[rows].astype(np.float64), after[rows].astype(np.float64)
            kinds.append(EverydayKind(kind.name, len(rows), 100 * float(first.mean()), 100 * float(second.mean())))
            variance += float((second - first).var()) / len(rows)
    return EverydayChange(tuple(kinds), 100 * variance**0.5 / max(1, len(kinds)))


def _is_right(collection: Collection, encoder: Encoder, made: Sequence[MadeMention]) -> npt.NDArray[np.bool_]:
    """Whether the linker answers right: (n,)."""

    def exclude(number: int, point: NamePoint) -> bool:
        return made[number].excludes(point.entity_id, point.name)

    statistics = CollectionStatistics([collection])
    stream = MentionStream(encoder, statistics, shipped_model(), baseline_similarity(encoder), None)
    options, calibration = LinkOptions(), Calibration()
    query = stream.link_query(options)
    answers = []
    for one in stream.score((each.mention for each in made), query, exclude, lambda: None):
        link = decide(one, calibration, options.most_candidates, calibration.threshold, options.on_tie)
        answers.append(link.entity_id)
    return np.array([answer == one.entity_id for answer, one in zip(answers, made, strict=True)], dtype=np.bool_)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))
