"""Choosing between entities with the same name, and fetching names until there are enough entities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pearl_qdrant.encoder.protocol import Encoded, FloatArray
from pearl_qdrant.lexical.ngrams import BUCKETS, IdfTable, SparseRows
from pearl_qdrant.linking.candidates import SearchTarget, find_candidates
from pearl_qdrant.linking.ranking.model import LinkQuery, RankingModel, Scorer
from pearl_qdrant.store.schema import NamePoint
from pearl_qdrant.store.search import ScoredName


class Names:
    """A collection that returns the first names of a list, and remembers how many were asked for."""

    name = "base"

    def __init__(self, points: Sequence[NamePoint]) -> None:
        self.points = points
        self.limits: list[int] = []

    def search_hybrid(
        self, vectors: FloatArray, lexical: SparseRows, *, limit: int, **options: object
    ) -> list[list[ScoredName]]:
        self.limits.append(limit)
        return [[ScoredName(point, 1 - i / 1000) for i, point in enumerate(self.points[:limit])] for _ in vectors]

    def find(self, **wanted: object) -> list[NamePoint]:
        return []


def test_an_entity_with_many_names_does_not_push_out_the_others() -> None:
    """If the nearest names belong to few entities, four times as many are fetched."""
    many = [NamePoint("kb", "E0", f"aspirin {i}", "aspirin", False) for i in range(40)]
    others = [NamePoint("kb", f"E{i}", f"ibuprofen {i}", f"ibuprofen {i}", True) for i in range(1, 30)]
    names = Names(many + others)
    idf = IdfTable(np.ones(BUCKETS, dtype=np.uint8))
    encoded = Encoded(np.ones((1, 2), dtype=np.float32), np.ones(1, dtype=np.bool_), None)
    scorer = Scorer(RankingModel.from_names({"dense": 1.0}, {}, {}), 0.0, 0.0)  # equal ones would all be tied
    (scored,) = find_candidates([SearchTarget(names, idf)], ["aspirin"], encoded, LinkQuery(10), scorer)  # type: ignore[arg-type]

    assert names.limits == [15, 60]
    assert len(scored.found) == 10
