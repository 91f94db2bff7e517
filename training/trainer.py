"""Contrastive fine-tuning of a phrase encoder with the type loss beside it.

    each step: draw pairs -> encode both sides -> L = NT-Xent + type_weight x marginal type loss -> AdamW

Cost: one step of 256 pairs of 8 tokens through 6 layers of 384 takes about 2 s on two cores in fp32.
"""

from __future__ import annotations

import csv
import logging
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from pearl_qdrant.encoder.network import PearlNetwork
from training.batches import PairBatch
from training.losses import marginal_type_loss, nt_xent

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FitConfig:
    """How to fine-tune.

    Attributes:
        steps: Optimizer steps.
        learning_rate: Peak; warms up over the first 5 % and falls to zero as a cosine.
        temperature: Of the contrastive loss. PEARL: 0.07.
        type_weight: Weight of the type loss. PEARL: 1.
        max_tokens: Longer phrases are cut.
        micro_batch: Phrases a forward pass; they are sorted by length first, so that little is padding.
        save_every: Steps between checkpoints.
    """

    steps: int
    learning_rate: float = 3e-5
    temperature: float = 0.07
    type_weight: float = 1.0
    max_tokens: int = 24
    micro_batch: int = 64
    save_every: int = 100


def fit(
    network: PearlNetwork,
    tokenizer: Any,
    batches: Iterator[PairBatch],
    config: FitConfig,
    folder: Path,
    *,
    resume: bool = True,
) -> None:
    """Fine-tune `network` in place; the word embeddings stay as they are.

    Writes `folder`/state.pt (weights and optimizer, to resume) and `folder`/log.csv.

    Args:
        network: With a type head.
        tokenizer: A `tokenizers.Tokenizer`.
        batches: Endless; after a resume the batches already used are drawn again and dropped.
        config: How to train.
        folder: Created if absent.
        resume: Go on from `folder`/state.pt if there is one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if network.type_head is None:
        raise ValueError("fit needs a network with a type head")
    network.eval()  # no dropout: the pairs are varied already, and it costs a third of the time
    for name, parameter in network.named_parameters():
        parameter.requires_grad_("word_embeddings" not in name)
    trained = [p for p in network.parameters() if p.requires_grad]
    head = list(network.type_head.parameters())
    encoder = [p for p in trained if all(p is not q for q in head)]
    # The head starts from nothing: it learns faster than the encoder, which must not forget.
    optimizer = torch.optim.AdamW(
        [{"params": encoder, "lr": config.learning_rate}, {"params": head, "lr": config.learning_rate * 30}]
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, config.steps))
    done = _resume(folder / "state.pt", network, optimizer, schedule) if resume else 0
    for _ in range(done):
        next(batches)
    with (folder / "log.csv").open("a" if done else "w", newline="") as file:
        log = csv.writer(file)
        if not done:
            log.writerow(["step", "contrastive", "type", "seconds"])
        start = time.monotonic()
        for step in tqdm(range(done + 1, config.steps + 1), desc="fit", unit="step", initial=done, total=config.steps):
            contrastive, type_loss = _losses(network, tokenizer, next(batches), config)
            optimizer.zero_grad()
            torch.autograd.backward(contrastive + config.type_weight * type_loss)
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            schedule.step()
            log.writerow([step, f"{contrastive.item():.4f}", f"{type_loss.item():.4f}", int(time.monotonic() - start)])
            file.flush()
            if step % config.save_every == 0 or step == config.steps:
                _save(folder / "state.pt", step, network, optimizer, schedule)


def _losses(network: PearlNetwork, tokenizer: Any, batch: PairBatch, config: FitConfig) -> tuple[Tensor, Tensor]:
    """Contrastive and type loss of one batch; the type loss is over both views."""
    n = len(batch.anchors)
    pooled = pool_phrases(network, tokenizer, [*batch.anchors, *batch.positives], config.max_tokens, config.micro_batch)
    contrastive = nt_xent(pooled[:n], pooled[n:], temperature=config.temperature, same=batch.same)
    if network.type_head is None:
        raise ValueError("the network has no type head")
    type_loss = marginal_type_loss(network.type_head(pooled), batch.allowed.repeat(2, 1))
    return contrastive, type_loss


def pool_phrases(
    network: PearlNetwork, tokenizer: Any, phrases: Sequence[str], max_tokens: int, micro_batch: int
) -> Tensor:
    """Phrase vectors before normalisation, (n, dim), in the order of `phrases`, with gradients."""
    ids = [encoding.ids[:max_tokens] for encoding in tokenizer.encode_batch(list(phrases))]
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    parts = []
    for start in range(0, len(order), micro_batch):
        chosen = [ids[i] for i in order[start : start + micro_batch]]
        width = max(len(row) for row in chosen)
        input_ids = torch.tensor([row + [0] * (width - len(row)) for row in chosen])
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in chosen])
        parts.append(network.pool(input_ids, mask))
    restored = torch.empty(len(order), dtype=torch.long)
    restored[torch.tensor(order)] = torch.arange(len(order))
    return torch.cat(parts)[restored]


def _rate(step: int, steps: int) -> float:
    """Share of the peak learning rate at a step."""
    warm = max(1, steps // 20)
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def _save(path: Path, step: int, network: PearlNetwork, optimizer: Any, schedule: Any) -> None:
    """Write the state beside the old one, then put it in its place."""
    part = path.with_suffix(".part")
    state = {"step": step, "network": network.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save({**state, "schedule": schedule.state_dict(), "rng": torch.get_rng_state()}, part)
    part.replace(path)


def _resume(path: Path, network: PearlNetwork, optimizer: Any, schedule: Any) -> int:
    """Load a state that this machine wrote itself; returns the steps already done."""
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    network.load_state_dict(state["network"])
    optimizer.load_state_dict(state["optimizer"])
    schedule.load_state_dict(state["schedule"])
    torch.set_rng_state(state["rng"])
    _log.info("resuming after step %d", state["step"])
    return int(state["step"])
