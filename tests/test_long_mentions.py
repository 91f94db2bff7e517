"""Very long mentions and lines: they cost neither memory nor time, and are answered in words."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from linker_base import ENTITIES, fill

from pearl_qdrant import EntityLinker, NilReason
from pearl_qdrant.encoder.protocol import Encoded, Encoder, ModelInfo
from pearl_qdrant.linking.batches import BATCH_CHARACTERS, take
from pearl_qdrant.linking.explain import explain_link
from pearl_qdrant.linking.mentions import MAX_CHARACTERS
from pearl_qdrant.linking.surface import surface


class Listening:
    """An encoder that remembers how long what it was given was."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.info: ModelInfo = encoder.info
        self.longest = 0

    def encode(self, names: Sequence[str]) -> Encoded:
        self.longest = max([self.longest, *map(len, names)])
        return self._encoder.encode(names)


@pytest.fixture(scope="module")
def linker(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[EntityLinker]:
    """A linker whose encoder listens."""
    path = tmp_path_factory.mktemp("store")
    fill(path, "base", str(model), ENTITIES)
    with EntityLinker.open("base", store=str(path)) as opened:
        yield EntityLinker(opened._store, opened._collections, Listening(opened.encoder), threshold=0.0)


def peak_of(work: Callable[[], object]) -> int:
    """Bytes that are allocated at most while something is done."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_mention_longer_than_any_name_is_nil_and_says_so(linker: EntityLinker) -> None:
    """It is not looked up, and its neighbours are linked."""
    long = "x" * (MAX_CHARACTERS + 1)

    links = list(linker.link_batch(["NYC", long, "nytimes.com"]))

    assert [link.entity_id for link in links] == ["nyc", None, "nyt"]
    assert (links[1].nil_reason, links[1].candidates, links[1].mention) == (NilReason.TOO_LONG, (), long)
    assert explain_link(links[1], linker.calibration) == [
        "NIL: longer than any name, over 10,000 characters; it was not looked up"
    ]
    encoder = linker.encoder
    assert isinstance(encoder, Listening)
    assert encoder.longest <= MAX_CHARACTERS


def test_white_space_around_a_mention_does_not_count(linker: EntityLinker) -> None:
    """A short name in a wide column is a short name; white space alone is nothing, however much of it."""
    assert linker.link(" " * 2 * MAX_CHARACTERS + "NYC\n").entity_id == "nyc"
    assert linker.link(" " * 2 * MAX_CHARACTERS).nil_reason == NilReason.NO_CANDIDATES


def test_a_mention_of_a_hundred_million_characters_takes_no_memory(linker: EntityLinker) -> None:
    """Nothing is copied of it, by `link` as by `annotate` with a span of that length."""
    huge = "x" * 10**8

    assert peak_of(lambda: linker.link(huge)) < 10**7
    (nil,) = linker.annotate(huge[: 10**6], spans=[(0, 10**6)], include_nil=True)
    assert nil.link.nil_reason == NilReason.TOO_LONG


def test_long_mentions_are_not_read_far_ahead(linker: EntityLinker) -> None:
    """Of a stream of long mentions a few are held, not a thousand."""
    n_read = 0

    def mentions() -> Iterator[str]:
        nonlocal n_read
        for _ in range(100):
            n_read += 1
            yield "x" * BATCH_CHARACTERS

    next(linker.link_batch(mentions()))

    assert n_read == 1
    assert [len(take(iter(["ab"] * 10), n)) for n in (3, 20)] == [3, 10]


def test_brackets_are_looked_for_once_a_run_of_blanks() -> None:
    """A long run of blanks before a bracket is left out with it, and costs its length and not its square."""
    assert surface("heart" + " " * 5 + "(organ) x").core == "heart x"
    assert surface("heart   [organ] (x) y").core == "heart y"
    assert surface("a" + " " * 400_000 + "b (").core == "a b"
