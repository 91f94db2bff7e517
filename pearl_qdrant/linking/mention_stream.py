"""Judging any number of mentions, in order and batch by batch: encode, search, judge, rerank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from pearl_qdrant.encoder.protocol import Encoded, Encoder
from pearl_qdrant.errors import UnknownTypeError
from pearl_qdrant.linking.batches import take
from pearl_qdrant.linking.candidates import Hide, find_candidates
from pearl_qdrant.linking.collection_facts import CollectionFacts
from pearl_qdrant.linking.mentions import clean_mention
from pearl_qdrant.linking.ranking.model import RankingModel
from pearl_qdrant.linking.ranking.reranker import Reranker
from pearl_qdrant.linking.ranking.scoring import Judge, Judged, Question, rerank
from pearl_qdrant.phrase_types import ENTITY_TYPES
from pearl_qdrant.settings import DEFAULT_LIMIT
from pearl_qdrant.store.schema import NamePoint

TypeMode = Literal["hard", "soft", "off"]

BATCH = 1024
"""Mentions encoded together; fewer where they are long."""

REMOTE_BATCH = 512
"""The same where collections lie on a server: the next batch is encoded while this one is searched for."""

SEARCH_BATCH = 128
"""Mentions searched for and judged together: their candidates take a few MB."""


@dataclass(frozen=True, slots=True)
class MentionStream:
    """What mentions are judged with. Safe to use from several threads.

    Attributes:
        encoder: The model that made the collections.
        facts: The collections.
        model: Coefficients of the ranking.
        unrelated: Cosine of unrelated names with this encoder.
        reranker: Looks at the best candidates again, or None.
    """

    encoder: Encoder
    facts: CollectionFacts
    model: RankingModel
    unrelated: float
    reranker: Reranker | None

    def question(self, types: Sequence[str], type_mode: TypeMode, limit: int) -> Question:
        """What is asked of each mention; at least `DEFAULT_LIMIT` entities are judged.

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
            if name not in ENTITY_TYPES and not self.facts.has_type(name):
                raise UnknownTypeError(name, self.facts.names, self.facts.types())
        return Question(max(limit, DEFAULT_LIMIT), wanted, is_filter=type_mode == "hard", is_typed=type_mode != "off")

    def judge(
        self, mentions: Iterator[str], question: Question, hide: Hide | None, check: Callable[[], None]
    ) -> Iterator[Judged]:
        """Judge mentions, in order; reads at most `BATCH` ahead, or two of `REMOTE_BATCH`.

        Args:
            mentions: Strings, and what else a caller has among them.
            question: What is asked.
            hide: Names that must not be found, by the number of the mention.
            check: Called before each search; raises when no more is to be done.
        """
        done = 0
        for batch, cleaned, encoded in self._encoded(mentions, check):
            for start in range(0, len(batch), SEARCH_BATCH):
                check()
                part = slice(start, start + SEARCH_BATCH)
                hidden = None if hide is None else partial(_shifted, hide, done + start)
                places = self.facts.places()
                judge = Judge(self.model, self.unrelated, places.log_size)
                found = find_candidates(places.every, cleaned[part], encoded.take(part), question, judge, hide=hidden)
                for mention, text, judged in zip(batch[part], cleaned[part], found, strict=True):
                    again = judged if self.reranker is None else rerank(judged, self.reranker, text)
                    yield replace(again, mention=mention)
            done += len(batch)

    def _encoded(
        self, mentions: Iterator[str], check: Callable[[], None]
    ) -> Iterator[tuple[list[str], list[str], Encoded]]:
        """Batches of mentions as given, cleaned, and encoded."""
        if self.facts.is_remote:
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


def _shifted(hide: Hide, start: int, number: int, point: NamePoint) -> bool:
    """`hide` for a batch that begins with mention `start`."""
    return hide(start + number, point)
