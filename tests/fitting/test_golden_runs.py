"""Golden figures of tiny seeded runs: what a rearrangement of the training code must not change."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from character_models import make_character_encoder
from evaluation_data import Letters, make_evaluation_data
from fit_cases import config, maker, new_network, open_tokenizer, write_corpus
from tiny_models import as_sentence_transformers, make_bert

from pearl_qdrant import FitRequest, HeadOptions, UlrRequest, fit_model, train_head, train_ulr
from training.evaluation.data import FolderData
from training.evaluation.methods import EncoderMethod, StringMethod
from training.evaluation.registry import TASKS
from training.evaluation.run import as_record, evaluate
from training.finetune.objective import fit
from training.love import Targets, pretrain
from training.options import EvaluationOptions, LoveConfig
from training.training_loop import read_log

GOLDEN = Path(__file__).with_name("golden_runs.json")
TEXT = "The New York Times of the city. Heart attack, aspirin and the post. United states of the heart.\n" * 6
WORDS = tuple("aspirin attack banana carbon castle cattle dragon engine forest garden hammer heart".split())
FITS: dict[str, dict[str, Any]] = {
    "adamw": {"dropout": True, "evaluate_every": 3},
    "cached": {"cache_gradients": True, "objective": "multi-similarity", "schedule": "cosine"},
    "adam": {"optimizer": "adam", "mask": "none", "freeze_words": False, "decay": 0.9, "decay_every": 2},
}
REQUESTS: dict[str, dict[str, Any]] = {
    "teacher": {"teacher": "base", "distil": "corpus", "distil_misspelt": 0.5},
    "ulr": {"misad_weight": 30.0, "mlm_weight": 0.5, "texts": "text.txt", "text_batch": 4, "dropout": True},
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
        scored = {"evaluate": lambda step, network: {"norm": float(network.type_head.weight.norm())}}
        settings = config(**{"evaluate_every": 2, **changes})
        fit(new_network(bert), open_tokenizer(bert), maker(), settings, folder / name, **scored)  # type: ignore[arg-type]
        made[name] = [rows_of(folder / name), (folder / name / "evaluation.csv").read_text()]
    encoder = make_character_encoder(bert)
    targets = Targets(WORDS, np.random.default_rng(0).normal(size=(len(WORDS), 10)).astype(np.float32))
    tokenizer, love = open_tokenizer(bert), LoveConfig(epochs=3, batch=5, seed=1)
    score = pretrain(encoder, tokenizer, targets, love, folder / "love", progress=False)
    made["love"] = [[row["loss"] for row in read_log(folder / "love")], score.accuracy, score.typo_accuracy]
    return made | make_stages(folder)


def make_stages(folder: Path) -> dict[str, Any]:
    """Golden figures of the stages from files to files."""
    base = as_sentence_transformers(make_bert(folder / "base"))
    write_corpus(folder / "corpus")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    paths = ("texts", "distil", "hard_negatives", "teacher")
    made: dict[str, Any] = {}
    for name, changes in REQUESTS.items():
        located = {key: str(folder / value) if key in paths else value for key, value in changes.items()}
        known = {"base_model": base, "out": folder / f"fit-{name}", "phrases": folder / "corpus", "steps": 4}
        known |= {"batch_size": 16, "device": "cpu", "precision": "fp32", "micro_batch": 8, "seed": 2}
        fit_model(FitRequest(**{**known, **located}))
        made[f"fit-{name}"] = rows_of(folder / f"fit-{name}" / "training")
    for name, more in (("plain", {}), ("hold", {"hold": 2.0, "mlm_on_rest": True, "schedule": "constant"})):
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
def test_tiny_runs_have_their_golden_figures(tmp_path: Path) -> None:
    """Losses, rates and scores of every training stage, and the figures of the evaluation, are those of the file."""
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
