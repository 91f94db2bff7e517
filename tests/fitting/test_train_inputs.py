"""Inputs of the training commands: they are never overwritten, and keys of entities are distinct."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cli_runner import Run
from tiny_models import make_bert

from ingest.io.report import ReadReport
from training.examples.files import read_examples, read_training_files

ROWS = "id\tname\taliases\n" + "".join(f"Q{i}\tnew york w{i}\tcity {i}\n" for i in range(6))


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny plain encoder."""
    return make_bert(tmp_path_factory.mktemp("bert") / "bert")


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "command",
    [
        "average {model} {other} {model}",
        "average {model} {other} {other}",
        "export {model} {model}",
        "love {model} {model}",
        "fit --base-model {model} --aliases {base} --out {model}",
        "head --base-model {model} --aliases {base} --out {model}",
        "negatives --aliases {base} --model {model} --out {base}",
    ],
)
def test_an_input_is_not_written_over(run: Run, bert: Path, tmp_path: Path, command: str) -> None:
    """A path given twice by mistake gives an error, and the model or base is not lost."""
    data = tmp_path / "data"
    for name in ("model", "other"):
        shutil.copytree(bert, data / name)
    (data / "base.tsv").write_text(ROWS, encoding="utf-8")
    before = contents(data)
    places = {"model": data / "model", "other": data / "other", "base": data / "base.tsv"}

    done = run("train", *(word.format(**places) for word in command.split()))

    assert done.status == 2, done.err
    assert "is an input of this run" in done.err
    assert contents(data) == before


def test_a_wordnet_that_is_not_there_is_reported(run: Run, bert: Path, tmp_path: Path) -> None:
    """`train fit --wordnet` of a folder without one."""
    (tmp_path / "base.tsv").write_text(ROWS, encoding="utf-8")
    words = ["--base-model", str(bert), "--aliases", str(tmp_path / "base.tsv"), "--out", str(tmp_path / "out")]

    done = run("train", "fit", *words, "--steps", "1", "--wordnet", str(tmp_path / "none"))
    assert done.status == 1
    assert "is not a WordNet folder" in done.err


def test_a_corpus_of_a_base_alone_can_be_learnt_from(run: Run, tmp_path: Path) -> None:
    """`train corpus --base` without texts writes entities.jsonl, and that is enough."""
    base, corpus = tmp_path / "base.tsv", tmp_path / "corpus"
    base.write_text(ROWS, encoding="utf-8")
    assert run("train", "corpus", "--base", str(base), "--out", str(corpus)).status == 0

    examples = read_examples([corpus], ReadReport())

    assert {"new york w0", "city 0"} <= {name for example in examples for name in (example.name, *example.others)}


def paris_and_insulin(folder: Path) -> tuple[Path, Path]:
    """Two bases with one file name, in which "1" is not the same entity."""
    for place, row in (("a", "1\tParis\tCity of Light\n"), ("b", "1\tInsulin\tHumulin\n")):
        (folder / place).mkdir()
        (folder / place / "names.tsv").write_text(f"id\tname\taliases\n{row}", encoding="utf-8")
    return folder / "a" / "names.tsv", folder / "b" / "names.tsv"


def test_bases_of_one_file_name_share_no_entity(tmp_path: Path) -> None:
    """Entity 1 of a/names.tsv and entity 1 of b/names.tsv are two; given twice, a base is one."""
    first, second = paris_and_insulin(tmp_path)
    again = first.parent / ".." / "a" / "names.tsv"

    examples = read_training_files((), (first, second, again), min_count=1, max_errors=0)

    keys = {example.name: example.entity for example in examples}
    assert keys["Paris"] != keys["Insulin"]
    assert len({example.entity for example in examples if example.name == "Paris"}) == 1


def test_corpora_of_bases_of_one_file_name_share_no_entity(run: Run, tmp_path: Path) -> None:
    """Corpora keep their bases apart too; a corpus and its base share their entities."""
    first, second = paris_and_insulin(tmp_path)
    for base in (first, second):
        out = base.with_name("corpus")
        assert run("train", "corpus", "--base", str(base), "--out", str(out)).status == 0
    corpora = (first.with_name("corpus"), second.with_name("corpus"))

    examples = read_training_files(corpora, (first,), min_count=1, max_errors=0)

    keys: dict[str, set[str]] = {}
    for example in examples:
        keys.setdefault(example.name, set()).add(example.entity)
    assert len(keys["Paris"]) == len(keys["Insulin"]) == 1
    assert keys["Paris"] != keys["Insulin"]


def test_a_base_called_name_shares_no_key_with_phrases(tmp_path: Path) -> None:
    """The keys of phrases begin with "name:"; a base in name.tsv has others."""
    base, phrases = tmp_path / "name.tsv", tmp_path / "freq_phrase.txt"
    base.write_text("id\tname\taliases\nparis\tInsulin\tHumulin\n", encoding="utf-8")
    phrases.write_text("NP__Paris\t7\n", encoding="utf-8")

    examples = read_training_files((phrases,), (base,), min_count=1, max_errors=0)

    assert len({example.entity for example in examples}) == 2
