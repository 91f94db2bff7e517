"""Very long mentions and lines: they cost neither memory nor time, and give clear errors."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_runner import Outcome, Run
from linker_base import ENTITIES, fill

from pearl_qdrant import EntityLinker, NilReason
from pearl_qdrant.errors import FormatError
from pearl_qdrant.linking.mentions import BATCH_CHARACTERS, MAX_CHARACTERS, take
from pearl_qdrant.linking.ranking import explain_link
from pearl_qdrant.linking.ranking.string_features import string_features
from training.evaluation.data import FolderData


def peak_of(work: Callable[[], object]) -> int:
    """Peak of allocated bytes while a function runs."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_mention_longer_than_any_name_is_nil_with_a_reason(linker: EntityLinker) -> None:
    """It is not searched, and the other mentions are linked. White space around a mention does not count."""
    long = "x" * (MAX_CHARACTERS + 1)

    links = list(linker.link_batch(["NYC", long, "nytimes.com"]))

    assert [link.entity_id for link in links] == ["nyc", None, "nyt"]
    assert (links[1].nil_reason, links[1].candidates, links[1].mention) == (NilReason.TOO_LONG, (), long)
    assert explain_link(links[1], linker.calibration) == [
        "NIL: longer than any name, over 10,000 characters; it was not searched"
    ]
    assert linker.link(" " * 2 * MAX_CHARACTERS + "NYC\n").entity_id == "nyc"
    assert linker.link(" " * 2 * MAX_CHARACTERS).nil_reason == NilReason.NO_CANDIDATES


def test_a_mention_of_a_hundred_million_characters_takes_no_memory(linker: EntityLinker) -> None:
    """`link` makes no copy of it, and neither does `annotate` with a span of that length."""
    huge = "x" * 10**8

    assert peak_of(lambda: linker.link(huge)) < 10**7
    (nil,) = linker.annotate(huge[: 10**6], spans=[(0, 10**6)], include_nil=True)
    assert nil.link.nil_reason == NilReason.TOO_LONG


def test_long_mentions_are_not_read_far_ahead(linker: EntityLinker) -> None:
    """Only a few mentions of a stream of long ones are in memory."""
    n_read = 0

    def mentions() -> Iterator[str]:
        nonlocal n_read
        for _ in range(100):
            n_read += 1
            yield "x" * BATCH_CHARACTERS

    next(linker.link_batch(mentions()))

    assert n_read == 1
    assert [len(take(iter(["ab"] * 10), n)) for n in (3, 20)] == [3, 10]


@pytest.fixture
def endless(tmp_path: Path) -> str:
    """A file of 512 MB without a line end, after two normal lines."""
    path = tmp_path / "endless.txt"
    with path.open("wb") as file:
        file.write(b"NYC\tnyc\nnytimes.com\tnyt\n")
        file.truncate(512 << 20)  # takes no space on the disk
    return str(path)


@pytest.fixture
def ask(run: Run, tmp_path: Path, model: Path) -> Run:
    """The command line with a small base."""
    fill(tmp_path / "store", "base", str(model), ENTITIES)
    return run


@pytest.mark.parametrize(
    "words, message",
    [
        (("link", "--file"), ":3: longer than 1,048,576 bytes. Is this a text with short"),
        (("calibrate", "--labelled"), ":3: longer than 1,048,576 bytes"),
        (("annotate", "--format", "whole", "--file"), ": longer than 8,388,608 bytes, the maximum for one passage."),
    ],
)
def test_an_endless_line_is_refused_by_its_number(ask: Run, endless: str, words: tuple[str, ...], message: str) -> None:
    """A file of the wrong kind is refused before it fills the memory, and a device is read only up to the limit."""
    outcomes: list[Outcome] = []

    peak = peak_of(lambda: outcomes.append(ask(*words, endless)))

    (refused,) = outcomes
    assert refused.status == 1
    assert f"{endless}{message}" in refused.err
    assert peak < 128 << 20
    if Path("/dev/zero").exists():
        refused = ask(*words, "/dev/zero")
        assert (refused.status, "/dev/zero" in refused.err, "longer than" in refused.err) == (1, True, True)


def test_standard_input_is_named_as_a_dash(ask: Run, endless: str) -> None:
    """An error about piped input names it as the command line does. A table of the evaluation has the same limit."""
    long = b"NYC\n" + b"y" * (9 << 20)

    assert "Error: -:2: longer than" in ask("link", "--file", "-", stdin=long).err
    assert "Error: -:2: longer than" in ask("annotate", "--file", "-", stdin=long).err
    assert "Error: -: longer than" in ask("annotate", "--file", "-", "--format", "whole", stdin=long).err
    path = Path(endless)
    with pytest.raises(FormatError, match=r"endless\.txt:3: longer than 1,048,576 bytes"):
        FolderData(path.parent).rows(path.name, "NYC", "nyc")


def test_a_long_line_within_the_bound_is_a_mention_that_is_too_long(ask: Run, tmp_path: Path) -> None:
    """It is NIL, and the other mentions are linked; text output cuts it."""
    path = tmp_path / "mentions.txt"
    path.write_bytes(b"NYC\r\n" + b"y" * (1 << 20) + b"\nnytimes.com")

    in_words = ask("link", "--file", str(path), "--threshold", "0")
    as_json = ask("link", "--file", str(path), "--threshold", "0", "--json", "--explain").lines()

    assert in_words.status == 0, in_words.err
    assert f"\n{'y' * 1000}…  ->  NIL (too long)\n" in in_words.out
    assert [line["entity_id"] for line in as_json] == ["nyc", None, "nyt"]
    assert (as_json[1]["nil_reason"], len(str(as_json[1]["mention"]))) == ("too_long", 1 << 20)


def test_brackets_after_many_spaces_are_found_in_linear_time() -> None:
    """A long run of spaces before a bracket is removed with it, in linear time."""
    assert string_features("heart" + " " * 5 + "(organ) x").core == "heart x"
    assert string_features("heart   [organ] (x) y").core == "heart y"
    assert string_features("a" + " " * 400_000 + "b (").core == "a b"
