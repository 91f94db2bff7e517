"""Golden files of the stages that draw nothing: n-grams, hard negatives, and the 8-bit graph of a seeded network.
Golden figures of tiny seeded runs: what a rearrangement of the training code must not change.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from character_models import make_character_encoder, make_trained
from evaluation_data import Letters, make_evaluation_data
from fit_cases import config, fit, maker, new_network, open_tokenizer, read_log, write_corpus
from tiny_models import NAMES, as_sentence_transformers, make_bert

from pearl_qdrant import (
    FitRequest,
    HeadOptions,
    NgramOptions,
    UlrRequest,
    export_checkpoint,
    find_ngrams,
    fit_model,
    train_head,
    train_ulr,
)
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.runtime import torch_runtime
from training.evaluation.data import FolderData
from training.evaluation.methods import EncoderMethod, StringMethod
from training.evaluation.run import as_record, evaluate
from training.evaluation.tasks import TASKS
from training.examples.example import Phrase
from training.hard_negatives import mine_hard_negatives
from training.love import Targets, pretrain
from training.options import EvaluationOptions, LoveConfig

WORDS = "river north lake stone bridge market garden castle forest harbour".split()
NGRAMS: dict[str, tuple[dict[str, Any], str]] = {
    "corpus": ({}, "27e739ae640b02d8"),
    "factor": ({"factor": "none", "min_count": 1}, "3e656258a2906919"),
    "blocks": ({"block_words": 40, "max_per_document": 5}, "2d1a0b1a4d0c9417"),
}
"""Options beside those of all, and the start of the digest of the files."""

NEGATIVES = "344659c41049a788"


@pytest.mark.parametrize("case", list(NGRAMS))
def test_n_grams_of_a_text_are_the_same_files(tmp_path: Path, case: str) -> None:
    """The same text and options give the same files, byte for byte, but for the paths of the options."""
    rng = random.Random(5)
    lines = [". ".join(", ".join(rng.choices(WORDS, k=9)) + " end" for _ in range(4)) for _ in range(30)]
    (tmp_path / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    changes, expected = NGRAMS[case]
    common: dict[str, Any] = {"min_count": 3, "min_pmi": -1.0}
    find_ngrams(tmp_path / "text.txt", tmp_path / "out", NgramOptions(**{**common, **changes}))

    files = sorted(path for path in (tmp_path / "out").iterdir() if path.name != "meta.json")
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    assert digest[:16] == expected


def test_hard_negatives_of_made_names_are_the_same() -> None:
    """Pairs, distances and cosines choose the same negatives in the same order."""
    rng = random.Random(6)
    names = sorted({" ".join(rng.choices(WORDS, k=rng.randint(1, 3))) for _ in range(300)})
    names += [name[:-1] + rng.choice("abc") for name in names]
    phrases = [Phrase(name, (f"e{i % 7}",) if i % 3 else ()) for i, name in enumerate(names)]

    def encode(some: Sequence[str]) -> npt.NDArray[np.float32]:
        seeds = (int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") for name in some)
        vectors = np.stack([np.random.default_rng(seed).normal(size=8) for seed in seeds])
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    found = repr(list(mine_hard_negatives(phrases, encode)))
    assert hashlib.sha256(found.encode()).hexdigest()[:16] == NEGATIVES


def test_the_8_bit_graph_of_a_seeded_network_has_its_vectors(tmp_path: Path) -> None:
    """The first dimensions of a name's vector, by the exported graph."""
    export_checkpoint(make_trained(tmp_path / "trained"), tmp_path / "out", name="golden", names=NAMES)

    vectors = load_encoder(str(tmp_path / "out"), runtime="onnx").encode(NAMES[:2]).vectors
    expected: list[list[float]] = [
        [0.067271, -0.318719, -0.086543, 0.180627, 0.116861],
        [0.091615, -0.373333, -0.066505, 0.128444, 0.085178],
    ]
    np.testing.assert_allclose(vectors[:, :5], expected, atol=1e-3)


GOLDEN = Path(__file__).with_name("golden_runs.json")
TEXT = "The New York Times of the city. Heart attack, aspirin and the post. United states of the heart.\n" * 6
WORDS_GOLDEN_RUNS = tuple("aspirin attack banana carbon castle cattle dragon engine forest garden hammer heart".split())
FITS: dict[str, dict[str, Any]] = {
    "adamw": {"dropout": True},
    "cached": {"cache_gradients": True, "schedule": "cosine"},
    "adam": {"optimizer": "adam", "mask": "none", "freeze_words": False, "decay": 0.9, "decay_every": 2},
}
REQUESTS: dict[str, dict[str, Any]] = {
    "distil": {"distil": "corpus", "learning_rate": 3e-3},
    "paper": {"paper_settings": True, "hard_negatives": "corpus/hard_negative.txt"},
}


def rows_of(folder: Path) -> list[dict[str, float]]:
    """The figures of a run's log, without its times."""
    timed = {"seconds", "waited"}
    return [{name: value for name, value in row.items() if name not in timed} for row in read_log(folder)]


def make_figures(folder: Path) -> dict[str, Any]:
    """All golden figures, by run."""
    bert = make_bert(folder / "bert")
    made: dict[str, Any] = {}
    for name, changes in FITS.items():
        network = new_network(bert)
        fit(network, open_tokenizer(bert), maker(), config(**changes), folder / name)
        assert network.type_head is not None
        made[name] = [rows_of(folder / name), float(network.type_head.weight.detach().norm())]
    encoder = make_character_encoder(bert)
    targets = Targets(
        WORDS_GOLDEN_RUNS, np.random.default_rng(0).normal(size=(len(WORDS_GOLDEN_RUNS), 10)).astype(np.float32)
    )
    tokenizer, love = open_tokenizer(bert), LoveConfig(epochs=3, batch=5, seed=1)
    score = pretrain(encoder, tokenizer, targets, love, folder / "love", progress=False)
    made["love"] = [[row["loss"] for row in read_log(folder / "love")], score.accuracy, score.typo_accuracy]
    return made | make_stages(folder)


def make_stages(folder: Path) -> dict[str, Any]:
    """Golden figures of the stages from files to files."""
    base = as_sentence_transformers(make_bert(folder / "base"))
    write_corpus(folder / "corpus")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    paths = ("distil", "hard_negatives")
    made: dict[str, Any] = {}
    for name, changes in REQUESTS.items():
        located = {key: str(folder / value) if key in paths else value for key, value in changes.items()}
        known = {"base_model": base, "out": folder / f"fit-{name}", "phrases": folder / "corpus", "steps": 4}
        known |= {"batch_size": 16, "device": "cpu", "precision": "fp32", "micro_batch": 8, "seed": 2}
        fit_model(FitRequest(**{**known, **located}))
        made[f"fit-{name}"] = rows_of(folder / f"fit-{name}" / "training")
    for name, more in (("plain", {}), ("hold", {"hold": 2.0, "schedule": "constant"})):
        known = {"base": base, "out": folder / f"ulr-{name}", "texts": folder / "text.txt", "steps": 5}
        known |= {"batch_size": 4, "head_steps": 2, "device": "cpu", "precision": "fp32"}
        train_ulr(UlrRequest(**{**known, **more}))
        made[f"ulr-{name}"] = rows_of(folder / f"ulr-{name}" / "training")
    options = HeadOptions(epochs=2)
    scores = train_head(base, folder / "head", phrases=folder / "corpus", options=options, device="cpu")
    assert scores is not None
    made["head"] = [scores.accuracy, scores.macro_f1, scores.n, scores.f1]
    make_evaluation_data(folder / "data")
    methods = [EncoderMethod(Letters()), StringMethod("jaccard"), StringMethod("tfidf")]
    few = EvaluationOptions(n_seeds=2, n_distractors=3, max_epochs=2)
    report: Any = as_record(evaluate(FolderData(folder / "data"), methods[0], methods[1:], TASKS, few))
    for task in report["tasks"].values():
        del task["seconds"]
    return {**made, "evaluation": report}


@pytest.mark.usefixtures("one_thread")
@pytest.mark.slow
def test_tiny_runs_have_their_golden_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses, rates and scores of every training stage, and the figures of the evaluation, are those of the file, on a
    processor that computes in bfloat16 (a teacher would) and on others.
    """
    monkeypatch.setattr(torch_runtime, "fast_precision", lambda device: "fp32")
    found = json.loads(json.dumps(make_figures(tmp_path)))
    if os.environ.get("PEARL_QDRANT_WRITE_GOLDEN"):
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(figures)}" for name, figures in found.items())
        GOLDEN.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    expected = json.loads(GOLDEN.read_text(encoding="utf-8"))

    assert found.keys() == expected.keys()
    for name, figures in expected.items():
        assert _flat(found[name]) == pytest.approx(_flat(figures), rel=1e-3, abs=1e-5), name


def _flat(value: Any, key: str = "") -> dict[str, float]:
    """Every number below a value, by where it stands."""
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list):
        parts = enumerate(value)  # type: ignore[assignment]
    elif isinstance(value, str):
        parts = enumerate(float(word) for word in value.replace(",", " ").split() if word[0].isdigit())  # type: ignore[assignment]
    else:
        return {} if value is None else {key: float(value)}
    return {place: number for name, part in parts for place, number in _flat(part, f"{key}/{name}").items()}
