"""The command `annotate`, and files of passages: lines, JSON Lines, or one passage."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from cli_runner import Run

from pearl_qdrant import EntityLinker
from pearl_qdrant.cli import cli
from pearl_qdrant.errors import FormatError, InputError
from pearl_qdrant.linking.mention_detection.assertions import read_triggers
from pearl_qdrant.linking.mention_detection.blocks import Passage, PassageFormat, read_passages
from pearl_qdrant.settings import MAX_LINE_BYTES, MAX_PASSAGE_BYTES

BASE = (
    "id\tname\ttype\taliases\n"
    "mi\tmyocardial infarction\tdisease\theart attack\n"
    "asa\taspirin\tdrug\t\n"
    "nyt\tThe New York Times\tORG|newspaper\tNYTimes\n"
    "paris\tParis\tGPE|city\t\n"
    "a-texan-city\tParis\tGPE|city\t\n"
)


PASSAGE = "In Paris\r\nthe NYTimes wrote: a heart attack (HA) is no headache. Then HA and aspirin."


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, model: Path) -> str:
    """A store with a small base, of a tiny model: mentions are names of the base."""
    folder = tmp_path_factory.mktemp("passages")
    path = folder / "base.tsv"
    path.write_text(BASE, encoding="utf-8")
    cli(["ingest", str(path), "--store", str(folder / "store"), "--model", str(model)], standalone_mode=False)
    return str(folder / "store")


@pytest.fixture
def loaded(run: Run, store: str) -> Run:
    """The command line with that store."""
    return partial(run, "annotate", "--store", store)


def test_the_command_prints_one_line_per_mention(loaded: Run) -> None:
    """`annotate` reads an argument, a file or standard input, and prints text or JSON."""
    words = loaded(PASSAGE)
    assert words.status == 0, words.err
    assert words.out.splitlines()[0].startswith("14-21  NYTimes  ->  The New York Times  [nyt]  0.98")
    assert "HA (heart attack)  ->  myocardial infarction  [mi]" in words.out

    as_json = loaded("--file", "-", "--format", "whole", "--json", stdin=PASSAGE.encode())
    lines = as_json.lines()
    assert {PASSAGE[int(str(x["start"])) : int(str(x["end"]))] == x["text"] for x in lines} == {True}
    assert [(x["text"], x["entity_id"], x["long_form"]) for x in lines] == [
        ("NYTimes", "nyt", None),
        ("heart attack", "mi", None),
        ("HA", "mi", "heart attack"),
        ("HA", "mi", "heart attack"),
        ("aspirin", "asa", None),
    ]
    keys = "start end text kb entity_id canonical_name probability types long_form assertion trigger sentence section"
    assert lines[0].keys() == set(keys.split())
    assert lines[0]["types"] == ["ORG", "newspaper"]


def test_the_command_filters_and_shows_nil(loaded: Run) -> None:
    """`--type` filters, `include_nil` shows ties, `on_tie=first` breaks them."""
    drugs = loaded(PASSAGE, "--type", "drug", "--json").lines()
    assert [line["entity_id"] for line in drugs] == ["asa"]

    assert "7-12  Paris  ->  NIL (ambiguous)" in loaded("We saw Paris.", "--set", "include_nil=yes").out

    first = loaded("We saw Paris.", "--set", "on_tie=first", "--json").lines()
    assert [line["entity_id"] for line in first] == ["a-texan-city"]


def test_the_command_refuses_invalid_input(loaded: Run, tmp_path: Path) -> None:
    """Text and file together, neither, and a file that is not UTF-8 are errors with a hint. A lone surrogate, which
    stands for an invalid byte, ends a mention and counts as one character.
    """
    path = tmp_path / "latin.txt"
    path.write_bytes("München".encode("latin-1"))

    assert loaded().status == 2
    assert loaded("x", "--file", str(path)).status == 2
    assert loaded("x", "--format", "lines").status == 2
    wrong = [loaded("--file", str(path), *kind) for kind in ([], ["--format", "whole"])]
    assert [one.status for one in wrong] == [1, 1]
    assert "latin.txt:1: not UTF-8" in wrong[0].err
    assert "latin.txt: not UTF-8 at byte 1" in wrong[1].err
    outcome = loaded("\udcff NYTimes\udcff", "--json")

    assert outcome.status == 0, outcome.err
    assert [(line["start"], line["entity_id"]) for line in outcome.lines()] == [(2, "nyt")]


def test_a_file_has_a_passage_on_each_line(loaded: Run, tmp_path: Path) -> None:
    """Each mention is printed with the number of its line, which counts blank lines, too; a byte order mark is no part
    of a passage.
    """
    path = tmp_path / "reports.txt"
    path.write_text("\ufeffTake aspirin.\n\nNothing here.\r\nA heart attack in the NYTimes.\n", encoding="utf-8")

    words = loaded("--file", str(path)).out.splitlines()
    assert [line.split()[0] for line in words] == ["1:5-12", "4:2-14", "4:22-29"]

    as_json = loaded("--file", str(path), "--json").lines()
    assert [(line["line"], line["start"], line["entity_id"]) for line in as_json] == [
        (1, 5, "asa"),
        (4, 2, "mi"),
        (4, 22, "nyt"),
    ]


def test_json_lines_carry_ids(loaded: Run, tmp_path: Path) -> None:
    """A file that ends in .jsonl, or .ndjson, has an object on each line; its id, or else its line, comes with each
    mention.
    """
    path = tmp_path / "reports.JSONL"
    path.write_text(
        '{"id": "r-1", "text": "Take aspirin."}\n\n{"id": 7, "text": "aspirin\\nagain"}\n{"text": "no aspirin"}\n',
        encoding="utf-8",
    )

    lines = loaded("--file", str(path), "--json").lines()
    assert [(line.get("id"), line.get("line"), line["start"]) for line in lines] == [
        ("r-1", None, 5),
        (7, None, 0),
        (None, 4, 3),
    ]
    again = loaded("--file", "-", "--format", "jsonl", stdin=path.read_bytes())
    assert [line.split()[0] for line in again.out.splitlines()] == ["r-1:5-12", "7:0-7", "4:3-10"]


def test_the_command_says_what_the_text_says_of_a_mention(loaded: Run, store: str, tmp_path: Path) -> None:
    """A negated mention shows its trigger, `--assertion` keeps some, a table has words of another language."""
    text = "He denies a heart attack but takes aspirin."
    assert loaded(text).out.splitlines()[0].endswith("  negated (denies)")
    shown = [(x["text"], x["assertion"], x["trigger"]) for x in loaded(text, "--json").lines()]
    assert shown == [("heart attack", "negated", "denies"), ("aspirin", "affirmed", None)]
    assert [x["text"] for x in loaded(text, "--assertion", "affirmed", "--json").lines()] == ["aspirin"]
    for spelling in ("other_person", "other-person"):
        found = loaded("His mother takes aspirin.", "--assertion", spelling, "--json").lines()
        assert [x["assertion"] for x in found] == ["other_person"]
    assert "other_person" in loaded("--set", "help").out

    table = tmp_path / "german.tsv"
    table.write_text("assertion\tdirection\ttrigger\nnegated\tforward\tkein\n", encoding="utf-8")
    with EntityLinker.open("base", store=store, read_only=True) as linker:
        (german,) = linker.annotate("Kein heart attack.", triggers=read_triggers(table))
    assert (german.assertion, german.trigger) == ("negated", "Kein")


def test_a_file_may_have_spans_and_markup(loaded: Run, tmp_path: Path) -> None:
    """Spans are linked as they are; tags are no text."""
    spans = tmp_path / "spans.jsonl"
    text = "🦄 aspirin for a <b>heart</b> attack"
    row = {"id": 1, "text": text, "spans": [{"start": 2, "end": 9, "label": "Drug"}, {"start": 16, "end": 35}]}
    spans.write_text(json.dumps(row) + "\n", encoding="utf-8")
    both = ("--markup", "html", "--json")

    given = loaded("--file", str(spans), *both).lines()
    found = loaded(text, *both).lines()

    shown = [(2, 9, "aspirin", "asa"), (19, 35, "heart</b> attack", "mi")]
    assert [(x["start"], x["end"], x["text"], x["entity_id"]) for x in found] == shown
    assert [(x["start"], x["text"], x["entity_id"]) for x in given] == [(2, "aspirin", "asa"), (16, text[16:35], "mi")]
    assert found[0]["sentence"] == [0, 35]


@pytest.mark.slow
def test_a_book_is_read_by_several_processes(loaded: Run, tmp_path: Path) -> None:
    """`workers` divides one text as well, and its offsets are those of the file."""
    path = tmp_path / "book.txt"
    text = "Chapter: he had a heart attack.\r\nThe NYTimes wrote of it.\r\n\r\n" * 400
    path.write_text(text, encoding="utf-8", newline="")

    lines = loaded("--file", str(path), "--format", "whole", "--set", "workers=2", "--json").lines()

    assert len(lines) == 800
    assert {text[int(str(x["start"])) : int(str(x["end"]))] for x in lines} == {"heart attack", "NYTimes"}
    assert {(x["text"], x["section"]) for x in lines} == {("heart attack", "Chapter"), ("NYTimes", "Chapter")}


def read(content: bytes, kind: PassageFormat | None = None, name: str = "x.txt") -> list[Passage]:
    """The passages of a file with this content."""
    return list(read_passages(io.BytesIO(content), name, kind))


def test_spans_of_a_file_count_as_the_file_does() -> None:
    """Offsets in UTF-16 code units are characters afterwards; a passage without spans has none."""
    spans = '{"text": "🦄 and NYC", "spans": [{"start": 7, "end": 10, "label": "GPE"}]}\n{"text": "NYC"}'

    first, second = read_passages(io.BytesIO(spans.encode()), "x.ndjson", offsets="utf-16")

    assert [(one.start, one.end, one.label) for one in first.ents or ()] == [(6, 9, "GPE")]
    assert second.ents is None


@pytest.mark.parametrize(
    "line, message",
    [
        (b"She read.", r"x.jsonl:2: not JSON \(.*A line looks like this"),
        (b'["text"]', "x.jsonl:2: not an object with a text"),
        (b'{"text": null}', "x.jsonl:2: not an object with a text"),
        (b'{"text": "a", "id": 1.5}', "x.jsonl:2: the id is 1.5. Give a string or an integer"),
        (b'{"text": "a", "spans": 1}', "x.jsonl:2: not an object with a text and spans"),
        (b'{"text": "a", "spans": [[0, 2]]}', "x.jsonl:2: span 0 is from 0 to 2, but the text has 1"),
        (b'{"text": "\xff"}', "x.jsonl:2: not UTF-8"),
        (b"[" * 100_000, r"x.jsonl:2: not JSON"),
        (b"x" * (MAX_LINE_BYTES + 1), "x.jsonl:2: longer than"),
    ],
)
def test_a_bad_line_is_named(line: bytes, message: str) -> None:
    """The error has the path, the line and what to do; the passages before it are read."""
    passages = read_passages(io.BytesIO(b'{"text": "a"}\n' + line + b"\n"), "x.jsonl")

    assert next(passages) == Passage(1, "a")
    with pytest.raises(FormatError, match=message):
        next(passages)


def test_a_whole_file_is_one_passage_and_others_are_read_line_by_line() -> None:
    """Its line ends stay, so that offsets match the file; too long a file is refused. A file of any length takes little
    memory: only the line at hand is read.
    """
    assert read(b"one\r\ntwo\n", "whole") == [Passage(1, "one\r\ntwo\n")]
    with pytest.raises(InputError, match=r"longer than 8,388,608 bytes.*Split it"):
        read(b"x" * (MAX_PASSAGE_BYTES + 1), "whole")

    class Endless(io.BytesIO):
        n_lines = 0

        def readline(self, size: int | None = -1) -> bytes:
            self.n_lines += 1
            return b"a passage\n"

    file = Endless()
    passages: Iterator[Passage] = read_passages(file, "-")

    assert [next(passages).line for _ in range(3)] == [1, 2, 3]
    assert file.n_lines == 3
