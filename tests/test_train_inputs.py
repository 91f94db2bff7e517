"""What the training commands must not write over, and corpora of a base alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cli_runner import Run
from tiny_models import make_bert

from ingest.reader import ReadReport
from training.material import read_examples

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
        "fit --base {model} --aliases {base} --out {model}",
        "head --base {model} --aliases {base} --out {model}",
        "negatives --aliases {base} --model {model} --out {base}",
    ],
)
def test_an_input_is_not_written_over(run: Run, bert: Path, tmp_path: Path, command: str) -> None:
    """A path given twice by mistake costs a message, and not the model or the base."""
    data = tmp_path / "data"
    for name in ("model", "other"):
        shutil.copytree(bert, data / name)
    (data / "base.tsv").write_text(ROWS, encoding="utf-8")
    before = contents(data)
    places = {"model": data / "model", "other": data / "other", "base": data / "base.tsv"}

    done = run("train", *(word.format(**places) for word in command.split()))

    assert done.status == 2, done.err
    assert "is an input of this command" in done.err
    assert contents(data) == before


def test_a_corpus_of_a_base_alone_is_learnt_from(run: Run, tmp_path: Path) -> None:
    """`train corpus --base` without texts leaves entities.jsonl, and that is enough."""
    base, corpus = tmp_path / "base.tsv", tmp_path / "corpus"
    base.write_text(ROWS, encoding="utf-8")
    assert run("train", "corpus", "--base", str(base), "--out", str(corpus)).status == 0

    examples = read_examples([corpus], ReadReport())

    assert {"new york w0", "city 0"} <= {name for example in examples for name in (example.name, *example.others)}
