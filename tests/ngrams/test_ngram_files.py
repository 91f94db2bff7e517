"""Inputs of `find_ngrams`, what it leaves when it fails, and the files that it writes."""

from __future__ import annotations

import gzip
import json
import math
import random
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import pytest
from cli_runner import Run
from hypothesis import given, settings
from hypothesis import strategies as st
from small_disk import small_disk

from pearl_qdrant.errors import (
    FormatError,
    InputError,
    OptionError,
    PearlQdrantError,
    TooManyErrorsError,
    TrainingError,
)
from training.ngrams import find_ngrams as levels
from training.ngrams.files import (
    MarkedSequence,
    NgramCorpus,
    NgramSpan,
    choose_spans,
    draw_random_span,
    split_sentences,
    word_pattern,
)
from training.ngrams.find_ngrams import find_ngrams
from training.options import NgramOptions

HINDI = "\u0939\u093f\u0928\u094d\u0926\u0940 \u092d\u093e\u0937\u093e"
"""Two words with marks that are no letters."""

TEXTS = [
    "New York is large. The mayor of New, York spoke.",
    "She left New York for S\u00e3o Paulo. Sa\u0303o Paulo is larger!",
    f"{HINDI} \U0001f600 {HINDI}",
]
OPTIONS = NgramOptions(min_count=2, min_pmi=0.0)


def write_texts(path: Path) -> Path:
    """Plain text, JSON Lines or either in gzip, as the name says; with a byte order mark and blank lines."""
    rows = [json.dumps({"id": i, "text": text}) if ".jsonl" in path.name else text for i, text in enumerate(TEXTS)]
    data = "\ufeff".encode() + "".join(f"{row}\r\n\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl"])
def test_each_kind_of_input_gives_the_same_files(tmp_path: Path, name: str) -> None:
    """Plain text, JSON Lines and gzip of the same documents have the same n-grams, byte for byte; composed characters
    and others are one word.
    """
    find_ngrams(write_texts(tmp_path / "a.txt"), tmp_path / "plain", OPTIONS)
    find_ngrams([write_texts(tmp_path / name)], tmp_path / "other", OPTIONS)

    assert contents(tmp_path / "plain") == contents(tmp_path / "other")
    rows = [line.split("\t")[:2] for line in (tmp_path / "plain" / "ngrams.tsv").read_text("utf-8").splitlines()]
    assert rows == [["ngram", "count"], ["new york", "3"], ["s\u00e3o paulo", "2"], [HINDI, "2"]]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["a.txt", name, "plain", "other"])


def test_a_folder_reads_as_what_was_written(tmp_path: Path) -> None:
    """Sequences have their text, document, words and n-grams as they stand there; meta.json has counts."""
    report = find_ngrams(write_texts(tmp_path / "a.jsonl"), tmp_path / "out", OPTIONS)

    corpus = NgramCorpus(tmp_path / "out")
    assert [one.text for one in corpus] == [sentence for text in TEXTS for sentence in split_sentences(text)]
    assert [one.document for one in corpus] == [0, 0, 1, 1, 2]
    assert [one.words for one in corpus] == [len(word_pattern().findall(one.text)) for one in corpus]
    assert corpus.numbers_with_spans().tolist() == [0, 1, 2, 3, 4]
    spans = [[one.text[span.start : span.end] for span in one.spans] for one in corpus]
    places = ["S\u00e3o Paulo", "Sa\u0303o Paulo"]
    assert spans == [["New York"], ["New, York"], ["New York", places[0]], places[1:], [HINDI, HINDI]]
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
    (tmp_path / "in").write_bytes(good + b'{"text": "\\ud800"}\n{"text": 7}\n{"text"\n[1]\n{"text": "\xff"}\n' + good)
    report = find_ngrams(tmp_path / "in", tmp_path / "out", NgramOptions(min_count=2, min_pmi=-9))

    assert report.documents == 2
    assert report.skipped == {"no_text": 2, "not_json": 3}


def test_a_full_disk_is_reported_and_left_as_it_was(tmp_path: Path) -> None:
    """What was written before the disk was full is removed."""
    path = tmp_path / "in.txt"
    path.write_text("".join(f"word{i} other{i}\n" for i in range(9_000)))
    with small_disk(tmp_path / "disk", "256k") as folder:
        with pytest.raises(TrainingError, match="no space is left"):
            find_ngrams(path, folder / "out", NgramOptions(min_count=1))

        assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "name, value",
    [
        *(("max_words", 1), ("max_words", 99), ("min_count", 0), ("max_per_document", 0), ("limit", 0)),
        *(("min_pmi", float("nan")), ("factor", "word")),
    ],
)
def test_an_option_out_of_range_is_named(tmp_path: Path, name: str, value: Any) -> None:
    """Before anything is read."""
    with pytest.raises(OptionError, match=name) as found:
        find_ngrams(tmp_path / "none", tmp_path / "out", NgramOptions(**{name: value}))
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

    corpus = NgramCorpus(tmp_path / "out")
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
    find_ngrams(path, tmp_path / "python", NgramOptions(min_pmi=0.0))

    done = run("train", "ngrams", str(path), str(tmp_path / "out"), "--set", "min_pmi=0")
    assert (done.status, done.err.count("are counted")) == (0, 6)
    assert "3 n-grams; 21 spans in 15 sequences" in done.out
    assert contents(tmp_path / "out") == contents(tmp_path / "python")
    done = run("train", "ngrams", "-", str(tmp_path / "out"), stdin=TEXTS[0].encode())
    assert (done.status, ": 1 documents, " in done.out) == (0, True)
    done = run("train", "ngrams", str(path), str(path))
    assert (done.status, "is a file" in done.err or "is not a directory" in done.err.lower()) == (2, True)


Factor = Literal["length", "none"]
Place = tuple[int, int, int]
"""A sequence, and the first and last word of a span, the last one excluded."""


def naive_ngrams(words: list[str], longest: int) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Every n-gram of one word to `longest`, with its place."""
    for start in range(len(words)):
        for n in range(1, min(longest, len(words) - start) + 1):
            yield start, tuple(words[start : start + n])


def naive_scores(documents: list[list[list[str]]], options: NgramOptions) -> dict[tuple[str, ...], tuple[int, float]]:
    """Count and PMI of each n-gram that is kept, by the formula of section 3.1, word by word."""
    sentences = [sentence for document in documents for sentence in document]
    counts = Counter(ngram for words in sentences for _, ngram in naive_ngrams(words, options.max_words))
    size = sum(map(len, sentences))
    kept = {}
    for ngram, count in counts.items():
        if len(ngram) > 1 and count >= options.min_count:
            pmi = math.log(count / size) - sum(math.log(counts[word,] / size) for word in ngram)
            pmi /= len(ngram) if options.factor == "length" else 1
            if pmi > options.min_pmi:
                kept[ngram] = count, pmi
    return kept


def read_rows(folder: Path) -> dict[str, tuple[int, float]]:
    """Count and PMI of each n-gram of ngrams.tsv."""
    lines = (folder / "ngrams.tsv").read_text("utf-8").splitlines()[1:]
    return {ngram: (int(count), float(pmi)) for ngram, count, pmi in (line.split("\t") for line in lines)}


def write_documents(path: Path, documents: list[list[list[str]]]) -> Path:
    """A document on each line, its sentences ending in full stops and beginning with capitals."""
    rows = (" ".join(" ".join(words).capitalize() + "!" for words in document) for document in documents)
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return path


def places(folder: Path) -> dict[Place, float]:
    """The spans of a folder by their words, with their PMI."""
    found = {}
    corpus = NgramCorpus(folder)
    for number, sequence in enumerate(corpus):
        for span in sequence.spans:
            first = sequence.text[: span.start].count(" ")
            found[number, first, first + span.words] = span.pmi or 0.0
            assert len(sequence.text[span.start : span.end].split()) == span.words
    return found


# No value is at a threshold to the last bit: whether such an n-gram is kept depends on the order of a sum.
CORPORA = st.lists(
    st.lists(st.lists(st.sampled_from("ab bc cd de ef".split()), min_size=1, max_size=9), min_size=1, max_size=4),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("factor", ["length", "none"])
@settings(max_examples=8, deadline=None)
@given(documents=CORPORA, min_count=st.integers(1, 3), block_words=st.sampled_from([40, 1000]))
def test_counts_pmi_and_spans_are_those_of_a_naive_count(
    tmp_path_factory: pytest.TempPathFactory,
    factor: Factor,
    documents: list[list[list[str]]],
    min_count: int,
    block_words: int,
) -> None:
    """Whatever the blocks, partitions and forgotten words, all is as a dictionary of all n-grams would have it."""
    folder = tmp_path_factory.mktemp("ngrams")
    options = NgramOptions(factor=factor, min_count=min_count, min_pmi=0.1234567, block_words=block_words)
    path = write_documents(folder / "in.txt", documents)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(levels, "_PIECE", 7)
        patch.setattr("training.ngrams.files.MAX_CACHED", 2)
        find_ngrams(path, folder / "out", options)

    expected = naive_scores(documents, options)
    rows = {tuple(ngram.split()): row for ngram, row in read_rows(folder / "out").items()}
    assert {ngram: count for ngram, (count, _) in rows.items()} == {ngram: n for ngram, (n, _) in expected.items()}
    assert {ngram: pmi for ngram, (_, pmi) in rows.items()} == pytest.approx(
        {ngram: pmi for ngram, (_, pmi) in expected.items()}, abs=1e-6
    )
    assert places(folder / "out") == pytest.approx(
        {
            (number, start, start + len(ngram)): expected[ngram][1]
            for number, words in enumerate(chain.from_iterable(documents))
            for start, ngram in naive_ngrams(words, 6)
            if ngram in expected
        },
        rel=1e-5,
    )


def test_a_document_keeps_its_best_ngrams(tmp_path: Path) -> None:
    """Of more n-grams than allowed, a document keeps those of highest PMI; the table still has all."""
    words = "one two three four one two five six one two seven eight three four".split()
    path = write_documents(tmp_path / "in.txt", [[words], [["three", "four"]]])
    options = NgramOptions(min_count=1, min_pmi=-10, max_words=2)
    find_ngrams(path, tmp_path / "all", options)
    find_ngrams(path, tmp_path / "best", NgramOptions(min_count=1, min_pmi=-10, max_words=2, max_per_document=2))

    score = {ngram: pmi for ngram, (_, pmi) in read_rows(tmp_path / "all").items()}
    assert (tmp_path / "all" / "ngrams.tsv").read_bytes() == (tmp_path / "best" / "ngrams.tsv").read_bytes()
    corpus = NgramCorpus(tmp_path / "best")
    first, second = corpus
    kept = {first.text[span.start : span.end].lower() for span in first.spans}
    assert kept == set(sorted(score, key=lambda ngram: -score[ngram])[:2])
    assert [span.pmi for span in second.spans] == [pytest.approx(score["three four"])]


def test_memory_does_not_grow_with_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times the text, with four times the distinct words, takes the memory of one."""
    monkeypatch.setattr(levels, "_PIECE", 500)
    monkeypatch.setattr("training.ngrams.files.MAX_CACHED", 250)
    monkeypatch.setattr("ingest.io.streams.CHUNK", 1 << 12)
    peaks = []
    options = NgramOptions(min_count=1, min_pmi=-99, block_words=500, max_words=2)
    # The first for what any first call keeps; twice each, since threads of other tests may take memory meanwhile.
    for n_documents in (10, 20, 20, 80, 80):
        path = tmp_path / f"{n_documents}.txt"
        path.write_text("".join(" ".join(f"w{i}x{k // 2}" for k in range(80)) + "\n" for i in range(n_documents)))
        tracemalloc.start()
        find_ngrams(path, tmp_path / "out", options)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    assert min(peaks[3:]) < 1.2 * min(peaks[1:3])


TEXT = "The New York Times of New York"
TIMES = NgramSpan(4, 18, 3, 3.0)
CITY = NgramSpan(4, 12, 2, 2.5)
AGAIN = NgramSpan(22, 30, 2, 2.5)
NAME = NgramSpan(13, 18, 1, 1.0)
WHOLE = NgramSpan(0, 30, 7, 9.0)
MARKED = MarkedSequence(TEXT, (WHOLE, CITY, TIMES, NAME, AGAIN), 7)
NONE = MarkedSequence("Paris", (NgramSpan(0, 5, 1, 1.0),), 1)


def test_the_ngram_of_the_lowest_score_is_chosen() -> None:
    """All n-grams of all sequences are scored in one call; of equal scores the first counts, and NaN never does."""
    calls = []

    def score(texts: Sequence[str], spans: Sequence[tuple[int, int]]) -> list[float]:
        calls.append([text[start:end] for text, (start, end) in zip(texts, spans, strict=True)])
        return [float("nan"), 0.2, 0.1, 0.1]

    chosen = choose_spans([NONE, MARKED], "lowest_score", rng=random.Random(0), score=score)
    assert chosen == [None, NAME]
    assert calls == [["New York", "New York Times", "Times", "New York"]]
    assert choose_spans([NONE], "lowest_score", rng=random.Random(0), score=score) == [None]


def test_an_ngram_is_drawn_at_random() -> None:
    """Each n-gram that leaves a rest is as likely as another."""
    rng = random.Random(1)
    drawn = Counter(choose_spans([MARKED] * 4000, "random_ngram", rng=rng))

    assert drawn.keys() == {CITY, TIMES, NAME, AGAIN}
    assert all(900 < count < 1100 for count in drawn.values())
    assert choose_spans([NONE], "random_ngram", rng=rng) == [None]


def test_random_spans_have_geometric_lengths() -> None:
    """Lengths follow the geometric distribution with 0.2, cut off after 6 words and where nothing is left for the rest;
    each place is as likely.
    """
    text = " ".join(f"w{i}" for i in range(10))
    rng, n = random.Random(2), 5_000
    spans = [draw_random_span(text, rng) for _ in range(n)]
    lengths = Counter(span.words for span in spans if span)
    whole = 1 - 0.8**6

    assert sorted(lengths) == [1, 2, 3, 4, 5, 6]
    for words, count in lengths.items():
        assert count / n == pytest.approx(0.2 * 0.8 ** (words - 1) / whole, abs=0.02)
    firsts = Counter(span.start for span in spans if span and span.words == 1)
    assert len(firsts) == 10
    assert all(len(text[span.start : span.end].split()) == span.words for span in spans if span)
    assert draw_random_span("Paris!", rng) is None
    assert {draw_random_span("New York!", rng) for _ in range(20)} == {NgramSpan(0, 3, 1), NgramSpan(4, 8, 1)}
    assert choose_spans([NONE], "random_span", rng=rng) == [None]
