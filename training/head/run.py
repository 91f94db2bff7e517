"""Fit a type head on a frozen network, and write both as a checkpoint.

Each name is encoded once, which is most of the cost: an epoch over 200,000 vectors takes a few seconds. A tenth of the
names, chosen by their hash, is held out to measure the head on names that it never saw.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from pearl_qdrant.errors import OptionError
from pearl_qdrant.phrase_types import PHRASE_TYPES
from training.examples.example import Example
from training.examples.labels import as_noun_phrase, count_labels
from training.examples.splits import TEST_SPLITS, name_key, split_of
from training.head.evaluate_types import TypeScores, score_types
from training.head.fit_head import fit_head
from training.head.options import HeadOptions
from training.networks.base_network import BaseModel
from training.networks.phrase_vectors import pool_phrases
from training.networks.torch_checkpoint import write_network

_CHUNK = 2048  # names between two updates of the progress bar


@torch.inference_mode()
def phrase_vectors(base: BaseModel, names: list[str], *, max_tokens: int = 64, micro_batch: int = 64) -> Tensor:
    """Encode names: vectors before normalisation on the CPU, (n, dim), the input of the head."""
    parts = []
    with tqdm(total=len(names), desc="encode", unit=" names", unit_scale=True, disable=None) as bar:
        for start in range(0, len(names), _CHUNK):
            chunk = [base.config.prefix + name for name in names[start : start + _CHUNK]]
            parts.append(pool_phrases(base.network, base.tokenizer, chunk, max_tokens, micro_batch).cpu())
            bar.update(len(chunk))
    return torch.cat(parts)


def run_head(
    base: BaseModel, examples: list[Example], options: HeadOptions, out: Path, *, device: torch.device
) -> TypeScores | None:
    """Fit a type head on a frozen network and write both as a checkpoint.

    Args:
        base: Its network stays unchanged, except for the head.
        examples: Those without a type are skipped; names with an open lexical class count as noun phrases.
        options: How to fit.
        out: The checkpoint to write.
        device: Where names are encoded.

    Returns:
        Scores on the names held out, or None if there are none.

    Raises:
        OptionError: If no example has a type.
    """
    base.network.to(device).eval()
    typed = _choose([replace(e, allowed=as_noun_phrase(e.allowed)) for e in examples if e.allowed], options)
    if not typed:
        raise OptionError(
            "phrases", "None of the names has an entity type. Give phrase_with_etype.txt, or a corpus with types."
        )
    held = [e for e in typed if options.hold_out and split_of(name_key(e.name)) in TEST_SPLITS]
    kept = [e for e in typed if not options.hold_out or split_of(name_key(e.name)) not in TEST_SPLITS]
    if not kept:
        held, kept = [], typed
    vectors = phrase_vectors(base, [e.name for e in kept], max_tokens=base.config.max_length)
    allowed = torch.zeros(len(kept), len(PHRASE_TYPES), dtype=torch.bool)
    for i, example in enumerate(kept):
        allowed[i, list(example.allowed)] = True
    sizes = Counter(example.allowed for example in kept)
    weights = torch.tensor([sizes[example.allowed] ** -options.balance for example in kept])
    head = fit_head(
        # Tensors of inference mode cannot be used in training.
        vectors.clone(),
        allowed,
        weights=weights,
        epochs=options.epochs,
        batch=min(1024, len(kept)),
        learning_rate=options.learning_rate,
        generator=torch.Generator().manual_seed(options.seed),
    )
    scores = _score(base, head, held)
    base.network.cpu().type_head = head
    record: dict[str, Any] = {"head_examples": len(kept), "head_epochs": options.epochs}
    if scores is not None:
        record |= {"type_accuracy": round(scores.accuracy, 4), "type_macro_f1": round(scores.macro_f1, 4)}
        record |= {"type_names_held_out": scores.n}
    config = base.config.model_copy(
        update={"label_counts": count_labels(kept), "training": {**base.config.training, **record}}
    )
    write_network(out, base.network, config, transformer=base.folder)
    return scores


def _choose(examples: list[Example], options: HeadOptions) -> list[Example]:
    """Choose at most `max_each` examples of each set of types, by a hash of the name."""
    seen: Counter[tuple[int, ...]] = Counter()
    chosen = []
    distinct = {(e.name, e.allowed): e for e in examples}
    for example in sorted(distinct.values(), key=lambda e: hash_order(e.name, options.seed)):
        if seen[example.allowed] < options.max_each:
            seen[example.allowed] += 1
            chosen.append(example)
    return chosen


def hash_order(name: str, seed: int) -> bytes:
    """Return a sort key for an order that looks random and is the same everywhere."""
    from hashlib import blake2b

    return blake2b(f"{seed}/{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()


@torch.inference_mode()
def _score(base: BaseModel, head: torch.nn.Module, held: list[Example]) -> TypeScores | None:
    """Score the head on names that it never saw."""
    if not held:
        return None
    kinds = [{PHRASE_TYPES[i].partition("-")[2] for i in example.allowed} for example in held]
    vectors = phrase_vectors(base, [e.name for e in held], max_tokens=base.config.max_length)
    return score_types(head(vectors), kinds)
