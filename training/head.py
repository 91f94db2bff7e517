"""A type head fitted on a frozen encoder: what `pearl-qdrant train head` does.

It is a softmax regression on phrase vectors with the marginal type loss. Each name is encoded once, which is most of
the cost: an epoch over 200,000 vectors takes a few seconds. A tenth of the names, chosen by their hash, is held out to
measure the head on names that it never saw.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pearl_qdrant.encoder.runtime.torch_runtime import new_type_head
from pearl_qdrant.errors import OptionError
from pearl_qdrant.phrase_types import ENTITY_TYPES, LEXICAL_CLASSES, PHRASE_TYPES
from pearl_qdrant.progress import counting_bar
from pearl_qdrant.settings import DEFAULT_DEVICE
from training.evaluation.tasks.classification import TypeScores, score_predictions
from training.examples.example import TEST_SPLITS, Example, as_noun_phrase, count_labels, name_key, split_of
from training.examples.files import phrase_key, read_training_files
from training.finetune.losses import marginal_type_loss
from training.networks.checkpoints import BaseModel, find_device, open_base_model, write_network
from training.networks.phrase_vectors import pool_phrases
from training.options import HeadOptions, Paths, StrPath, TrainingEvents, as_paths, refuse_overwriting
from training.training_loop import LossRecord, Objective, TrainingLoop


def score_types(logits: Tensor, types: Sequence[set[str]]) -> TypeScores:
    """Score the argmax of the marginal of logits, (n, 95), over lexical classes; each of a name's types counts as
    right.
    """
    probabilities = logits.softmax(dim=1).reshape(-1, len(LEXICAL_CLASSES), len(ENTITY_TYPES))
    predicted = [ENTITY_TYPES[i] for i in torch.argmax(probabilities.sum(1), dim=1).tolist()]
    return score_predictions(predicted, types)


class HeadObjective(Objective):
    """The marginal type loss of a linear layer; `draw` draws the rows of a batch, the rest is as for `fit_head`."""

    record = LossRecord

    def __init__(
        self, head: nn.Linear, vectors: Tensor, allowed: Tensor, draw: Callable[[], Tensor], steps: int, rate: float
    ) -> None:
        self.network, self._vectors, self._allowed, self._draw, self._steps = head, vectors, allowed, draw, steps
        self.optimizer = torch.optim.AdamW(head.parameters(), lr=rate, weight_decay=1e-3)

    def batches(self, steps: range) -> Iterator[Tensor]:
        return (self._draw() for _ in steps)

    def rate(self, step: int, factor: float) -> float:
        """Half a cosine from the peak to zero."""
        peak: float = self.optimizer.defaults["lr"]
        return peak * (1 + math.cos(math.pi * (step - 1) / self._steps)) / 2

    def backward(self, step: int, batch: Tensor) -> dict[str, Tensor]:
        loss = marginal_type_loss(self.network(self._vectors[batch]), self._allowed[batch])
        torch.autograd.backward(loss)
        return {"loss": loss.detach()}


def fit_head(
    vectors: Tensor,  # phrase vectors before normalisation, (n, dim)
    allowed: Tensor,  # (n, 95) bool, the phrase types that are right
    *,
    weights: Tensor,  # (n,), relative frequency with which an example is drawn; balances rare types
    epochs: int,  # passes: n examples are drawn per epoch
    batch: int = 1024,  # examples per step
    learning_rate: float = 3e-3,  # peak; falls to zero as a cosine
    generator: torch.Generator,  # determines the order and the initial weights
) -> nn.Linear:
    """Fit W of Eq. 1. Returns the head, dim -> 95, without a bias."""
    head = new_type_head(vectors.shape[1])
    nn.init.normal_(head.weight, std=0.02, generator=generator)
    steps = max(1, epochs * len(vectors) // batch)
    draw = partial(torch.multinomial, weights, batch, replacement=True, generator=generator)
    objective = HeadObjective(head, vectors, allowed, draw, steps, learning_rate)
    TrainingLoop(name="head", objective=objective, steps=steps, progress=False).run()
    return head.eval()


def label_matrix(examples: Sequence[Example]) -> Tensor:
    """Return which phrase types are right for each example, (n, 95) bool."""
    allowed = torch.zeros(len(examples), len(PHRASE_TYPES), dtype=torch.bool)
    for i, example in enumerate(examples):
        allowed[i, list(example.allowed)] = True
    return allowed


_BALANCE = 0.5  # 0 draws each name equally often, 1 each set of types; this weighs a set by the root of its size
_CHUNK = 2048  # names between two updates of the progress bar


@torch.inference_mode()
def _vectors(base: BaseModel, examples: Sequence[Example]) -> Tensor:
    """Encode names: vectors before normalisation on the CPU, (n, dim), the input of the head."""
    names, parts = [base.config.prefix + example.name for example in examples], []
    with counting_bar("encode", " names", len(names)) as bar:
        for start in range(0, len(names), _CHUNK):
            chunk = names[start : start + _CHUNK]
            parts.append(pool_phrases(base.network, base.tokenizer, chunk, base.config.max_length, 64).cpu())
            bar.update(len(chunk))
    return torch.cat(parts)


def train_head(  # long: its arguments, and what they mean
    base_model: StrPath,
    out: StrPath,
    *,
    phrases: Paths = (),
    aliases: Paths = (),
    typed_names: Paths = (),
    options: HeadOptions | None = None,
    device: str = DEFAULT_DEVICE,
    events: TrainingEvents | None = None,
) -> TypeScores | None:
    """Fit a type head on a frozen encoder, and write both as a checkpoint.

    Args:
        base_model: The encoder, which stays unchanged: a folder or a hub id.
        out: The checkpoint to write.
        phrases, aliases, typed_names: As for `read_training_files`; names without a type are skipped, and those with an
            open lexical class count as noun phrases.
        options: How to fit.
        device: auto, cpu, cuda or cuda:N.
        events: Gets `examples_read`.

    Returns:
        Scores on the names held out, or None if there are none.

    Raises:
        OptionError: If there is no input or no entity type in it, or `out` is an input.
        InputError: If an input cannot be read, or has too many bad rows.
        ModelError: If the base model cannot be loaded.
    """
    refuse_overwriting(out, base_model, *as_paths(phrases))
    place, options = find_device(device), options or HeadOptions()
    examples = read_training_files(phrases, aliases, typed_names=typed_names, events=events)
    base = open_base_model(str(base_model), name=Path(out).name, seed=options.seed)
    base.network.to(place).eval()
    typed = _choose([replace(e, allowed=as_noun_phrase(e.allowed)) for e in examples if e.allowed], options)
    if not typed:
        raise OptionError(
            "phrases", "None of the names has an entity type. Give phrase_with_etype.txt, or a corpus with types."
        )
    held = [e for e in typed if split_of(name_key(e.name)) in TEST_SPLITS]
    held = held if len(held) < len(typed) else []
    kept = [e for e in typed if not held or split_of(name_key(e.name)) not in TEST_SPLITS]
    sizes = Counter(example.allowed for example in kept)
    head = fit_head(
        _vectors(base, kept).clone(),  # tensors of inference mode cannot be used in training
        label_matrix(kept),
        weights=torch.tensor([sizes[example.allowed] ** -_BALANCE for example in kept]),
        epochs=options.epochs,
        batch=min(1024, len(kept)),
        learning_rate=options.learning_rate,
        generator=torch.Generator().manual_seed(options.seed),
    )
    record: dict[str, Any] = {"head_examples": len(kept), "head_epochs": options.epochs}
    scores = None
    if held:
        kinds = [{PHRASE_TYPES[i].partition("-")[2] for i in example.allowed} for example in held]
        with torch.inference_mode():
            scores = score_types(head(_vectors(base, held)), kinds)
        record |= {"type_accuracy": round(scores.accuracy, 4), "type_macro_f1": round(scores.macro_f1, 4)}
        record |= {"type_names_held_out": scores.n}
    base.network.cpu().type_head = head
    config = base.config.model_copy(
        update={"label_counts": count_labels(kept), "training": {**base.config.training, **record}}
    )
    write_network(Path(out), base.network, config, transformer=base.folder)
    return scores


def _choose(examples: list[Example], options: HeadOptions) -> list[Example]:
    """Choose at most `max_each` examples of each set of types, by a hash of the name."""
    seen: Counter[tuple[int, ...]] = Counter()
    chosen = []
    distinct = {(e.name, e.allowed): e for e in examples}.values()
    for example in sorted(distinct, key=lambda e: phrase_key(f"{options.seed}/{e.name}").to_bytes(8, "little")):
        if seen[example.allowed] < options.max_each:
            seen[example.allowed] += 1
            chosen.append(example)
    return chosen
