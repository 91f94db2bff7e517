"""Pre-train the character encoder (LOVE): words with typos learn the vectors of the correct words.

The vectors are those of a file, or of the phrase encoder that it joins; these are centred, since embeddings of a
transformer lie in a narrow cone.

    each step: draw words -> half of them with one edit -> character encoder -> linear layer to the width of the targets
               -> NT-Xent against the words' own vectors, other words of the batch and look-alikes as negatives -> Adam

Look-alikes are words at a small edit distance, such as "angel" and "angle". The linear layer is discarded. A step of
128 words takes about 30 ms on one core; 22,000 words and 20 epochs take two minutes.

Source: LOVE (Chen et al. 2022), sections 4.2 and 4.3. Our batches are larger than the 32 of the paper.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from pearl_qdrant.encoder.batching import open_tokenizer
from pearl_qdrant.encoder.character.network import CharacterEncoder
from pearl_qdrant.encoder.character.table import N_MARKS, CharacterConfig, CharacterTable, read_character_table
from pearl_qdrant.encoder.checkpoint import is_checkpoint
from pearl_qdrant.encoder.plain_model import read_plain_model
from pearl_qdrant.encoder.runtime.torch_runtime import PearlNetwork, load_transformer
from pearl_qdrant.errors import InputError, TrainingError
from training.augment.draw import edit_letters
from training.augment.variants import read_vectors
from training.finetune.losses import nt_xent
from training.hard_negatives import edit_pairs
from training.networks.checkpoints import write_character_encoder
from training.networks.phrase_vectors import pad, pool_phrases
from training.options import CharacterWidths, LoveConfig, StrPath, refuse_overwriting
from training.training_loop import LossRecord, Objective, TrainingLoop

Array = npt.NDArray[np.float32]

_SHORTEST = 2
_MICRO_BATCH = 256
_MEASURED = 2000  # words
_TYPO_SHARE = 0.5  # of the words of a batch, which get one edit
MAX_TOKENS = 16
"""Longest word in tokens; the encoder looks at fewer."""


@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """Distinct words with the vectors to mimic, (n, dim), any norm."""

    words: tuple[str, ...]
    vectors: Array


def file_targets(path: Path, *, limit: int | None = None) -> Targets:
    """Read the vectors of words with a letter from a `.vec` file of FastText or GloVe, the first ones up to a limit."""
    words, vectors = read_vectors(path, limit=limit)
    kept = [i for i, word in enumerate(words) if any(map(str.isalpha, word))]
    if not kept:
        raise InputError(str(path), None, "has no word with a letter. Is it a file of word vectors?")
    return Targets(tuple(words[i] for i in kept), vectors[kept])


def encoder_targets(network: PearlNetwork, tokenizer: Any, words: Sequence[str]) -> Targets:
    """Return the vectors of single words by an encoder that has no character encoder; repeated words count once."""
    distinct = tuple(dict.fromkeys(words))
    with torch.inference_mode():
        pooled = pool_phrases(network, tokenizer, distinct, MAX_TOKENS, _MICRO_BATCH)
        vectors: Array = nn.functional.normalize(pooled, dim=-1).numpy()
    return Targets(distinct, vectors - vectors.mean(axis=0, keepdims=True))


def whole_words(table: CharacterTable) -> dict[str, int]:
    """Return the words of a vocabulary with their ids: tokens that start a word and have only letters, lower-cased."""
    found: dict[str, int] = {}
    for token_id in np.flatnonzero(~table.special & ~table.continuation).tolist():
        word = "".join(table.alphabet[code - N_MARKS] for code in table.codes[token_id] if code)
        if len(word) >= _SHORTEST and word.isalpha():
            found.setdefault(word, token_id)
    return found


@dataclass(frozen=True, slots=True)
class Mimicry:
    """How well words are recognised."""

    n: int  # words tested
    accuracy: float  # share of the words whose own vector is the nearest one to the encoder's vector
    typo_accuracy: float  # the same for the word with one edit

    def __str__(self) -> str:
        return f"{self.n:,} words: {self.accuracy:.1%} find their own vector, {self.typo_accuracy:.1%} with a typo"


class MimicNetwork(nn.Module):
    """The character encoder and the linear layer to the width of the targets."""

    def __init__(self, encoder: CharacterEncoder, dim: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.encoder = encoder
        self.to_target = nn.Linear(encoder.config.word_dim, dim, bias=False)
        nn.init.xavier_uniform_(self.to_target.weight, generator=generator)

    def forward(self, tokenizer: Any, words: Sequence[str]) -> Tensor:
        """Return vectors of words, (n, dim), any norm."""
        rows = [encoding.ids[:MAX_TOKENS] for encoding in tokenizer.encode_batch(list(words))]
        ids, mask = pad(rows, self.to_target.weight.device)
        vectors: Tensor = self.to_target(self.encoder.phrase_vectors(ids, mask))
        return vectors


def pretrain(
    encoder: CharacterEncoder,  # is on the device to train on
    tokenizer: Any,  # a `tokenizers.Tokenizer` without padding and truncation, of the encoder's vocabulary
    targets: Targets,
    config: LoveConfig,
    # folder, resume, progress, on_step: as in `TrainingLoop`; the state is written after each epoch
    folder: Path,
    *,
    resume: bool = True,
    progress: bool = True,
    on_step: Callable[[LossRecord], None] = lambda _: None,
) -> Mimicry:
    """Train `encoder` in place, and measure how well it mimics. Raises TrainingError if there are fewer words than in a
    batch, the state is of another run, or the loss diverges.
    """
    if len(targets.words) < config.batch:
        raise TrainingError(
            f"{len(targets.words)} words are fewer than a batch of {config.batch}. Give more words, or a smaller batch"
        )
    mimic = MimicNetwork(encoder, targets.vectors.shape[1], generator=torch.Generator().manual_seed(config.seed))
    mimic.to(encoder.nearness.device).train()
    objective = LoveObjective(mimic, tokenizer, targets, config)
    TrainingLoop(
        name="love",
        objective=objective,
        steps=config.epochs * objective.steps_an_epoch,
        folder=folder,
        resume=resume,
        save_every=objective.steps_an_epoch,
        progress=progress,
        on_step=on_step,
    ).run()
    encoder.eval()
    return measure_mimicry(mimic, tokenizer, targets, rng=random.Random(config.seed))


class LoveObjective(Objective):
    """NT-Xent of words with typos against the vectors of the words; a batch is rows, words as seen, look-alikes."""

    record = LossRecord

    def __init__(self, mimic: MimicNetwork, tokenizer: Any, targets: Targets, config: LoveConfig) -> None:
        self.network, self._tokenizer, self._config, self._words = mimic, tokenizer, config, targets.words
        self.optimizer = torch.optim.Adam(mimic.parameters(), lr=config.learning_rate, fused=True)
        self.steps_an_epoch = len(targets.words) // config.batch
        self._device = mimic.to_target.weight.device
        self._targets = torch.from_numpy(targets.vectors).to(self._device)
        self._alike = look_alikes(targets.words) if config.hard_negatives else {}
        digest = hashlib.sha256("\0".join(targets.words).encode("utf-8", "replace"))
        digest.update(np.ascontiguousarray(targets.vectors).tobytes())
        described = {"encoder": mimic.encoder.config.model_dump(), "targets": digest.hexdigest()[:16]}
        self._identity = {**config.model_dump(), **described}
        del self._identity["epochs"]  # a later call may ask for more epochs

    def identity(self) -> Mapping[str, Any]:
        return self._identity

    def rate(self, step: int, factor: float) -> float:
        """The learning rate of a step; it falls with each epoch."""
        epoch: int = (step - 1) // self.steps_an_epoch
        return self._config.learning_rate * self._config.decay**epoch

    def batches(self, steps: range) -> Iterator[tuple[list[int], list[str], list[int]]]:
        """Draw the batches; those of an epoch depend on each other, so that earlier ones are drawn too."""
        size = self._config.batch
        for step in range(1, steps.stop):
            epoch, nth = divmod(step - 1, self.steps_an_epoch)
            if epoch < (steps.start - 1) // self.steps_an_epoch:
                continue
            if nth == 0:
                order = np.random.default_rng([self._config.seed, epoch]).permutation(len(self._words))
                rng = random.Random(f"{self._config.seed} {epoch}")
            rows = order[nth * size : (nth + 1) * size].tolist()
            views = [self._view(self._words[i], rng) for i in rows]
            n = self._config.hard_negatives
            near = (self._alike.get(i, ()) for i in rows)
            alike = [j for others in near for j in (others if len(others) <= n else rng.sample(others, n))]
            if step >= steps.start:
                yield rows, views, list(dict.fromkeys(alike))

    def backward(self, step: int, batch: tuple[list[int], list[str], list[int]]) -> dict[str, Tensor | float]:
        rows, views, look_alike_rows = batch
        both = torch.tensor([*rows, *rows])
        same = (both[:, None] == torch.tensor([*rows, *rows, *look_alike_rows])).to(self._device)
        loss = nt_xent(
            self.network(self._tokenizer, views),
            self._targets[rows],
            temperature=self._config.temperature,
            negatives=self._targets[look_alike_rows] if look_alike_rows else None,
            same=same,
        )
        torch.autograd.backward(loss)
        return {"loss": loss.detach()}

    def _view(self, word: str, rng: random.Random) -> str:
        """The word, or a form of it with one edit."""
        return (rng.random() < _TYPO_SHARE and edit_letters(word, rng)) or word


def look_alikes(words: Sequence[str]) -> dict[int, tuple[int, ...]]:
    """Return, for each word, the indices of others within two edits; words without any are skipped."""
    order = sorted(range(len(words)), key=lambda i: words[i])
    pairs, _ = edit_pairs([words[i] for i in order])
    found: dict[int, list[int]] = {}
    for a, b in (*pairs.tolist(), *pairs[:, ::-1].tolist()):
        found.setdefault(order[a], []).append(order[b])
    return {place: tuple(sorted(others)) for place, others in found.items()}


def measure_mimicry(mimic: MimicNetwork, tokenizer: Any, targets: Targets, *, rng: random.Random) -> Mimicry:
    """Measure how many of some words find their own vector among those of all, with and without an edit."""
    rows = rng.sample(range(len(targets.words)), min(_MEASURED, len(targets.words)))
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


def pretrain_character_encoder(
    base_model: StrPath,
    out: StrPath,
    *,
    vectors: StrPath | None = None,
    max_words: int | None = None,
    widths: CharacterWidths | None = None,
    config: LoveConfig | None = None,
    resume: bool = True,
    progress: bool = True,
) -> Mimicry:
    """Make a character encoder for the phrase encoder of a folder, pre-train it, and write it.

    The same call resumes a run that was interrupted.

    Args:
        base_model: A folder of transformers or sentence-transformers, or a checkpoint.
        out: The folder to write: the encoder (see `training.networks.checkpoints`), the state of the run, its log.
        vectors: A `.vec` file to mimic; None for the vectors that `base_model` gives words of its vocabulary.
        max_words: At most this many words, the first ones.
        widths: The encoder's size.
        config: How to train.
        resume: Resume from the state in `out`; otherwise it is removed.
        progress: Show a progress bar on stderr.

    Raises:
        OptionError: If `out` is an input.
        CheckpointError: If `base_model` is not a model, or its tokenizer does not mark words.
        FormatError: If `vectors` is not a file of word vectors.
        TrainingError: If there are too few words, or `out` holds another run.
    """
    refuse_overwriting(out, base_model, vectors)
    base, target, config, widths = Path(base_model), Path(out), config or LoveConfig(), widths or CharacterWidths()
    folder = base if is_checkpoint(base) else read_plain_model(base).folder
    table = read_character_table(folder / "tokenizer.json")
    generator = torch.Generator().manual_seed(config.seed)
    sizes: dict[str, Any] = {name: getattr(widths, name) for name in ("embedding_dim", "word_dim", "share")}
    character = CharacterConfig(alphabet=table.alphabet, **sizes)
    encoder = CharacterEncoder(table, character, widths.char_dim, generator=generator)
    tokenizer = open_tokenizer(folder / "tokenizer.json")
    if vectors is not None:
        source, targets = Path(vectors).name, file_targets(Path(vectors), limit=max_words)
    else:
        network = PearlNetwork(load_transformer(folder), None)
        source = f"words of {base.name}"
        targets = encoder_targets(network, tokenizer, list(whole_words(table))[:max_words])
    mimicry = pretrain(encoder, tokenizer, targets, config, target, resume=resume, progress=progress)
    record = {**config.model_dump(), "targets": source, "words": len(targets.words), **asdict(mimicry)}
    write_character_encoder(target, encoder, training=record)
    return mimicry
