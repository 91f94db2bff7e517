"""Judging mentions as if names or whole entities were not in the base: for calibration and evaluation.

Nothing is changed in the store: points that a mention must not find are left out of what its searches bring, before
names are folded to entities. So mentions are searched for one by one; they are encoded in batches all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import cast

from pearl_qdrant.encoder.ngrams import SparseRows
from pearl_qdrant.encoder.protocol import Encoded, Encoder, FloatArray, ModelInfo
from pearl_qdrant.linking.candidates import Judged
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.mentions import clean_mention
from pearl_qdrant.linking.ranking import RankingModel
from pearl_qdrant.settings import DEFAULT_LIMIT
from pearl_qdrant.store.protocol import Collection, ScoredName, Store
from pearl_qdrant.store.schema import Manifest, NamePoint

LeavesOut = Callable[[NamePoint], bool]
"""Whether a point is to be treated as if it were not there."""

_BATCH = 512
_MORE = 4
"""Names searched for beyond those wanted, in the place of those left out."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A mention, and what is not in the base for it.

    Attributes:
        mention: Any string.
        leaves_out: Of a point; None: the base is as it is.
    """

    mention: str
    leaves_out: LeavesOut | None = None


def judge_held_out(
    store: Store,
    collection: Collection,
    encoder: Encoder,
    questions: Iterable[HeldOut],
    *,
    limit: int = DEFAULT_LIMIT,
    model: RankingModel | None = None,
) -> Iterator[Judged]:
    """Judge mentions, in order; reads `_BATCH` ahead.

    Args:
        store: Where the collection is; not closed.
        collection: Open.
        encoder: The model that made it.
        questions: Mentions with what is left out for each.
        limit: Entities a mention, as in `EntityLinker.judge_batch`.
        model: Coefficients of the ranking; by default those that come with the package.
    """
    partial, remembering = _PartialCollection(collection), _RememberingEncoder(encoder)
    linker = EntityLinker(store, [cast("Collection", partial)], remembering, model=model)
    questions = iter(questions)
    while batch := list(islice(questions, _BATCH)):
        remembering.remember([clean_mention(question.mention) for question in batch])
        for question in batch:
            partial.leaves_out = question.leaves_out
            yield from linker.judge_batch([question.mention], limit=limit)


class _RememberingEncoder:
    """An encoder that has the vectors of a batch at hand."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._row: dict[str, int] = {}
        self._known: Encoded | None = None

    @property
    def info(self) -> ModelInfo:
        return self._encoder.info

    def remember(self, names: Sequence[str]) -> None:
        """Encode names, and forget those before."""
        distinct = list(dict.fromkeys(names))
        self._row = {name: i for i, name in enumerate(distinct)}
        self._known = self._encoder.encode(distinct)

    def encode(self, names: Sequence[str]) -> Encoded:
        known, rows = self._known, [self._row.get(name, -1) for name in names]
        if known is None or min(rows, default=-1) < 0:
            return self._encoder.encode(names)
        types = known.type_probabilities
        return Encoded(known.vectors[rows], known.encodable[rows], None if types is None else types[rows])


class _PartialCollection:
    """What the linker asks of a collection, less the points that are left out."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self.leaves_out: LeavesOut | None = None

    @property
    def name(self) -> str:
        return self._collection.name

    @property
    def manifest(self) -> Manifest:
        return self._collection.manifest

    def count(self) -> int:
        return self._collection.count()

    def scroll(self) -> Iterator[NamePoint]:
        return self._collection.scroll()

    def search_hybrid(
        self, vectors: FloatArray, lexical: SparseRows, *, limit: int, lexical_limit: int, types: Sequence[str] = ()
    ) -> list[list[ScoredName]]:
        leaves_out = self.leaves_out
        if leaves_out is None:
            return self._collection.search_hybrid(
                vectors, lexical, limit=limit, lexical_limit=lexical_limit, types=types
            )
        found = self._collection.search_hybrid(
            vectors, lexical, limit=limit + _MORE, lexical_limit=lexical_limit + _MORE, types=types
        )
        return [[scored for scored in names if not leaves_out(scored.point)] for names in found]

    def find(
        self, *, entity_ids: Sequence[str] = (), names: Sequence[str] = (), types: Sequence[str] = (), limit: int
    ) -> list[NamePoint]:
        found = self._collection.find(entity_ids=entity_ids, names=names, types=types, limit=limit)
        return [point for point in found if self.leaves_out is None or not self.leaves_out(point)]
