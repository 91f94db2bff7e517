"""Scores mentions as if some names or entities were not in the base, for calibration and evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.ranking.model import RankingModel
from pearl_qdrant.linking.ranking.scoring import ScoredMention
from pearl_qdrant.settings import DEFAULT_LIMIT
from pearl_qdrant.store.protocol import Collection, Store
from pearl_qdrant.store.schema import NamePoint

Excludes = Callable[[NamePoint], bool]
"""Whether to treat a point as if it were not in the base."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A mention, and the part of the base that it must not find.

    Attributes:
        mention: Any string.
        excludes: Returns whether to exclude a point for this mention; None excludes nothing.
    """

    mention: str
    excludes: Excludes | None = None


def score_held_out(
    store: Store,
    collection: Collection,
    encoder: Encoder,
    mentions: Iterable[HeldOut],
    *,
    limit: int = DEFAULT_LIMIT,
    model: RankingModel | None = None,
) -> Iterator[ScoredMention]:
    """Yield scored mentions, in order.

    Args:
        store: The store of the collection; stays open.
        collection: An open collection.
        encoder: The model that encoded it.
        mentions: Mentions with the points to exclude for each.
        limit: Entities per mention, as in `EntityLinker.score_batch`.
        model: Coefficients of the ranking; by default those of the collection, or of the package.
    """
    held_out = list(mentions)

    def exclude(number: int, point: NamePoint) -> bool:
        excludes = held_out[number].excludes
        return excludes is not None and excludes(point)

    linker = EntityLinker(store, [collection], encoder, model=model)
    return linker.score_batch([one.mention for one in held_out], limit=limit, exclude=exclude)
