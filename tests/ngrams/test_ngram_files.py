"""Inputs of `find_ngrams`, what it leaves when it fails, and the files that it writes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from cli_runner import Run
from small_disk import small_disk

from pearl_qdrant import NgramOptions, find_ngrams
from pearl_qdrant.errors import (
    FormatError,
    InputError,
    OptionError,
    PearlQdrantError,
    TooManyErrorsError,
    TrainingError,
)
from training.ngrams.files import NgramCorpus, split_sentences, word_pattern

HINDI = "\u0939\u093f\u0928\u094d\u0926\u0940 \u092d\u093e\u0937\u093e"
"""Two words with marks that are no letters."""

TEXTS = [
    "New York is large. The mayor of New York spoke.",
    "She left New York for S\u00e3o Paulo. S\u00e3o Paulo is larger!",
    f"{HINDI} \U0001f600 {HINDI}",
]
OPTIONS = NgramOptions(min_count=2, threshold=0.0)


def write_texts(path: Path) -> Path:
    """Plain text, JSON Lines or either in gzip, as the name says."""
    rows = [json.dumps({"id": i, "text": text}) if ".jsonl" in path.name else text for i, text in enumerate(TEXTS)]
    data = "".join(f"{row}\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl", "a.jsonl.gz"])
def test_each_kind_of_input_gives_the_same_files(tmp_path: Path, name: str) -> None:
    """Plain text, JSON Lines and gzip of the same documents have the same n-grams, byte for byte."""
    find_ngrams(write_texts(tmp_path / "a.txt"), tmp_path / "plain", OPTIONS)
    find_ngrams([write_texts(tmp_path / name)], tmp_path / "other", OPTIONS)

    assert contents(tmp_path / "plain") == contents(tmp_path / "other")
    rows = [line.split("\t")[:2] for line in (tmp_path / "plain" / "ngrams.tsv").read_text("utf-8").splitlines()]
    assert rows == [["ngram", "count"], ["new york", "3"], ["s\u00e3o paulo", "2"], [HINDI, "2"]]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["a.txt", name, "plain", "other"])


def test_a_folder_reads_as_what_was_written(tmp_path: Path) -> None:
    """Sequences have their text, document, words and n-grams, and meta.json has the counts."""
    report = find_ngrams(write_texts(tmp_path / "a.jsonl"), tmp_path / "out", OPTIONS)

    with NgramCorpus(tmp_path / "out") as corpus:
        assert [one.text for one in corpus] == [sentence for text in TEXTS for sentence in split_sentences(text)]
        assert [one.document for one in corpus] == [0, 0, 1, 1, 2]
        assert [one.words for one in corpus] == [len(word_pattern().findall(one.text)) for one in corpus]
        assert corpus.numbers_with_spans().tolist() == [0, 1, 2, 3, 4]
        assert [len(one.spans) for one in corpus] == [1, 1, 2, 1, 2]
        assert corpus.meta["ngrams"] == {"2": 3}
    assert (report.documents, report.sequences, report.spans, report.marked_sequences) == (3, 5, 7, 5)
    assert report.words == sum(len(word_pattern().findall(text)) for text in TEXTS)


@pytest.mark.parametrize(
    "data, error, message",
    [
        (b"", FormatError, "empty"),
        (gzip.compress(b"new york\n" * 9000)[:-20], FormatError, "ends early: the file is truncated"),
        (b'{"text": "new york"}\n{"text": \n', TooManyErrorsError, r"in:2: not_json"),
        (b'{"text": "new york"}\n{"text": 5}\n', TooManyErrorsError, r"in:2: no_text"),
        (b'{"title": "new york"}\n' * 3, InputError, "in:1: no_text"),
        (b"\xff\xfe\x00a", FormatError, "in"),
        (b"... !\n--\n", InputError, "no text has a word"),
    ],
)
def test_bad_input_is_named_and_leaves_nothing(
    tmp_path: Path, data: bytes, error: type[PearlQdrantError], message: str
) -> None:
    """The error has the file and, where there is one, the line; an older result stays as it was."""
    find_ngrams(write_texts(tmp_path / "a.txt"), tmp_path / "out", OPTIONS)
    before = contents(tmp_path / "out")
    (tmp_path / "in").write_bytes(data)

    with pytest.raises(error, match=message):
        find_ngrams(tmp_path / "in", tmp_path / "out", NgramOptions(max_errors=0))
    assert contents(tmp_path / "out") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "in", "out"]


def test_bad_rows_are_skipped_up_to_a_number(tmp_path: Path) -> None:
    """Lone surrogates, numbers and broken rows are counted by reason."""
    good = b'{"text": "new york new york"}\n'
    (tmp_path / "in").write_bytes(good + b'{"text": "\\ud800"}\n{"text": 7}\n{"text"\n' + good)
    report = find_ngrams(tmp_path / "in", tmp_path / "out", NgramOptions(min_count=2, threshold=-9))

    assert report.documents == 2
    assert report.skipped == {"no_text": 1, "not_json": 2}


def test_a_full_disk_is_reported_and_left_as_it_was(tmp_path: Path) -> None:
    """What was written before the disk was full is removed."""
    path = tmp_path / "in.txt"
    path.write_text("".join(f"word{i} other{i}\n" for i in range(9_000)))
    with small_disk(tmp_path / "disk", "256k") as folder:
        with pytest.raises(TrainingError, match="no space is left"):
            find_ngrams(path, folder / "out", NgramOptions(min_count=1))

        assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "options, name",
    [
        (NgramOptions(max_words=1), "max_words"),
        (NgramOptions(max_words=99), "max_words"),
        (NgramOptions(min_count=0), "min_count"),
        (NgramOptions(max_per_document=0), "max_per_document"),
        (NgramOptions(limit=0), "limit"),
        (NgramOptions(threshold=float("nan")), "threshold"),
        (NgramOptions(factor="word"), "factor"),  # type: ignore[arg-type]
    ],
)
def test_an_option_out_of_range_is_named(tmp_path: Path, options: NgramOptions, name: str) -> None:
    """Before anything is read."""
    with pytest.raises(OptionError, match=name) as found:
        find_ngrams(tmp_path / "none", tmp_path / "out", options)
    assert found.value.option == name


def test_out_must_be_a_folder(tmp_path: Path) -> None:
    """A file of that name is not replaced."""
    path = write_texts(tmp_path / "a.txt")
    with pytest.raises(OptionError, match="is a file"):
        find_ngrams(path, path)
    find_ngrams(path, tmp_path / "done", OPTIONS)
    with pytest.raises(OptionError, match="is an input"):
        find_ngrams(tmp_path / "done" / "sequences.txt", tmp_path / "done", OPTIONS)
    with pytest.raises(OptionError, match="nothing to read"):
        find_ngrams([], tmp_path / "out")


def test_an_incomplete_folder_is_refused(tmp_path: Path) -> None:
    """A missing file, or one of another version, is named."""
    find_ngrams(write_texts(tmp_path / "a.txt"), tmp_path / "out", OPTIONS)
    whole = contents(tmp_path / "out")
    (tmp_path / "out" / "meta.json").write_text('{"version": 0}')
    with pytest.raises(FormatError, match="is not of version"):
        NgramCorpus(tmp_path / "out")
    (tmp_path / "out" / "meta.json").write_bytes(whole["meta.json"])
    for name in whole.keys() - {"ngrams.tsv"}:
        (tmp_path / "out" / name).unlink()
        with pytest.raises(FormatError, match=f"{name}: does not exist"):
            NgramCorpus(tmp_path / "out")
        (tmp_path / "out" / name).write_bytes(whole[name])


def test_long_sentences_are_cut_and_documents_are_not(tmp_path: Path) -> None:
    """No word is lost, and no sequence has more words than allowed; a document may be longer than a block."""
    words = [f"w{i % 7}" for i in range(50)]
    (tmp_path / "in.txt").write_text((" ".join(words) + "\n") * 2)
    report = find_ngrams(tmp_path / "in.txt", tmp_path / "out", NgramOptions(max_sequence_words=8, block_words=20))

    with NgramCorpus(tmp_path / "out") as corpus:
        assert " ".join(one.text for one in corpus).split() == words * 2
        assert [one.words for one in corpus] == ([8] * 6 + [2]) * 2
        assert [one.document for one in corpus] == [0] * 7 + [1] * 7
    assert report.documents == 2


def test_sentences_end_where_they_should() -> None:
    """Abbreviations and initials do not end a sentence; line ends, questions and numbers do."""
    text = 'Dr. J. Smith of St. Louis came in 1999. "Why?" he asked. Then e.g. this.\nA title\u2028Next (really!) one.'
    assert list(split_sentences(text)) == [
        "Dr. J. Smith of St. Louis came in 1999.",
        '"Why?" he asked.',
        "Then e.g. this.",
        "A title",
        "Next (really!) one.",
    ]


def test_the_command_does_what_the_call_does(run: Run, tmp_path: Path) -> None:
    """`train ngrams` writes the same files, prints the counts, and names its flags in errors."""
    path = tmp_path / "a.txt"
    path.write_text("\n".join(TEXTS * 3), "utf-8")
    find_ngrams(path, tmp_path / "python", NgramOptions(threshold=0.0))

    done = run("train", "ngrams", str(path), str(tmp_path / "out"), "--threshold", "0")
    assert (done.status, done.err.count("are counted")) == (0, 6)
    assert "3 n-grams; 21 spans in 15 sequences" in done.out
    assert contents(tmp_path / "out") == contents(tmp_path / "python")
    done = run("train", "ngrams", "-", str(tmp_path / "out"), "--json", stdin=TEXTS[0].encode())
    assert done.status == 0
    assert done.lines()[0]["documents"] == 1
    done = run("train", "ngrams", str(path), str(path))
    assert (done.status, "is a file" in done.err or "is not a directory" in done.err.lower()) == (2, True)
