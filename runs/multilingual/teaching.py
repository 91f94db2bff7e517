"""A network learns the joint vectors of its teachers, and what names an entity has; its word embeddings stay.

    target of a text      the sum of the unit vectors of all teachers, each turned into the space of the network as it
                          starts (the orthogonal map that fits best, Schoenemann 1966); the mean of all vectors, which
                          says nothing, is taken off where it is long (E5: 0.9)
    cosine      15        1 - cos to the target of the text as it is written, whatever was done to it: a slip, other
                          case, another order of words. Two names of an entity are drawn a little together
    relations   1         divergence of the distribution over the other texts of the batch (temperature 0.05)
    names       1         NT-Xent of two names of an entity, masked by entity, string and teacher; names of others that
                          are near as further negatives

On one core 115 texts a second.
"""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from torch import Tensor, nn

from pearl_qdrant.encoder.protocol import Encoder, FloatArray
from pearl_qdrant.encoder.runtime.torch_runtime import PearlNetwork
from training.augment.draw import edit_character
from training.finetune.losses import MASKED_LOGIT, nt_xent
from training.networks.phrase_vectors import pool_phrases

WORDS = "embeddings.word_embeddings.weight"
SHARES = {"general": 3.5, "bio": 2.2, "wordnet": 2.0, "world": 2.0, "dict": 3.5}
"""How often each source is drawn; the sources of a batch are three, so that its names are hard to tell apart."""
PAIRS, NEAR, ALONE = 112, 56, 96
"""Pairs of names of a step, names near to one of them, and texts that are distilled alone."""
RATE, WARM, LEAST = 1.5e-4, 40, 0.03
"""Peak of the learning rate, steps to it, and the part of it at the end of a cosine."""
TEMPERATURE, TOGETHER, FLOOR = 0.05, 0.25, 0.55
"""Of the losses; how far the targets of a pair move to their mean; cosines of teachers up to which others differ."""
LONG_MEAN = 0.5
MAX_TOKENS, MICRO_BATCH, KEEP_EVERY = 40, 96, 50


@dataclass(frozen=True, slots=True)
class Names:
    """What is learned: entities with several names by source, and texts that stand alone."""

    entities: dict[str, list[tuple[tuple[str, ...], tuple[str, ...]]]]  # names, and names of others that are near
    alone: list[str]
    texts: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Names:
        """Read the file that `encoder_model.py prepare` writes."""
        found, alone, texts = defaultdict(list), list[str](), list[str]()
        with path.open(encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                if row["source"] == "text":
                    texts += row["names"]
                elif len(row["names"]) > 1:
                    found[row["source"]].append((tuple(row["names"]), tuple(row["near"])))
                else:
                    alone += row["names"]
        return cls(dict(found), alone, texts)


@dataclass(slots=True)
class Batch:
    """Names of a step: n pairs, m names near to some of them, and k texts."""

    first: list[str]
    second: list[str]
    near: list[str]
    alone: list[str]
    names: list[frozenset[str]]  # all names of each pair's entity, case-folded

    @property
    def clean(self) -> list[str]:
        """All of them, (2 n + m + k)."""
        return [*self.first, *self.second, *self.near, *self.alone]

    def written(self, rng: random.Random) -> list[str]:
        """The same as people write them."""
        second = [as_written(name, rng) if rng.random() < 0.3 else name for name in self.second]
        alone = [as_written(name, rng) if rng.random() < 0.5 else name for name in self.alone]
        return [*(as_written(name, rng) for name in self.first), *second, *self.near, *alone]

    def same(self, wanted: Tensor) -> Tensor:
        """Where a column is no negative of a row, (2 n, 2 n + m): a name of its entity, or one that the teachers find
        closer than its partner (GIST).
        """
        n, columns = len(self.first), [*self.first, *self.second, *self.near]
        place = defaultdict(list)
        for j, name in enumerate(columns):
            place[name.casefold()].append(j)
        same = torch.zeros((2 * n, len(columns)), dtype=torch.bool)
        for i, names in enumerate(self.names):
            of_entity = [j for name in names for j in place.get(name, ())]
            same[i, of_entity] = same[n + i, of_entity] = True
        cosines = wanted[: 2 * n] @ wanted[: len(columns)].T
        own = cosines.gather(1, torch.arange(2 * n).roll(n)[:, None]).clamp(min=FLOOR)
        return same | (cosines > own)


def draw(names: Names, rng: random.Random) -> Batch:
    """Draw the names of a step."""
    batch = Batch([], [], [], [], [])
    sources = [one for one in SHARES if names.entities.get(one)]
    chosen = rng.choices(sources, weights=[SHARES[one] for one in sources], k=3)
    while len(batch.first) < PAIRS:
        of_entity, near = rng.choice(names.entities[rng.choice(chosen)])
        first, second = rng.sample(of_entity, 2)
        batch.first.append(first)
        batch.second.append(second)
        batch.names.append(frozenset(name.casefold() for name in of_entity))
        if near and len(batch.near) < NEAR:
            batch.near.append(rng.choice(near))
    batch.alone = [*rng.choices(names.alone, k=ALONE // 2), *rng.choices(names.texts, k=ALONE // 2)]
    return batch


def as_written(name: str, rng: random.Random) -> str:
    """A name with a slip, in other case, in another order of words, or as it is."""
    kind = rng.random()
    if kind < 0.12:
        return edit_character(name, rng)
    if kind < 0.22:
        return name.lower()
    if kind < 0.27:
        return name.title()
    if kind < 0.30:
        words = name.split()
        return " ".join(rng.sample(words, len(words)))
    return name


class Teachers:
    """Encoders whose vectors are added up in one space.

    Args:
        encoders: The teachers.
        start: Unit vectors of `names` by the network as it starts, (n, dim).
        names: A sample of what is learned.
    """

    def __init__(self, encoders: Sequence[Encoder], start: FloatArray, names: Sequence[str]) -> None:
        self._encoders, self._means, self._maps = encoders, list[FloatArray](), list[FloatArray]()
        for encoder in encoders:
            vectors = encoder.encode(names).vectors
            mean = vectors.mean(0)
            self._means.append(mean if np.linalg.norm(mean) > LONG_MEAN else np.zeros_like(mean))
            u, _, v = np.linalg.svd(_unit(vectors - self._means[-1]).T @ start, full_matrices=False)
            self._maps.append(u @ v)

    def targets(self, names: Sequence[str]) -> Tensor:
        """The vectors that the network shall give, (n, dim), of length 1."""
        turned = [
            _unit(encoder.encode(names).vectors - mean) @ turn
            for encoder, mean, turn in zip(self._encoders, self._means, self._maps, strict=True)
        ]
        return torch.from_numpy(_unit(np.sum(turned, axis=0)).astype(np.float32))


def _unit(vectors: FloatArray) -> FloatArray:
    found: FloatArray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return found


def teach(
    network: PearlNetwork, tokenizer: Any, encoders: Sequence[Encoder], names: Names, out: Path, *, steps: int
) -> dict[str, Any]:
    """Train the network in place, with checkpoints in `out`; returns a record of the training.

    Args:
        network: In float32 on the CPU.
        tokenizer: Its tokenizer, without padding and truncation.
        encoders: The teachers.
        names: What is learned.
        out: Folder of the checkpoint `state.pt`, from which a run that was stopped goes on.
        steps: Steps of all of it, with those of a run that was stopped.
    """
    out.mkdir(parents=True, exist_ok=True)
    state = out / "state.pt"
    rng = random.Random(0)
    sample = [*rng.choices(names.alone, k=7_000), *rng.choices(names.texts, k=7_000)]
    trained = [p for name, p in network.phrase_encoder.named_parameters() if "word_embeddings" not in name]
    for parameter in network.parameters():
        parameter.requires_grad_(any(parameter is one for one in trained))
    with torch.no_grad():
        pooled = pool_phrases(network, tokenizer, sample, MAX_TOKENS, MICRO_BATCH)
    teachers = Teachers(encoders, nn.functional.normalize(pooled).numpy(), sample)
    done = 0
    if state.exists():
        kept = torch.load(state, weights_only=True)
        network.phrase_encoder.load_state_dict(kept["network"])
        done = kept["steps"]
    rng = random.Random(f"from step {done}")
    optimizer = torch.optim.AdamW(trained, lr=RATE, betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(done, steps):
        falling = LEAST + (1 - LEAST) * (0.5 + 0.5 * math.cos(math.pi * step / steps))
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / WARM) * falling
        batch = draw(names, rng)
        losses = losses_of(batch, teachers.targets(batch.clean), network, tokenizer, rng)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward([torch.stack(list(losses.values())).sum()])
        nn.utils.clip_grad_norm_(trained, 5.0)
        optimizer.step()
        if (step + 1) % KEEP_EVERY == 0:
            shown = ", ".join(f"{name} {float(loss.detach()):.3f}" for name, loss in losses.items())
            click.echo(f"step {step + 1} of {steps}: {shown}")
            torch.save({"network": network.phrase_encoder.state_dict(), "steps": step + 1}, state)
    return {"steps": steps, "pairs": steps * PAIRS}


def losses_of(
    batch: Batch, wanted: Tensor, network: PearlNetwork, tokenizer: Any, rng: random.Random
) -> dict[str, Tensor]:
    """The losses of a step; `wanted` are the targets of `batch.clean`."""
    n, k = len(batch.first), 2 * len(batch.first) + len(batch.near)
    with torch.autocast("cpu", torch.bfloat16):
        pooled = pool_phrases(network, tokenizer, batch.written(rng), MAX_TOKENS, MICRO_BATCH)
    found = nn.functional.normalize(pooled.float())
    pairs = nt_xent(
        found[:n], found[n : 2 * n], temperature=TEMPERATURE, negatives=found[2 * n : k], same=batch.same(wanted)
    )
    middle = nn.functional.normalize(wanted[:n] + wanted[n : 2 * n]).repeat(2, 1)
    goal = torch.cat([nn.functional.normalize((1 - TOGETHER) * wanted[: 2 * n] + TOGETHER * middle), wanted[2 * n :]])
    kept = torch.cat([torch.arange(n), torch.arange(2 * n, len(wanted))])  # one name of each pair
    return {
        "cosine": 15 * (1 - (found * goal).sum(1)).mean(),
        "relations": relations(found[kept], wanted[kept]),
        "names": pairs,
    }


def relations(found: Tensor, wanted: Tensor) -> Tensor:
    """Divergence of the distribution over the other texts of a batch from that of the targets, (), in nats."""
    own = torch.eye(len(found), dtype=torch.bool)
    ours, theirs = (
        (one @ one.T / TEMPERATURE).masked_fill(own, MASKED_LOGIT).log_softmax(1) for one in (found, wanted)
    )
    return nn.functional.kl_div(ours, theirs, log_target=True, reduction="batchmean")
