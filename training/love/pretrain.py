"""Pre-train the character encoder: words with typos learn the vectors of the correct words.

    each step: draw words -> half of them with one edit -> character encoder -> linear layer to the width of the targets
               -> NT-Xent against the words' own vectors, other words of the batch and look-alikes as negatives -> Adam

Look-alikes are words at a small edit distance, such as "angel" and "angle". Batches, edits and negatives are functions
of seed and step, so that a resumed run ends with the same weights. The linear layer is discarded.

Cost: a step of 128 words takes about 30 ms on one core; 22,000 words and 20 epochs take two minutes.

Source: LOVE (Chen et al. 2022), sections 4.2 and 4.3: NT-Xent at 0.07, three hard negatives, Adam at 2e-3 decaying by
0.97 an epoch, 20 epochs. Our batches are larger than the 32 of the paper.
"""

from __future__ import annotations

import csv
import hashlib
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from pearl_qdrant.encoder.character.network import CharacterEncoder
from pearl_qdrant.errors import TrainingError
from training.augment.characters import edit_letters
from training.finetune.losses import nt_xent
from training.loop.run_state import load_state, save_state
from training.love.options import LoveConfig
from training.love.targets import Targets
from training.mining.edit_pairs import edit_pairs

MAX_TOKENS = 16
"""Longest word in tokens; the encoder looks at fewer."""


@dataclass(frozen=True, slots=True)
class Mimicry:
    """How well words are recognised.

    Attributes:
        n: Words tested.
        accuracy: Share of the words whose own vector is the nearest one to the encoder's vector.
        typo_accuracy: The same for the word with one edit.
    """

    n: int
    accuracy: float
    typo_accuracy: float

    def __str__(self) -> str:
        return f"{self.n:,} words: {self.accuracy:.1%} find their own vector, {self.typo_accuracy:.1%} with a typo"


class Mimic(nn.Module):
    """The character encoder and the linear layer to the width of the targets."""

    def __init__(self, encoder: CharacterEncoder, dim: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.encoder = encoder
        self.to_target = nn.Linear(encoder.config.word_dim, dim, bias=False)
        nn.init.xavier_uniform_(self.to_target.weight, generator=generator)

    def forward(self, tokenizer: Any, words: Sequence[str]) -> Tensor:
        """Return vectors of words, (n, dim), any norm."""
        ids, mask = _pad_words(tokenizer, words, device=self.to_target.weight.device)
        vectors: Tensor = self.to_target(self.encoder.phrase_vectors(ids, mask))
        return vectors


def pretrain(
    encoder: CharacterEncoder,
    tokenizer: Any,
    targets: Targets,
    config: LoveConfig,
    folder: Path,
    *,
    resume: bool = True,
    progress: bool = True,
) -> Mimicry:
    """Train `encoder` in place, and measure how well it mimics.

    Writes `folder`/state.safetensors after each epoch, to resume, and `folder`/log.csv.

    Args:
        encoder: Is on the device to train on.
        tokenizer: A `tokenizers.Tokenizer` without padding and truncation, of the encoder's vocabulary.
        targets: The vectors to mimic.
        config: How to train.
        folder: Created if absent.
        resume: Resume from the state in `folder`, if there is one; otherwise it is removed.
        progress: Show a progress bar on stderr.

    Raises:
        TrainingError: If there are fewer words than in a batch, the state is of another run, or the loss diverges.
    """
    if len(targets.words) < config.batch:
        raise TrainingError(
            f"{len(targets.words)} words are fewer than a batch of {config.batch}. Give more words, or a smaller batch"
        )
    folder.mkdir(parents=True, exist_ok=True)
    mimic = Mimic(encoder, targets.vectors.shape[1], generator=torch.Generator().manual_seed(config.seed))
    mimic.to(encoder.nearness.device).train()
    optimizer = torch.optim.Adam(mimic.parameters(), lr=config.learning_rate, fused=True)
    described = encoder.config.model_dump(exclude_none=True)  # as before there was a continuation share
    identity = {**asdict(config), "encoder": described, "targets": _digest_of(targets)}
    identity.pop("epochs")  # a later call may ask for more epochs
    state = folder / "state.safetensors"
    done = load_state(state, network=mimic, optimizer=optimizer, identity=identity) if resume else 0
    if not resume:
        state.unlink(missing_ok=True)
    loop = _Loop(mimic, tokenizer, targets, config, optimizer)
    with (folder / "log.csv").open("a" if done else "w", newline="") as file:
        log = csv.writer(file)
        if not done:
            log.writerow(["epoch", "loss", "learning_rate"])
        epochs = range(done, config.epochs)
        for epoch in tqdm(epochs, "love", unit="epoch", initial=done, total=config.epochs, disable=not progress):
            loss, rate = loop.run(epoch)
            save_state(state, step=epoch + 1, network=mimic, optimizer=optimizer, identity=identity)
            log.writerow([epoch + 1, f"{loss:.4f}", f"{rate:.6f}"])
            file.flush()
    encoder.eval()
    return measure_mimicry(mimic, tokenizer, targets, rng=random.Random(config.seed))


class _Loop:
    """The epochs of a run."""

    def __init__(
        self, mimic: Mimic, tokenizer: Any, targets: Targets, config: LoveConfig, optimizer: torch.optim.Optimizer
    ) -> None:
        self._mimic, self._tokenizer, self._config, self._optimizer = mimic, tokenizer, config, optimizer
        self._words = targets.words
        self._device = mimic.to_target.weight.device
        self._targets = torch.from_numpy(targets.vectors).to(self._device)
        self._alike = look_alikes(targets.words) if config.hard_negatives else {}

    def run(self, epoch: int) -> tuple[float, float]:
        """Train one epoch; returns its mean loss and its learning rate."""
        config = self._config
        rate = config.learning_rate * config.decay**epoch
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        order = np.random.default_rng([config.seed, epoch]).permutation(len(self._words))
        rng = random.Random(f"{config.seed} {epoch}")
        n_steps = len(order) // config.batch
        total = 0.0
        for step in range(n_steps):
            loss = self._loss(order[step * config.batch : (step + 1) * config.batch].tolist(), rng)
            if not bool(torch.isfinite(loss)):
                raise TrainingError(f"the loss is {loss.item()} in epoch {epoch + 1}. Use a lower learning rate")
            self._optimizer.zero_grad()
            torch.autograd.backward(loss)
            self._optimizer.step()
            total += loss.item()
        return total / n_steps, rate

    def _loss(self, rows: list[int], rng: random.Random) -> Tensor:
        """Compute the loss of a batch of words."""
        config = self._config
        views = [
            (rng.random() < config.typo_share and edit_letters(self._words[i], rng)) or self._words[i] for i in rows
        ]
        look_alike_rows = [j for i in rows for j in _draw(self._alike.get(i, ()), config.hard_negatives, rng)]
        look_alike_rows = list(dict.fromkeys(look_alike_rows))
        both = torch.tensor([*rows, *rows])
        same = (both[:, None] == torch.tensor([*rows, *rows, *look_alike_rows])).to(self._device)
        return nt_xent(
            self._mimic(self._tokenizer, views),
            self._targets[rows],
            temperature=config.temperature,
            negatives=self._targets[look_alike_rows] if look_alike_rows else None,
            same=same,
        )


def look_alikes(words: Sequence[str]) -> dict[int, tuple[int, ...]]:
    """Return, for each word, the indices of others within two edits; words without any are skipped."""
    order = sorted(range(len(words)), key=lambda i: words[i])
    pairs, _ = edit_pairs([words[i] for i in order])
    found: dict[int, list[int]] = {}
    for a, b in pairs.tolist():
        found.setdefault(order[a], []).append(order[b])
        found.setdefault(order[b], []).append(order[a])
    return {place: tuple(sorted(others)) for place, others in found.items()}


def measure_mimicry(mimic: Mimic, tokenizer: Any, targets: Targets, *, n: int = 2000, rng: random.Random) -> Mimicry:
    """Measure how many of `n` words find their own vector among those of all `n`, with and without an edit."""
    rows = rng.sample(range(len(targets.words)), min(n, len(targets.words)))
    words = [targets.words[i] for i in rows]
    typos = [edit_letters(word, rng) or word for word in words]
    vectors = nn.functional.normalize(torch.from_numpy(targets.vectors[rows]), dim=-1)
    shares = []
    mimic.eval()
    with torch.inference_mode():
        for views in (words, typos):
            made = torch.cat([mimic(tokenizer, views[i : i + 256]).cpu() for i in range(0, len(views), 256)])
            nearest = (nn.functional.normalize(made, dim=-1) @ vectors.T).argmax(1)
            shares.append(float((nearest == torch.arange(len(rows))).float().mean()))
    return Mimicry(len(rows), *shares)


def _draw(others: Sequence[int], n: int, rng: random.Random) -> Sequence[int]:
    return others if len(others) <= n else rng.sample(others, n)


def _pad_words(tokenizer: Any, words: Sequence[str], *, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return token ids and mask of words, (n, t)."""
    ids = [encoding.ids[:MAX_TOKENS] for encoding in tokenizer.encode_batch(list(words))]
    width = max(1, *map(len, ids))
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in ids], device=device)
    return torch.tensor([row + [0] * (width - len(row)) for row in ids], device=device), mask


def _digest_of(targets: Targets) -> str:
    """Return a short digest of the targets."""
    digest = hashlib.sha256("\0".join(targets.words).encode("utf-8", "replace"))
    digest.update(np.ascontiguousarray(targets.vectors).tobytes())
    return digest.hexdigest()[:16]
