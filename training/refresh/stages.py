"""Parts of a refresh: its time, its state, the tables of the base, and the phrases that stay.

The time of a refresh: one budget for all stages, of which each but the fit has a share that it does not exceed.

phrases, negatives, head, measure    cut to their share: fewer names at the pace that this machine has shown
start, average, export               take what they take; the last two are foreseen from the first
fit                                  what is left before those after it; it stops when its time is over

The base becomes two tables: what is learned, and what is measured afterwards. Phrases that stay where the start has
them are words of its vocabulary, alone and in pairs. They stand for the language that the base does not speak of, and
need no other file.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ingest.formats import open_reader
from ingest.io.report import ReadReport
from pearl_qdrant.cells import join_list
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.encoder.type_head import type_marginals
from pearl_qdrant.errors import InputError, OptionError
from pearl_qdrant.phrase_types import ENTITY_TYPES
from pearl_qdrant.records import Entity
from pearl_qdrant.store.atomic import write_atomically
from training.examples.example import TEST_SPLITS, split_of
from training.networks.checkpoints import BaseModel
from training.networks.phrase_vectors import pool_phrases
from training.options import BatchOptions

PHRASES, NEGATIVES, HEAD, MEASURE = 0.1, 0.1, 0.15, 0.2
"""Shares of the budget, at most."""

EXPORT = 0.1
"""The share that is foreseen for average and export where the start took no time: it had weights for torch."""

EXPORT_OVER_START = 1.8
"""Average and export take so many times what it takes to rebuild the weights of the start from its graph."""


@dataclass(slots=True)
class Budget:
    """What a refresh may take, and has taken.

    Attributes:
        seconds: For all of it; None: no limit, so that nothing is cut.
        spent: Seconds that earlier runs took, before this one resumed.
        clock: Returns seconds.
    """

    seconds: float | None
    spent: float = 0.0
    clock: Callable[[], float] = time.monotonic
    _since: float = field(init=False)

    def __post_init__(self) -> None:
        self._since = self.clock()

    @property
    def used(self) -> float:
        """Seconds so far."""
        return self.spent + self.clock() - self._since

    @property
    def left(self) -> float | None:
        """Seconds that are left, at least 0; None without a limit."""
        return None if self.seconds is None else max(0.0, self.seconds - self.used)

    def share(self, part: float) -> float | None:
        """The seconds of a share, or what is left if that is less; None without a limit."""
        return None if self.seconds is None or self.left is None else min(part * self.seconds, self.left)

    def count(self, part: float, cost: float, *, least: int) -> int | None:
        """How many items of a cost in seconds are in a share, at least `least`; None without a limit."""
        seconds = self.share(part)
        return None if seconds is None else max(least, int(seconds / cost))

    def before(self, seconds: float) -> float | None:
        """What is left before so many seconds at the end; None without a limit."""
        return None if self.left is None else max(0.0, self.left - seconds)


FILE = "refresh.json"


@dataclass(slots=True)
class RefreshState:
    """The stages that are done, and what they found.

    Attributes:
        folder: The work folder.
        identity: What the run depends on.
        done: What each finished stage found, by its name.
        seconds: What the finished stages took, together.
    """

    folder: Path
    identity: dict[str, Any]
    done: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @classmethod
    def open(cls, folder: Path, identity: dict[str, Any], *, restart: bool) -> RefreshState:
        """Read the state of a folder, or begin there.

        Raises:
            OptionError: If the folder has a run of something else, or files that are not of a refresh.
        """
        path = folder / FILE
        if path.exists() and not restart:
            stored = json.loads(path.read_text("utf-8"))
            if stored["identity"] != identity:
                other = sorted(key for key in identity if stored["identity"].get(key) != identity[key])
                raise OptionError(
                    "restart",
                    f"{folder} has a refresh with other values of: {', '.join(other)}. Give 'restart' to begin again, "
                    f"or another 'work' folder.",
                )
            return cls(folder, identity, stored["done"], stored["seconds"])
        if path.exists():
            shutil.rmtree(folder)
        elif folder.exists() and any(folder.iterdir()):
            raise OptionError("work", f"{folder} has files, and no refresh wrote them. Give an empty folder.")
        folder.mkdir(parents=True, exist_ok=True)
        state = cls(folder, identity)
        state._write()
        return state

    def finish(self, stage: str, found: Any, *, seconds: float) -> None:
        """Note that a stage is done, and what the run took so far."""
        self.done[stage] = found
        self.seconds = seconds
        self._write()

    def _write(self) -> None:
        record = {"identity": self.identity, "done": self.done, "seconds": round(self.seconds, 3)}
        write_atomically(self.folder / FILE, json.dumps(record, indent=2))


MAX_HELD_OUT = 2000
"""Entities kept out of training, of a tenth of the base, at most: enough for an interval of two points."""

MAX_MEASURED = 20_000
"""Entities among which the aliases of those are linked."""

LEAST_MENTIONS = 50
"""Entities with aliases that must be kept out for a verdict."""

HEADER = "id\tname\ttype\taliases"

_OUTSIDE = str.maketrans("\t\n\r", "   ")


@dataclass(frozen=True, slots=True)
class BaseFiles:
    """Two tables that `ingest` reads.

    Attributes:
        learned: Entities to learn from.
        measured: Entities that were kept out, and others to tell them from.
        n_learned: Entities of the first.
        n_names: Their names.
        n_measured_names: Names of the second.
        n_held_out: Entities kept out.
        n_with_aliases: Those of them that have aliases, the mentions of the measurement.
        has_types: Whether an entity to learn from has coarse types.
    """

    learned: Path
    measured: Path
    n_learned: int
    n_names: int
    n_measured_names: int
    n_held_out: int
    n_with_aliases: int
    has_types: bool


def write_base_files(base: Sequence[Path], folder: Path, *, seed: int, max_errors: int | None) -> BaseFiles:
    """Read a base once and write both tables.

    Args:
        base: Its files.
        folder: Where to write `learned.tsv` and `measured.tsv`.
        seed: Determines the samples.
        max_errors: Bad rows that the base may have.

    Raises:
        InputError: If the base cannot be read, has too many bad rows, or fewer than two entities have aliases.
    """
    rng = random.Random(seed)
    with open_reader([str(path) for path in base]) as reader:
        entities = list(reader.read(ReadReport(max_errors=max_errors)))
    with_aliases = [entity for entity in entities if len(set(entity.names())) > 1]
    if len(with_aliases) < 2:
        message = (
            f"{len(with_aliases)} of its {len(entities)} entities have an alias. A refresh learns which names mean the "
            f"same: it needs a base with aliases."
        )
        raise InputError(", ".join(map(str, base)), None, message)
    # By the split of the id, so that a later release keeps out the same entities.
    test: list[Entity] = []
    rest: list[Entity] = []
    for entity in entities:
        (test if split_of(entity.entity_id) in TEST_SPLITS else rest).append(entity)
    measured = rng.sample(test, min(len(test), MAX_HELD_OUT))
    held_out = {entity.entity_id for entity in measured}
    learned = [entity for entity in entities if entity.entity_id not in held_out]
    others = rng.sample(rest, min(len(rest), MAX_MEASURED - len(measured)))
    n_names = _write(folder / "learned.tsv", learned)
    n_measured_names = _write(folder / "measured.tsv", chain(measured, others))
    return BaseFiles(
        folder / "learned.tsv",
        folder / "measured.tsv",
        len(learned),
        n_names,
        n_measured_names,
        len(held_out),
        sum(len(set(entity.names())) > 1 for entity in measured),
        any(entity.types for entity in learned),
    )


def write_some(table: Path, path: Path, rows: Sequence[int]) -> Path:
    """Write some rows of such a table, by their numbers from 0; returns the new one."""
    wanted = {number + 1 for number in rows} | {0}
    with table.open(encoding="utf-8") as source, path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(line for number, line in enumerate(source) if number in wanted)
    return path


def _write(path: Path, entities: Iterable[Entity]) -> int:
    """Write a table; returns the number of names."""
    n_names = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(HEADER + "\n")
        for entity in entities:
            lists = join_list(entity.types), join_list(dict.fromkeys(entity.aliases))
            cells = (entity.entity_id, entity.canonical_name, *lists)
            file.write("\t".join(cell.translate(_OUTSIDE) for cell in cells) + "\n")
            n_names += len(set(entity.names()))
    return n_names


WORDS = 12_000
"""Words that are kept, at most."""

PAIRS = 8_000
"""Pairs of them."""

LEAST_LETTERS = 3

CHUNK = 512
"""Phrases that are encoded between two looks at the clock."""

CERTAIN = 0.6
"""Probability of a type from which the start's own prediction is taken for the type of a word."""


def vocabulary_phrases(tokenizer: Path, *, seed: int) -> list[str]:
    """Words of a tokenizer, alone and in pairs, in random order.

    Args:
        tokenizer: Its tokenizer.json.
        seed: Determines which.
    """
    vocabulary = json.loads(tokenizer.read_text("utf-8"))["model"]["vocab"]
    pieces = list(vocabulary) if isinstance(vocabulary, dict) else [piece for piece, *_ in vocabulary]
    # SentencePiece marks the start of a word, WordPiece what continues one.
    has_starts = any(piece.startswith("▁") for piece in pieces)
    words = sorted({piece.lstrip("▁") for piece in pieces if piece.startswith("▁") or not has_starts})
    words = [word for word in words if len(word) >= LEAST_LETTERS and word.isalpha()]
    rng = random.Random(seed)
    alone = rng.sample(words, min(len(words), WORDS))
    pairs = [" ".join(rng.sample(words, 2)) for _ in range(PAIRS if len(words) > 1 else 0)]
    phrases = list(dict.fromkeys([*alone, *pairs]))
    rng.shuffle(phrases)
    return phrases


def write_phrases(path: Path, phrases: list[str]) -> None:
    """Write phrases as `FitRequest.distil` reads them."""
    path.write_text("".join(f"NP__{phrase}\t1\n" for phrase in phrases), "utf-8")


def write_predicted_types(
    path: Path,
    phrases: Sequence[str],
    encoder: Encoder,
    *,
    is_over: Callable[[], bool] = lambda: False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[int, int]:
    """Write the phrases whose type an encoder is sure of, as `train_head` reads typed names.

    Args:
        path: The file.
        phrases: In random order.
        encoder: Predicts the types.
        is_over: Whether the time for it is over; the other phrases are left out then.
        on_progress: Called with the phrases done, and all.

    Returns:
        How many were written; and how many were encoded.
    """
    rows: list[str] = []
    done = 0
    while done < len(phrases) and not (done and is_over()):
        some = phrases[done : done + CHUNK]
        found = encoder.encode(some)
        done += len(some)
        on_progress(done, len(phrases))
        if found.type_probabilities is None:
            continue
        marginals = type_marginals(found.type_probabilities)
        best = marginals.argmax(axis=1)
        sure = np.flatnonzero(marginals[np.arange(len(best)), best] >= CERTAIN)
        rows += [f"{some[i]}\t{ENTITY_TYPES[best[i]]}\n" for i in sure.tolist()]
    path.write_text("name\ttype\n" + "".join(rows), "utf-8")
    return len(rows), done


MICRO_BATCH = 64

REPEATS = 3


FORWARD = 1 / 3
"""The share of a forward pass in a pass with gradients."""


def seconds_a_step(base: BaseModel, names: Sequence[str], batch_size: int, device: torch.device) -> tuple[float, float]:
    """Seconds of a step with `batch_size` phrases and the phrases that are distilled with them; and those of encoding
    one name.

    Args:
        base: The network.
        names: Names like those of the run; at least one.
        batch_size: Phrases of a step.
        device: Where the run takes place.
    """
    network = base.network.to(device).train()
    sample = [names[i % len(names)] for i in range(MICRO_BATCH)]
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        pool_phrases(network, base.tokenizer, sample, max_tokens=24, micro_batch=MICRO_BATCH).sum().backward()  # type: ignore[no-untyped-call]
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
        network.zero_grad(set_to_none=True)
    # The phrases that are distilled go through the network and, without gradients, through its start.
    phrases = batch_size + 2 * BatchOptions().n_plain
    return min(seconds) * phrases / MICRO_BATCH, min(seconds) / MICRO_BATCH * FORWARD
