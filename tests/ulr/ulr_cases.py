"""Tiny models with an MLM head, texts, and runs of ULR training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from tiny_models import make_albert, make_bert, make_roberta

from training.ulr.drawing import Views, make_views, open_masking, tokenise
from training.ulr.request import UlrConfig
from training.ulr.train_ulr import UlrBase, open_ulr_base

SENTENCES = [
    "The New York Times of the city of New York",
    "heart attack, aspirin and the post",
    "united states of the heart",
    "The city post united new york times post",
    "aspirin of the united states",
]

_CLASSES = {
    "bert": "Bert",
    "albert": "Albert",
    "electra": "Electra",
    "roberta": "Roberta",
    "distilbert": "DistilBert",
    "mpnet": "MPNet",
}


def make_encoder(folder: Path, kind: str) -> Path:
    """A tiny encoder of a family without an MLM head."""
    if kind == "albert":
        return make_albert(folder)
    if kind == "roberta":
        return make_roberta(folder)
    make_bert(folder)
    if kind != "bert":
        _save(folder, f"{_CLASSES[kind]}Model")
    return folder


def make_masked_lm(folder: Path, kind: str) -> Path:
    """A tiny encoder of a family with its MLM head, as transformers writes it."""
    make_encoder(folder, kind)
    _save(folder, f"{_CLASSES[kind]}ForMaskedLM")
    return folder


def _save(folder: Path, name: str) -> None:
    """Replace the model of a folder by a random one of another class."""
    config = json.loads((folder / "config.json").read_text())
    if name.startswith("Electra"):
        config["embedding_size"] = 16
    family = name.removesuffix("ForMaskedLM").removesuffix("Model")
    known = {key: value for key, value in config.items() if key not in ("architectures", "model_type")}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = getattr(transformers, name)(getattr(transformers, f"{family}Config")(**known))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.15)
    model.save_pretrained(folder)


def open_base(folder: Path, **changes: Any) -> UlrBase:
    """The encoder of a folder."""
    return open_ulr_base(str(folder), **{"pooling": None, "seed": 0, **changes})


def config(**changes: Any) -> UlrConfig:
    """Six quick steps."""
    known: dict[str, Any] = {"steps": 6, "batch_size": 4, "learning_rate": 1e-3, "save_every": 2}
    known |= {"micro_batch": 3, "precision": "fp32"}
    return UlrConfig(**{**known, **changes})


def views_of(base: UlrBase, *, seed: int = 0) -> list[Views]:
    """The sentences with an n-gram each, but for the last one."""
    import numpy as np

    masking = open_masking(base.tokenizer, share=0.3)
    sequences = tokenise(base.tokenizer, SENTENCES, prefix=base.model.prefix, max_tokens=40)
    spans = [(4, 12), (0, 12), (7, 13), (4, 15)]
    chosen = [one.token_span(span) for one, span in zip(sequences, spans, strict=False)]
    rng = np.random.default_rng(seed)
    return [make_views(one, span, masking, rng) for one, span in zip(sequences, [*chosen, None], strict=True)]


def write_text(path: Path, n_lines: int = 12) -> Path:
    """A text with two sentences on each line."""
    lines = [f"{SENTENCES[i % 5].capitalize()} w{i}. {SENTENCES[(i + 2) % 5].capitalize()}." for i in range(n_lines)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
