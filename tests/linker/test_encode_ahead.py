"""Linking against a server: the next batch is encoded during a search, and links do not change."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from qdrant_double import QdrantDouble
from qdrant_double_http import Fault

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.encoder.protocol import Encoded, Encoder, ModelInfo
from pearl_qdrant.errors import StoreRejectedError
from pearl_qdrant.linking import mention_stream
from pearl_qdrant.linking.mention_stream import prepare_ahead
from pearl_qdrant.store import Store, open_store
from pearl_qdrant.store.schema import Manifest


class Watched:
    """An encoder that remembers in which threads it worked, and may fail."""

    def __init__(self, inner: Encoder, fail_on: str | None = None) -> None:
        self._inner, self._fail_on = inner, fail_on
        self.threads: list[str] = []

    @property
    def info(self) -> ModelInfo:
        return self._inner.info

    def encode(self, names: Sequence[str]) -> Encoded:
        if names:
            self.threads.append(threading.current_thread().name)
        if self._fail_on in names:
            raise MemoryError("out of memory")
        return self._inner.encode(names)


def linker(store: Store, encoder: Encoder) -> EntityLinker:
    """Over a collection of twelve entities."""
    collection = store.create(Manifest.for_model(encoder.info, collection="base", kb="base"))
    made = EntityLinker(store, [collection], encoder)
    made.add([Entity(f"E{i}", f"w{i} times", (f"w{i} post",)) for i in range(12)])
    return made


class Server(NamedTuple):
    """A double of a server with the collection, a linker over it, and the searches of each request so far."""

    double: QdrantDouble
    linker: EntityLinker
    encoder: Watched
    sizes: list[int]


@pytest.fixture
def server(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server whose requests are counted."""
    with QdrantDouble() as double:
        watched, sizes = Watched(encoder), list[int]()
        remote = linker(open_store(double.url), watched)
        answer = double.answer

        def counted(method: str, path: str, body: bytes) -> Any:
            if path.endswith("/query/batch"):
                sizes.append(len(json.loads(body)["searches"]))
            return answer(method, path, body)

        monkeypatch.setattr(double, "answer", counted)
        watched.threads.clear()
        yield Server(double, remote, watched, sizes)
        remote.close()


def no_threads(kind: str) -> bool:
    """Whether no thread of this kind is left."""
    return not any(thread.name.startswith(f"pearl-qdrant-{kind}") for thread in threading.enumerate())


def test_slices_are_searched_at_the_same_time(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second search is sent before the first one is answered, and answers keep their order."""
    monkeypatch.setattr(mention_stream, "SEARCH_BATCH", 2)
    mentions = [f"w{i} time" for i in range(6)]
    alone = [server.linker.link(mention, threshold=0.0).entity_id for mention in mentions]
    both = threading.Barrier(2)
    answer, lock, n_held = server.double.answer, threading.Lock(), 0

    def held(method: str, path: str, body: bytes) -> Any:
        nonlocal n_held
        with lock:
            n_held += path.endswith("/query/batch")
            is_first = path.endswith("/query/batch") and n_held <= 2
        if is_first:
            both.wait(timeout=30)
        return answer(method, path, body)

    monkeypatch.setattr(server.double, "answer", held)
    together = [link.entity_id for link in server.linker.link_batch(mentions, threshold=0.0)]

    assert not both.broken
    assert together == alone


def test_a_repeated_mention_is_searched_once(server: Server) -> None:
    """The same string in a batch for a server is one query, and each place has its answer."""
    links = list(server.linker.link_batch(["w1 time", "w2 time"] * 40, threshold=0.0))

    assert max(server.sizes) <= 4, "two mentions, at most two searches of each in one request"
    assert [link.entity_id for link in links] == ["E1", "E2"] * 40


def test_names_of_the_base_are_one_request_and_are_not_encoded(server: Server) -> None:
    """A batch of names is looked up by one request; what is no name is encoded and searched after it."""
    names = [f"w{i} post" for i in range(12)]
    links = list(server.linker.link_batch(names))
    assert (server.sizes, server.encoder.threads) == ([12], [])

    whole = list(server.linker.link_batch(names, limit=10))
    assert [link.entity_id for link in links] == [link.entity_id for link in whole] == [f"E{i}" for i in range(12)]
    assert [link.probability for link in links] == pytest.approx([link.probability for link in whole], abs=1e-6)


def test_an_error_of_a_search_is_raised(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused search ends the batch with its error, and no thread is left."""
    monkeypatch.setattr(mention_stream, "SEARCH_BATCH", 8)
    server.double.faults = [Fault("status", match="POST .*/query/batch$", status=400) for _ in range(9)]
    with pytest.raises(StoreRejectedError):
        list(server.linker.link_batch([f"w{i} time" for i in range(30)]))

    assert no_threads("link")


def test_mentions_are_read_in_the_callers_thread_and_encoded_in_another(encoder: Encoder) -> None:
    """Mentions may come from a generator that works only in its own thread, such as a database cursor."""
    read_in: set[str] = set()
    watched = Watched(encoder)

    def mentions() -> Iterator[str]:
        for i in range(50):
            read_in.add(threading.current_thread().name)
            yield f"w{i}"

    batches = list(prepare_ahead(watched.encode, mentions(), 8, lambda: None))

    assert [mention for batch, _, _ in batches for mention in batch] == [f"w{i}" for i in range(50)]
    assert all(len(batch) == len(encoded.vectors) for batch, _, encoded in batches)
    assert read_in == {threading.current_thread().name}
    assert all(name.startswith("pearl-qdrant-encode") for name in watched.threads)


def test_an_error_of_the_encoding_thread_is_raised(encoder: Encoder) -> None:
    """An error of the encoder is raised after the batches before it. No thread is left, nor by a stream that is left
    early.
    """
    batches = prepare_ahead(Watched(encoder, fail_on="w20").encode, iter([f"w{i}" for i in range(50)]), 8, lambda: None)
    got = [next(batches)[0], next(batches)[0]]
    with pytest.raises(MemoryError):
        next(batches)

    assert [len(batch) for batch in got] == [8, 8]
    assert no_threads("encode")
    batches = prepare_ahead(encoder.encode, iter([f"w{i}" for i in range(1000)]), 8, lambda: None)
    next(batches)
    batches.close()  # type: ignore[attr-defined]

    assert no_threads("encode")


def test_threads_of_a_link_know_what_the_caller_knows(encoder: Encoder) -> None:
    """What a caller sets for its thread, such as the end of a request's time, holds in the threads that work for it."""
    known: ContextVar[str] = ContextVar("known", default="nothing")
    seen: list[str] = []

    class Asking(Watched):
        def encode(self, names: Sequence[str]) -> Encoded:
            seen.append(known.get())
            return super().encode(names)

    def search(part: list[int]) -> list[int]:
        seen.append(known.get())
        return part

    known.set("the deadline")
    batches = list(prepare_ahead(Asking(encoder).encode, iter(["a", "b", "c"]), 1, lambda: None))
    remote = SimpleNamespace(statistics=SimpleNamespace(is_remote=True))
    found = list(mention_stream.MentionStream._in_order(remote, search, [[1], [2], [3]]))  # type: ignore[arg-type]

    assert len(batches) == len(found) == 3
    assert seen == ["the deadline"] * 6
