"""All cores for many mentions: worker processes, each over its own view of an embedded collection; answers in order.

A worker links as its parent does, over a view of the same collections in the same state. Answers come back as
MessagePack, by msgspec: a link of 10 candidates takes 0.04 ms to pack and 0.1 to unpack, a quarter of pickling it as it
is. Each worker gets windows of items; the next ones wait at it. Memory is bounded: at most `AHEAD` windows for each
worker are sent and not yet taken.

The two jobs of workers: mentions to link, blocks of texts to annotate.
"""

from __future__ import annotations

import copy
import gc
import logging
import os
import pickle
import re
import signal
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.util import Finalize
from operator import index
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from pearl_qdrant.errors import OptionError, WorkerError
from pearl_qdrant.linking.joints import links_of_cells
from pearl_qdrant.linking.mention_detection.blocks import MOST, Block, take_blocks
from pearl_qdrant.linking.mention_stream import CACHE_BYTES
from pearl_qdrant.linking.mentions import take
from pearl_qdrant.linking.options import AnnotateOptions, LinkOptions
from pearl_qdrant.linking.ranking.model import Calibration, RankingModel
from pearl_qdrant.linking.state import LinkerState, Overrides
from pearl_qdrant.records import Annotation, Link
from pearl_qdrant.settings import count_workers

if TYPE_CHECKING:
    from pearl_qdrant.encoder.protocol import Encoder
    from pearl_qdrant.store.protocol import Store


_LOOK_S = 1.0  # how often to look whether the parent is gone
_LEAVE_S = 3.0  # how long closing the view may take
_encode = msgspec.msgpack.Encoder().encode
_decode_link = msgspec.msgpack.Decoder(Link).decode
_decode_annotations = msgspec.msgpack.Decoder(list[Annotation]).decode


@dataclass(frozen=True, slots=True)
class Setup:
    """What a worker needs to link as its parent does."""

    location: str  # folder of the embedded store
    collections: tuple[str, ...]  # names of the collections
    tokens: tuple[str, ...]  # the state of each; see `protocol.Collection.state_token`
    encoder: tuple[str, str, str]  # name, pooling and prefix of the model
    calibration: Calibration  # those of the parent
    model: RankingModel


class _Worker:
    """What this process has open."""

    def __init__(self) -> None:
        self.encoder: Encoder | None = None
        self.state: LinkerState | None = None
        self.store: Store | None = None
        self.setup = b""

    def state_of(self, setup: bytes) -> LinkerState | None:
        """The collections in the state of a packed `Setup`; None if they have another state by now."""
        if setup != self.setup:
            self.close()
            self._open(pickle.loads(setup))  # noqa: S301 - packed by our parent
            self.setup = setup if self.state is not None else b""
        return self.state

    def _open(self, setup: Setup) -> None:
        from pearl_qdrant.encoder.loading import load_encoder
        from pearl_qdrant.store.open import open_store

        if self.encoder is None:
            name, pooling, prefix = setup.encoder
            self.encoder = load_encoder(name, device="cpu", runtime="onnx", pooling=pooling, prefix=prefix, threads=1)
        store = open_store(setup.location)
        try:
            opened = [store.open(name, read_only=True) for name in setup.collections]
            if tuple(one.state_token for one in opened) != setup.tokens:
                store.close()
                return
            self.state = LinkerState.of(
                setup.location,
                opened,
                self.encoder,
                Overrides(calibration=setup.calibration, model=setup.model),
                cache_bytes=CACHE_BYTES // 4,  # there are several processes that remember mentions
            )
        except BaseException:
            store.close()
            raise
        self.store = store
        gc.freeze()  # what is open stays: the collector need not look at it

    def close(self) -> None:
        """Close the store, and with it the view."""
        store, self.store, self.state, self.setup = self.store, None, None, b""
        if store is not None:
            store.close()


_worker = _Worker()


def begin(parent: int, line: Connection) -> None:
    """Begin a worker process. It ends at once, also within a task, when its parent is gone or closes the line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches this process too; the parent decides
    Finalize(None, _worker.close, exitpriority=10)
    threading.Thread(target=_watch, args=(parent, line), daemon=True).start()


def _watch(parent: int, line: Connection) -> None:
    with suppress(Exception):
        while os.getppid() == parent and not line.poll(_LOOK_S):  # a forked copy of the parent may hold the other end
            pass
    timer = threading.Timer(_LEAVE_S, os._exit, [0])
    timer.daemon = True
    timer.start()
    with suppress(Exception):
        _worker.close()
    os._exit(0)


def link_in_worker(setup: bytes, mentions: Sequence[str], options: LinkOptions) -> list[object] | None:
    """The packed links of mentions; None if the collections have another state than the setup."""
    state = _worker.state_of(setup)
    return (
        None if state is None else [_pack(replace(one, mention="")) for one in links_of_cells(state, mentions, options)]
    )


def annotate_in_worker(setup: bytes, blocks: Sequence[Block], options: AnnotateOptions) -> list[object] | None:
    """The packed annotations of blocks of texts; None as for `link_in_worker`."""
    state = _worker.state_of(setup)
    return None if state is None else [_pack(one) for one in state.annotate_blocks(blocks, options)]


def _pack(answer: object) -> object:
    """As bytes; itself if MessagePack cannot hold it, as broken Unicode in a text."""
    try:
        return _encode(answer)
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError):
        return answer


def read_link(packed: Any, mention: str) -> Link:
    """A link that `link_in_worker` packed, of a mention; each call makes another one, which a caller may change."""
    return replace(_decode_link(packed) if isinstance(packed, bytes) else copy.deepcopy(packed), mention=mention)


def read_annotations(packed: Any, passage: object = None) -> list[Annotation]:
    """The annotations of a passage; each call makes others."""
    return _decode_annotations(packed) if isinstance(packed, bytes) else copy.deepcopy(packed)


START_MENTIONS = 4096
"""Mentions from which workers are started by themselves. They take a second or two of each core to start."""

RUNNING_MENTIONS = 1024  # the same for workers that are there
AHEAD = 2  # windows that each worker has, while the caller takes the answers of those before
SLOW_SOURCE_S = 0.1  # if reading a window takes longer, what was read is answered before more is read
_FEW = 1000  # items of a list that are counted, so that there is no worker without one

_ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1"),
    "MALLOC_TRIM_THRESHOLD_": "131072",  # of glibc: a worker keeps 5 to 8 MB less between two tasks
}

log = logging.getLogger(__name__)

T = TypeVar("T")
A = TypeVar("A")
Packed = list[Any]


@dataclass(frozen=True, slots=True)
class Job(Generic[T, A]):
    """Items to be answered in order."""

    options: object  # how; sent with each task
    here: Callable[[Iterable[T]], Iterator[A]]  # answers items in this process
    # answers what is sent of them in a worker: `link_in_worker` or `annotate_in_worker`
    there: Callable[[bytes, Any, Any], Packed | None]
    take: Callable[[Iterator[T]], list[T]]  # the next window of items for one worker; empty at the end
    send: Callable[[T], Any]  # an item as it is sent
    weight: Callable[[T], int]  # about how many mentions an item is
    read: Callable[[Any, T], A]  # the answer for an item, of what came back


@dataclass(slots=True)
class _Window(Generic[T]):
    """Items, and what was sent of them: with which setup, to which workers; None if this process answers."""

    items: list[T]
    setup: bytes | None = None
    generation: int = 0
    future: Future[Packed | None] | None = None


class Workers:
    """The workers of one linker, by its state, its class, and the folder of its store. They start when first needed,
    and end with the linker.
    """

    def __init__(self, state: Callable[[], LinkerState], kind: type, location: str) -> None:
        self._state, self._kind, self._location = state, kind, location
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._end: Callable[[], object] | None = None
        self._executor: Any = None
        self._n_started = 0
        self._is_closed = False
        self.generation = 0  # how often others took the place of workers that ended

    @property
    def is_usable(self) -> bool:
        """Whether this process may use them: not after `close`, and not in a forked process."""
        return not self._is_closed and os.getpid() == self._pid

    def pids(self) -> list[int]:
        """Process ids of the workers that are there."""
        return [] if self._executor is None else list(self._executor._processes)

    def count(self, workers: int | None, items: object, *, are_mentions: bool) -> int:
        """How many workers to use for some items: as requested, or as many as pay. Raises OptionError if there are to
        be several, but there can be none; ValueError if `workers` is below 1.
        """
        if workers is None:
            if are_mentions and isinstance(items, Sized) and len(items) < self.start_at:
                return 1
            n_workers = count_workers()
            return 1 if n_workers == 1 or self._why_alone() else n_workers
        if workers is True or index(workers) < 1:
            raise ValueError(f"workers is a number of processes of at least 1, not {workers!r}")
        if workers > 1 and (why := self._why_alone()):
            raise OptionError("workers", f"Several workers are not possible here: {why}. Leave workers out.")
        if isinstance(items, Sequence) and len(items) <= _FEW:
            workers = min(workers, len(set(map(str, items))) or 1)
        return count_workers(workers)

    @property
    def start_at(self) -> int:
        """Mentions from which workers pay."""
        return RUNNING_MENTIONS if self._executor is not None else START_MENTIONS

    def answers(
        self, job: Job[T, A], items: Iterable[T], *, n_workers: int, is_required: bool, n_known: int = 0
    ) -> Iterator[A]:
        """The answers of a job: by this process until workers pay, then by them. An error of the iterable is raised
        after the answers for what it gave before. If workers are required, it is an error if they cannot be used; else
        this process goes on alone. `n_known`: mentions that are known to come.
        """
        remaining = iter(items)
        if not is_required:
            n_left = self.start_at - n_known
            while n_left > 0:
                window = job.take(remaining)
                if not window:
                    return
                n_left -= sum(job.weight(item) for item in window)
                yield from job.here(window)
        yield from _Stream(self, job, n_workers, is_required).answers(remaining)

    def setup(self) -> bytes | None:
        """What workers must have open, packed; None if only this process has the state of the collections."""
        state = self._state()
        tokens = [collection.state_token for collection in state.collections]
        known = [token for token in tokens if token is not None]
        if len(known) < len(tokens) or not self.is_usable:
            return None
        names, info = tuple(collection.name for collection in state.collections), state.encoder.info
        encoder = info.name, info.pooling, info.prefix
        parts = self._location, names, tuple(known), encoder, state.calibration, state.stream.model
        return pickle.dumps(Setup(*parts), pickle.HIGHEST_PROTOCOL)

    def submit(self, n_workers: int, there: Callable[..., Packed | None], *task: object) -> Future[Packed | None]:
        """Send a task, and start workers for it. Raises WorkerError if they cannot start, or ended with the linker."""
        from loky import ProcessPoolExecutor
        from loky.backend import get_context

        with self._lock:
            if not self.is_usable:
                raise WorkerError("The worker processes have ended with their linker.")
            if self._executor is not None and self._n_started < n_workers:
                self._shut_down()
            try:
                if self._executor is None:
                    context = get_context("loky")  # needs no main guard
                    line, other_end = context.Pipe(duplex=False)
                    arguments = os.getpid(), line
                    self._executor = ProcessPoolExecutor(
                        n_workers, context=context, initializer=begin, initargs=arguments, env=_ENVIRONMENT
                    )
                    self._n_started = n_workers
                    self._end = weakref.finalize(self, _shut_down, self._executor, (line, other_end), self._pid)
                future: Future[Packed | None] = self._executor.submit(there, *task)
            except BrokenProcessPool as error:
                future = Future()
                future.set_exception(error)
            except OSError as error:
                self._shut_down()
                raise WorkerError(f"A worker process cannot start ({error}). {_ADVICE}") from error
        return future

    def renew(self) -> None:
        """Forget workers of which one has ended; others start with the next task."""
        with self._lock:
            self.generation += 1
            self._shut_down()

    def close(self) -> None:
        """End all workers, whatever they are doing."""
        self._is_closed = True
        self.renew()

    def _shut_down(self) -> None:
        end, self._end, self._executor = self._end, None, None
        if end is not None:
            end()

    def _why_alone(self) -> str | None:
        """Why no worker can do what this linker does; None if they can."""
        state = self._state()
        if state.statistics.is_remote:
            return "the collections are on a server, which serves several requests at once by itself"
        if state.stream.reranker is not None:
            return "the linker has a reranker"
        if self._kind.__module__ != "pearl_qdrant.linking.linker":
            return f"{self._kind.__name__} is another class than EntityLinker"
        info = state.encoder.info
        if info.runtime == "onnx":
            from pearl_qdrant.encoder.batching import BatchEncoder

            if isinstance(state.encoder, BatchEncoder):
                return None
        return f"its encoder runs on {info.device} with {info.runtime}, not with ONNX"


_ADVICE = "Perhaps memory ran out: link with fewer workers, or with workers=1."


def _shut_down(executor: Any, lines: Sequence[Any], pid: int) -> None:
    """End workers; also called at exit, and when the linker is no longer used."""
    if os.getpid() == pid:
        for line in lines:
            line.close()
        executor.shutdown(wait=True)


@dataclass(slots=True)
class _Stream(Generic[T, A]):
    """One batch; fields as the arguments of `Workers.answers`."""

    workers: Workers
    job: Job[T, A]
    n_workers: int
    is_required: bool
    is_alone: bool = False
    is_renewed: bool = False

    def answers(self, items: Iterator[T]) -> Iterator[A]:
        """Answer items in order."""
        waiting: deque[_Window[T]] = deque()
        failed: Exception | None = None
        is_slow = False
        while True:
            while waiting and (is_slow or len(waiting) >= AHEAD * self.n_workers):
                yield from self._answers_of(waiting.popleft())
            start = time.monotonic()
            try:
                window = _Window(self.job.take(items))
            except Exception as error:  # noqa: BLE001 - raised below
                failed = error
                break
            is_slow = time.monotonic() - start > SLOW_SOURCE_S or self.is_alone
            if not window.items:
                break
            self._send(window)
            waiting.append(window)
        while waiting:
            yield from self._answers_of(waiting.popleft())
        if failed is not None:
            raise failed

    def _send(self, window: _Window[T]) -> None:
        """Send a window to the workers, unless only this process can answer."""
        window.setup = None if self.is_alone else self.workers.setup()
        if window.setup is None:
            return
        window.generation = self.workers.generation
        sent = [self.job.send(item) for item in window.items]
        try:
            window.future = self.workers.submit(self.n_workers, self.job.there, window.setup, sent, self.job.options)
        except WorkerError as error:
            self._give_up(error)
            window.setup = None

    def _answers_of(self, window: _Window[T]) -> Iterator[A]:
        """The answers for a window; it is sent again if a worker died, once, or the collections changed. Raises
        WorkerError if workers were asked for, and fail; or the error of a task.
        """
        while window.setup is not None:
            if window.setup == self.workers.setup() and window.future is not None:
                try:
                    packed = window.future.result()
                except BrokenProcessPool as error:
                    if window.generation == self.workers.generation:
                        self._begin_anew(error)
                    packed = []
                else:
                    if packed is not None and window.setup == self.workers.setup():
                        return map(self.job.read, packed, window.items)
                if packed is None:
                    log.info("The collections changed after they were opened here: no worker can have that state.")
                    self.is_alone = True
            self._send(window)
        return self.job.here(window.items)

    def _begin_anew(self, error: BrokenProcessPool) -> None:
        """Start other workers after one died; the second time, or if nobody asked for workers, give up."""
        if self.is_renewed or not self.workers.is_usable or not self.is_required:
            why = found[0] if (found := re.search(r"\{.+\}|$", str(error))) else ""
            self._give_up(WorkerError(f"A worker process ended before it answered {why}. {_ADVICE}"))
            return
        self.is_renewed = True
        self.workers.renew()

    def _give_up(self, error: WorkerError) -> None:
        """Go on alone; raise the error if workers were asked for."""
        if self.is_required or not self.workers.is_usable:
            raise error
        if not self.is_alone:
            log.warning("Linking goes on in one process: %s", error)
        self.is_alone = True


MENTIONS = 256  # mentions of a window: about a second of work
PASSAGES = 32  # passages of a window, at most
PASSAGE_CHARACTERS = 4096  # characters of the passages of a window, at least: a few hundred to a thousand spans
CHARACTERS_A_MENTION = 5  # an annotated text has about one distinct span in so many characters


def link_job(options: LinkOptions, here: Callable[[Iterable[str]], Iterator[Link]]) -> Job[str, Link]:
    """Mentions to link; what is no text is sent as None, since it cannot be linked, and perhaps not sent."""
    return Job(
        options=options,
        here=here,
        there=link_in_worker,
        take=lambda mentions: take(mentions, MENTIONS),
        send=_as_text,
        weight=lambda mention: 1,
        read=read_link,
    )


def _as_text(mention: object) -> str | None:
    return str.__str__(mention) if isinstance(mention, str) else None


def annotate_job(
    options: AnnotateOptions, here: Callable[[Iterable[Block]], Iterator[list[Annotation]]]
) -> Job[Block, list[Annotation]]:
    """Blocks of texts to annotate."""
    return Job(
        options=options,
        here=here,
        there=annotate_in_worker,
        take=lambda blocks: take_blocks(blocks, PASSAGES, PASSAGE_CHARACTERS),
        send=lambda block: block,
        weight=lambda block: 1 + len(block.text) // CHARACTERS_A_MENTION,
        read=read_annotations,
    )


def has_long(texts: object) -> bool:
    """Whether some of a list of texts are long, so that several workers share them."""
    return isinstance(texts, Sequence) and any(isinstance(one, str) and len(one) > MOST for one in texts)


def characters_of(texts: object) -> int:
    """The characters of a list of texts; 0 if it is none."""
    return sum(len(one) for one in texts if isinstance(one, str)) if isinstance(texts, Sequence) else 0
