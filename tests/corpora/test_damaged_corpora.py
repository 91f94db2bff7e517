"""What training reads besides models, damaged: a row that is none is skipped, and a file that is none is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from cli_runner import Run
from safetensors.numpy import save_file
from tiny_models import make_bert
from tiny_wordnet import make_sentence_wordnet

from ingest.io.report import ReadReport
from ingest.io.streams import Source
from pearl_qdrant.errors import FormatError, TrainingError
from training.augment.variants import read_vectors
from training.corpus.chunking import Lexicon
from training.evaluation.data import _type_name
from training.examples.files import parse_negatives, parse_variants, read_entities, read_frequencies, read_texts
from training.examples.wordnet import read_synsets
from training.loop.training_loop import load_state

DEEP = '{"phrase":' * 100_000


@pytest.mark.parametrize("count", ["9" * 5000, "\u00b2", "many", ""])
def test_a_count_that_is_none_is_skipped(tmp_path: Path, count: str) -> None:
    """Five thousand digits or a superscript are not a number of occurrences; the next row is read."""
    path = tmp_path / "freq_phrase.txt"
    path.write_text(f"NP__new york\t{count}\nNP__aspirin\t3\n", encoding="utf-8")
    report = ReadReport()

    assert list(read_frequencies(path, report)) == [("aspirin", "NP", 3)]
    assert report.n_skipped == 1


def texts(path: Path, report: ReadReport) -> Iterator[str]:
    """The texts of JSON Lines."""
    return read_texts(Source(path), report)


@pytest.mark.parametrize("read, row", [(read_entities, '{"entity":"a:1","names":["b"]}'), (texts, '{"text":"b"}')])
def test_a_row_nested_without_end_is_skipped(
    tmp_path: Path, read: Callable[[Path, ReadReport], Iterator[object]], row: str
) -> None:
    """A row of a hundred thousand brackets is one bad row."""
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{row}\n{DEEP}\n{row}\n", encoding="utf-8")
    report = ReadReport()

    assert len(list(read(path, report))) == 2
    assert report.n_skipped == 1


def test_variants_and_negatives_nested_without_end_are_none() -> None:
    """Likewise in the files that `train synonyms`, `train paraphrase` and `train negatives` write."""
    assert parse_variants(DEEP) is None
    assert parse_negatives(DEEP) is None


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\n",
        b"a line of something else\n",
        b"00001740 03 n zz entity 0 000 | x\n",
        b"00001740 03 n 01 entity 0 003 @ 1 n 0000 | x\n",
    ],
)
def test_a_line_of_wordnet_that_is_none_is_named(tmp_path: Path, line: bytes) -> None:
    """Every reader of WordNet names the file and the line."""
    folder = make_sentence_wordnet(tmp_path / "wordnet")
    before = (folder / "data.noun").read_bytes()
    (folder / "data.noun").write_bytes(before + line)
    n_lines = before.count(b"\n") + 1

    for read in (lambda: list(read_synsets(folder)), lambda: Lexicon(folder)):
        with pytest.raises(FormatError, match=f"data.noun:{n_lines}: is not a line of WordNet"):
            read()


def test_a_sense_of_no_part_of_speech_is_reported(tmp_path: Path) -> None:
    """WordNet's counts are read too."""
    folder = make_sentence_wordnet(tmp_path / "wordnet")
    (folder / "cntlist.rev").write_text("entity%9:03:00:: 1 7\n", encoding="utf-8")

    with pytest.raises(FormatError, match="cannot be read as WordNet"):
        Lexicon(folder)


def test_a_wordnet_that_is_not_there_is_reported(run: Run, tmp_path: Path) -> None:
    """`train fit --wordnet` of a folder without one."""
    base = tmp_path / "base.tsv"
    base.write_text("id\tname\taliases\n1\tnew york\tcity\n2\taspirin\tdrug\n", encoding="utf-8")
    bert, out = make_bert(tmp_path / "bert"), tmp_path / "out"
    words = ["--base-model", str(bert), "--aliases", str(base), "--steps", "1", "--out", str(out)]

    done = run("train", "fit", *words, "--wordnet", str(tmp_path / "none"))
    assert done.status == 1
    assert "is not a WordNet folder" in done.err


def test_a_header_of_word_vectors_that_no_file_has_is_a_row(tmp_path: Path) -> None:
    """Two numbers of five thousand digits are not a header."""
    path = tmp_path / "x.vec"
    path.write_text(f"{'9' * 5000} {'9' * 5000}\n", encoding="utf-8")

    with pytest.raises(FormatError, match="expected 1 finite numbers"):
        read_vectors(path)


def test_a_label_that_is_no_number_stays_as_it_is() -> None:
    """Benchmarks give types by name or by number."""
    names = "pearl_bench/conll2003.tsv"

    assert [_type_name(names, label) for label in ("0", "LOC", "3", "\u00b2")] == ["PER", "LOC", "3", "\u00b2"]


@pytest.mark.parametrize(
    "metadata, name",
    [
        ({}, "a"),
        ({"step": "1", "identity": "[1]"}, "a"),
        ({"step": "1", "identity": "7"}, "a"),
        ({"step": "1", "identity": "[" * 100_000}, "a"),
        ({"step": "1", "identity": "{}"}, "optimizer.first.exp_avg"),
    ],
)
def test_a_state_of_something_else_is_refused(tmp_path: Path, metadata: dict[str, str], name: str) -> None:
    """A state.safetensors that no run wrote is named, with what to do."""
    import torch

    network = torch.nn.Linear(2, 2)
    path = tmp_path / "state.safetensors"
    save_file({name: np.zeros(2, dtype=np.float32)}, path, metadata=metadata)

    with pytest.raises(TrainingError, match="not the state of a training run"):
        load_state(path, network=network, optimizer=torch.optim.Adam(network.parameters()), identity={})
