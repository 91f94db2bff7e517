"""Scoring any number of mentions, in order and batch by batch: encode, search, score, rerank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from pearl_qdrant.encoder.protocol import Encoded, Encoder
from pearl_qdrant.errors import UnknownTypeError
from pearl_qdrant.linking.batches import take
from pearl_qdrant.linking.candidates import Exclude, find_candidates
from pearl_qdrant.linking.collection_statistics import CollectionStatistics
from pearl_qdrant.linking.mentions import clean_mention
from pearl_qdrant.linking.ranking.model import RankingModel
from pearl_qdrant.linking.ranking.reranker import Reranker
from pearl_qdrant.linking.ranking.scoring import LinkQuery, ScoredMention, Scorer, rerank
from pearl_qdrant.phrase_types import ENTITY_TYPES
from pearl_qdrant.settings import DEFAULT_LIMIT
from pearl_qdrant.store.schema import NamePoint

TypeMode = Literal["hard", "soft", "off"]

BATCH = 1024
"""Mentions encoded together; fewer where they are long."""

REMOTE_BATCH = 512
"""The same where collections lie on a server: the next batch is encoded while this one is searched for."""

SEARCH_BATCH = 128
"""Mentions searched for and scored together: their candidates take a few MB."""


@dataclass(frozen=True, slots=True)
class MentionStream:
    """What mentions are scored with. Safe to use from several threads.

    Attributes:
        encoder: The model that made the collections.
        statistics: The collections.
        model: Coefficients of the ranking.
        baseline: Cosine of unrelated names with this encoder.
        reranker: Looks at the best candidates again, or None.
    """

    encoder: Encoder
    statistics: CollectionStatistics
    model: RankingModel
    baseline: float
    reranker: Reranker | None

    def question(self, types: Sequence[str], type_mode: TypeMode, limit: int) -> LinkQuery:
        """What is asked of each mention; at least `DEFAULT_LIMIT` entities are scored.

        Raises:
            UnknownTypeError: If no entity has a type of `types`.
            ValueError: If the mode is none, or the limit not positive.
        """
        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit}")
        if type_mode not in ("hard", "soft", "off"):
            raise ValueError(f"type_mode is 'hard', 'soft' or 'off', not {type_mode!r}")
        named = (types,) if isinstance(types, str) else tuple(types)
        wanted = () if type_mode == "off" else named
        for name in wanted:
            if name not in ENTITY_TYPES and not self.statistics.has_type(name):
                raise UnknownTypeError(name, self.statistics.names, self.statistics.types())
        return LinkQuery(max(limit, DEFAULT_LIMIT), wanted, is_filter=type_mode == "hard", is_typed=type_mode != "off")

    def score(
        self, mentions: Iterator[str], link_query: LinkQuery, exclude: Exclude | None, check: Callable[[], None]
    ) -> Iterator[ScoredMention]:
        """Mentions with their scored candidates, in order; reads at most `BATCH` ahead, or two of `REMOTE_BATCH`.

        Args:
            mentions: Strings, and what else a caller has among them.
            link_query: What is asked.
            exclude: Names that must not be found, by the number of the mention.
            check: Called before each search; raises when no more is to be done.
        """
        done = 0
        for batch, cleaned, encoded in self._encoded(mentions, check):
            for start in range(0, len(batch), SEARCH_BATCH):
                check()
                part = slice(start, start + SEARCH_BATCH)
                excluded = None if exclude is None else partial(_shifted, exclude, done + start)
                targets = self.statistics.targets()
                scorer = Scorer(self.model, self.baseline, targets.log_size)
                found = find_candidates(
                    targets.every, cleaned[part], encoded.take(part), link_query, scorer, exclude=excluded
                )
                for mention, text, scored in zip(batch[part], cleaned[part], found, strict=True):
                    again = scored if self.reranker is None else rerank(scored, self.reranker, text)
                    yield replace(again, mention=mention)
            done += len(batch)

    def _encoded(
        self, mentions: Iterator[str], check: Callable[[], None]
    ) -> Iterator[tuple[list[str], list[str], Encoded]]:
        """Batches of mentions as given, cleaned, and encoded."""
        if self.statistics.is_remote:
            # The search waits for the server, so that the next batch can be encoded meanwhile.
            yield from encode_ahead(self.encoder, mentions, REMOTE_BATCH, check)
            return
        # One batch after the other: encoding the next one meanwhile takes the interpreter lock from the search, and
        # both together longer (docs/experiments.md).
        while batch := take(mentions, BATCH):
            check()
            cleaned = [clean_mention(mention) for mention in batch]
            yield batch, cleaned, self.encoder.encode(cleaned)


def encode_ahead(
    encoder: Encoder, mentions: Iterator[str], n: int, check: Callable[[], None]
) -> Iterator[tuple[list[str], list[str], Encoded]]:
    """Batches of at most `n` mentions as given, cleaned, and encoded: one batch ahead of the caller, in a thread.

    The mentions themselves are read in the caller's thread. Where one batch holds them all, as of a single link, it is
    encoded there too.
    """
    batch, following = take(mentions, n), take(mentions, n)
    cleaned = [clean_mention(mention) for mention in batch]
    if not following:
        if batch:
            check()
            yield batch, cleaned, encoder.encode(cleaned)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="pearl-qdrant-encode") as thread:
        encoded: Future[Encoded] | None = thread.submit(encoder.encode, cleaned)
        while encoded is not None:
            check()
            now = batch, cleaned, encoded
            batch, cleaned, encoded = following, [clean_mention(mention) for mention in following], None
            if batch:
                encoded = thread.submit(encoder.encode, cleaned)
                following = take(mentions, n)
            yield now[0], now[1], now[2].result()


def _shifted(exclude: Exclude, start: int, number: int, point: NamePoint) -> bool:
    """`exclude` for a batch that begins with mention `start`."""
    return exclude(start + number, point)
