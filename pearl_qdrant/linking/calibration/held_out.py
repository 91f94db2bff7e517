"""Scoring mentions as if names or whole entities were not in the base: for calibration and evaluation."""

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

LeavesOut = Callable[[NamePoint], bool]
"""Whether a point is to be treated as if it were not there."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A mention, and what is not in the base for it.

    Attributes:
        mention: Any string.
        leaves_out: Of a point; None: the base is as it is.
    """

    mention: str
    leaves_out: LeavesOut | None = None


def score_held_out(
    store: Store,
    collection: Collection,
    encoder: Encoder,
    questions: Iterable[HeldOut],
    *,
    limit: int = DEFAULT_LIMIT,
    model: RankingModel | None = None,
) -> Iterator[ScoredMention]:
    """Scorer mentions, in order.

    Args:
        store: Where the collection is; not closed.
        collection: Open.
        encoder: The model that made it.
        questions: Mentions with what is left out for each.
        limit: Entities a mention, as in `EntityLinker.score_batch`.
        model: Coefficients of the ranking; by default those that come with the package.
    """
    asked = list(questions)

    def exclude(number: int, point: NamePoint) -> bool:
        leaves_out = asked[number].leaves_out
        return leaves_out is not None and leaves_out(point)

    linker = EntityLinker(store, [collection], encoder, model=model)
    return linker.score_batch([question.mention for question in asked], limit=limit, exclude=exclude)
