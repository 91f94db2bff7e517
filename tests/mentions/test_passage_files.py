"""Files of passages: lines, JSON Lines, or one passage."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from pearl_qdrant.errors import FormatError, InputError
from pearl_qdrant.linking.mention_detection.passages import Passage, PassageFormat, format_of, read_passages
from pearl_qdrant.settings import MAX_LINE_BYTES, MAX_PASSAGE_BYTES


def read(content: bytes, kind: PassageFormat | None = None, name: str = "x.txt") -> list[Passage]:
    """The passages of a file with this content."""
    return list(read_passages(io.BytesIO(content), name, kind))


def test_the_ending_says_the_format() -> None:
    """Files that end in .jsonl or .ndjson are JSON Lines, in capitals as well."""
    names = ("a.txt", "-", "a.jsonl", "A.JSONL", "a.ndjson", "jsonl")

    assert [format_of(name) for name in names] == ["lines", "lines", "jsonl", "jsonl", "jsonl", "lines"]


def test_lines_keep_their_numbers() -> None:
    """Blank lines are no passages, and count; a byte order mark and line ends are no part of a passage."""
    assert read(b"\xef\xbb\xbfone\n\n  \n two \r\nthree") == [
        Passage(1, "one"),
        Passage(4, " two "),
        Passage(5, "three"),
    ]


def test_objects_have_a_text_and_maybe_an_id() -> None:
    """Other fields are ignored, and an empty text is a passage."""
    content = (
        b'{"id": "a", "text": "x\\ny", "more": [1]}\n\n{"text": ""}\n{"text": "z", "id": null}\n{"id": 0, "text": "o"}'
    )

    assert read(content, name="x.jsonl") == [
        Passage(1, "x\ny", "a"),
        Passage(3, ""),
        Passage(4, "z"),
        Passage(5, "o", 0),
    ]


def test_objects_may_have_the_places_of_their_mentions() -> None:
    """With labels of a recogniser; offsets count as the file's do, and are characters afterwards."""
    content = '{"text": "🦄 and NYC", "spans": [{"start": 7, "end": 10, "label": "GPE"}]}\n{"text": "NYC"}'

    first, second = read_passages(io.BytesIO(content.encode()), "x.jsonl", offsets="utf-16")

    assert [(one.start, one.end, one.label) for one in first.ents or ()] == [(6, 9, "GPE")]
    assert second.ents is None


@pytest.mark.parametrize(
    "line, message",
    [
        (b"She read.", r"x.jsonl:2: not JSON \(.*A line looks like this"),
        (b'["text"]', "x.jsonl:2: not an object with a text"),
        (b'{"id": 1}', "x.jsonl:2: not an object with a text"),
        (b'{"text": null}', "x.jsonl:2: not an object with a text"),
        (b'{"text": "a", "id": 1.5}', "x.jsonl:2: the id is 1.5. Give a string or an integer"),
        (b'{"text": "a", "id": true}', "x.jsonl:2: the id is true"),
        (b'{"text": "a", "spans": 1}', "x.jsonl:2: not an object with a text and spans"),
        (b'{"text": "a", "spans": [[0, 2]]}', "x.jsonl:2: span 0 is from 0 to 2, but the text has 1"),
        (b'{"text": "\xff"}', "x.jsonl:2: not UTF-8"),
        (b"[" * 100_000, r"x.jsonl:2: not JSON"),
        (b"1" * 5_000, r"x.jsonl:2: not"),
        (b"x" * (MAX_LINE_BYTES + 1), "x.jsonl:2: longer than"),
    ],
)
def test_a_bad_line_is_named(line: bytes, message: str) -> None:
    """The error has the path, the line and what to do; the passages before it are read."""
    passages = read_passages(io.BytesIO(b'{"text": "a"}\n' + line + b"\n"), "x.jsonl")

    assert next(passages) == Passage(1, "a")
    with pytest.raises(FormatError, match=message):
        next(passages)


def test_a_whole_file_is_one_passage() -> None:
    """Its line ends stay, so that offsets match the file; too long a file is refused."""
    assert read(b"one\r\ntwo\n", "whole") == [Passage(1, "one\r\ntwo\n")]
    with pytest.raises(InputError, match=r"longer than 8,388,608 bytes.*Split it"):
        read(b"x" * (MAX_PASSAGE_BYTES + 1), "whole")


def test_a_file_is_read_line_by_line() -> None:
    """A file of any length takes little memory: only the line at hand is read."""

    class Endless(io.BytesIO):
        n_lines = 0

        def readline(self, size: int | None = -1) -> bytes:
            self.n_lines += 1
            return b"a passage\n"

    file = Endless()
    passages: Iterator[Passage] = read_passages(file, "-")

    assert [next(passages).line for _ in range(3)] == [1, 2, 3]
    assert file.n_lines == 3
