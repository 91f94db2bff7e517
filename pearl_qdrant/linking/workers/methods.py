"""The part of `EntityLinker` that links and annotates many, on all cores where that pays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import replace
from functools import partial
from operator import index
from typing import TYPE_CHECKING, TypeVar

from pearl_qdrant.cores import count_workers
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import OptionError
from pearl_qdrant.linking.lifetime import Lifetime
from pearl_qdrant.linking.mention_detection.annotate import BatchLinker, annotate_batch
from pearl_qdrant.linking.mention_detection.given_spans import DocLike
from pearl_qdrant.linking.mention_stream import MentionStream
from pearl_qdrant.linking.mentions import check_are_many
from pearl_qdrant.linking.options import AnnotateOptions, LinkOptions
from pearl_qdrant.linking.ranking.mention_cache import CACHE_BYTES, MentionCache
from pearl_qdrant.linking.ranking.model import Calibration
from pearl_qdrant.linking.workers.jobs import AnnotateJob, Job, LinkJob
from pearl_qdrant.linking.workers.messages import Setup
from pearl_qdrant.linking.workers.pool import WorkerPool
from pearl_qdrant.linking.workers.streaming import WorkerStream, packed_once
from pearl_qdrant.records import Annotation, Link
from pearl_qdrant.store.protocol import Collection, Store

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pearl_qdrant.linking.options import AnnotateKeywords, LinkKeywords

START_MENTIONS = 4096
"""Mentions from which workers are started by themselves. They take a second or two of each core to start."""

RUNNING_MENTIONS = 1024
"""The same for workers that are there."""

T = TypeVar("T")
A = TypeVar("A")


class BulkLinker(ABC):
    """Links and annotates many."""

    _collections: tuple[Collection, ...]
    _store: Store
    _lifetime: Lifetime
    _calibration: Calibration
    _stream: MentionStream
    _pool: WorkerPool
    _setup: Setup | None = None

    @property
    @abstractmethod
    def encoder(self) -> Encoder:
        """The model that encodes mentions."""

    @abstractmethod
    def _links(self, mentions: Iterable[str], options: LinkOptions) -> Iterator[Link]:
        """Links of mentions, in this process."""

    @abstractmethod
    def _annotate_documents(
        self, texts: Iterable[str | DocLike], options: AnnotateOptions
    ) -> Iterator[list[Annotation]]:
        """The annotations of many documents, in this process."""

    @abstractmethod
    def known_names(self, names: Sequence[str], *, types: Sequence[str] = ()) -> set[str]:
        """Those of some strings that are names of an entity."""

    def link_batch(
        self,
        mentions: Iterable[str],
        options: LinkOptions | None = None,
        *,
        workers: int | None = None,
        **keywords: Unpack[LinkKeywords],
    ) -> Iterator[Link]:
        """Link many mentions and yield their links in order; accepts any iterable, and reads a few batches ahead.

        A mention that is not valid text (None, a number, broken Unicode) becomes NIL and does not stop the others.
        Options and errors as for `link`.

        Args:
            mentions: The strings to link.
            options: As for `link`.
            workers: Processes that link (embedded store); they start once, and end with the linker. 1: this process
                alone. Default: one a core from `START_MENTIONS` mentions on, else 1. There are never more than four a
                core, or than different mentions.
            keywords: As for `link`.

        Raises:
            OptionError: If there are to be several workers, but this linker cannot have any: its collections are on a
                server, or its encoder is not ONNX on the CPU.
            WorkerError: If workers were asked for, and cannot start or end before they answer.
        """
        chosen = (options or LinkOptions()).updated(**keywords)
        n_workers = self._n_workers(workers, mentions)
        if n_workers == 1:
            return self._links(mentions, chosen)
        check_are_many(mentions)
        with self._lifetime.in_use():
            self._stream.link_query(chosen)  # raises for an unknown type
        job = LinkJob(chosen, partial(self._links, options=chosen))
        return self._lifetime.while_open(self._answers(job, mentions, n_workers, is_required=workers is not None))

    def annotate_batch(
        self,
        texts: Iterable[str | DocLike],
        options: AnnotateOptions | None = None,
        *,
        workers: int | None = None,
        **keywords: Unpack[AnnotateKeywords],
    ) -> Iterator[list[Annotation]]:
        """Annotate many passages, in order; options as for `annotate`, workers and their errors as for `link_batch`."""
        if isinstance(texts, (str, bytes)):
            raise TypeError("texts is one string, whose letters would be annotated one by one: pass a list")
        chosen = (options or AnnotateOptions()).updated(**keywords)
        with self._lifetime.in_use():
            self._check_types(chosen)
        n_workers = self._n_workers(workers, None)
        here = partial(self._annotate_here, options=chosen)
        if n_workers == 1:
            return self._lifetime.while_open(here(texts))
        job = AnnotateJob(chosen, here)
        return self._lifetime.while_open(self._answers(job, texts, n_workers, is_required=workers is not None))

    def _annotate_here(self, texts: Iterable[str | DocLike], options: AnnotateOptions) -> Iterator[list[Annotation]]:
        if options.document:
            return self._annotate_documents(texts, options)
        return annotate_batch(self._in_process(), texts, options)

    @abstractmethod
    def _in_process(self) -> BatchLinker:
        """This linker without workers."""

    def _check_types(self, options: AnnotateOptions) -> None:
        """Raise for an unknown type even if the text has no mention."""
        self._stream.link_query(LinkOptions(types=options.types))

    def worker_pids(self) -> list[int]:
        """Process ids of the workers that are there."""
        return self._pool.pids()

    def limit_memory(self) -> None:
        """Remember fewer mentions: there are several processes that do."""
        self._stream = replace(self._stream, cache=MentionCache(CACHE_BYTES // 4))

    def _n_workers(self, workers: int | None, items: object) -> int:
        """How many workers to use.

        Raises:
            OptionError: If there are to be several, but there can be none.
            ValueError: If `workers` is below 1.
        """
        if workers is None:
            if isinstance(items, Sized) and len(items) < self._start_at():
                return 1
            n_workers = count_workers()
            return 1 if n_workers == 1 or self._why_alone() else n_workers
        if workers is True or index(workers) < 1:
            raise ValueError(f"workers is a number of processes of at least 1, not {workers!r}")
        if workers > 1 and (why := self._why_alone()):
            raise OptionError("workers", f"Several workers are not possible here: {why}. Leave workers out.")
        return count_workers(workers)

    def _start_at(self) -> int:
        return RUNNING_MENTIONS if self._pool.n_running else START_MENTIONS

    def _why_alone(self) -> str | None:
        """Why no worker can do what this linker does; None if they can."""
        if any(collection.is_remote for collection in self._collections):
            return "the collections are on a server, which serves several requests at once by itself"
        if self._stream.reranker is not None:
            return "the linker has a reranker"
        if type(self).__module__ != "pearl_qdrant.linking.linker":
            return f"{type(self).__name__} is another class than EntityLinker"
        if self.encoder.info.runtime == "onnx":
            from pearl_qdrant.encoder.runtime.onnx_runtime import OnnxEncoder

            if isinstance(self.encoder, OnnxEncoder):
                return None
        return f"its encoder runs on {self.encoder.info.device} with {self.encoder.info.runtime}, not with ONNX"

    def _worker_setup(self) -> Setup | None:
        """What workers must have open; None if only this process has the state of the collections."""
        tokens = tuple(collection.state_token for collection in self._collections)
        known = [token for token in tokens if token is not None]
        if len(known) < len(tokens) or not self._pool.is_usable:
            return None
        names = tuple(collection.name for collection in self._collections)
        info, last = self.encoder.info, self._setup
        calibration, model = self._calibration, self._stream.model
        is_same = last is not None and (last.tokens, last.collections) == (tuple(known), names)
        if last is None or not is_same or last.calibration is not calibration or last.model is not model:
            encoder = info.name, info.pooling, info.prefix
            last = Setup(type(self), self._store.location, names, tuple(known), encoder, calibration, model)
            self._setup = last
        return last

    def _answers(self, job: Job[T, A], items: Iterable[T], n_workers: int, *, is_required: bool) -> Iterator[A]:
        """The answers of a job: by this process until workers pay, then by them."""
        remaining = iter(items)
        if not is_required:
            n_left = self._start_at()
            if isinstance(items, Sequence):
                n_left -= sum(job.weight(item) for item in items[:n_left])
            while n_left > 0:
                window = job.take(remaining, n_workers)
                if not window:
                    return
                n_left -= sum(job.weight(item) for item in window)
                yield from job.here(window)
        setup: Callable[[], bytes | None] = packed_once(self._worker_setup)
        stream = WorkerStream(job, self._pool, n_workers, setup, is_required)
        yield from stream.answers(remaining)
