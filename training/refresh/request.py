"""What `refresh_model` is asked to do and what it returns; imports nothing heavy, for the command line."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_MAX_ERRORS, DEFAULT_MODEL
from training.options import Paths, StrPath

STAGES = ("base", "start", "phrases", "negatives", "steps", "fit", "average", "head", "export", "measure")
"""In their order."""

Verdict = Literal["better", "worse", "no difference", "not measured"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshRequest:
    """A refresh of an encoder, from a base to an exported model.

    Attributes:
        base: Files or folders of one base, in any format that `ingest` reads.
        out: Folder of the exported model.
        model: The encoder to start from: a shipped name or a checkpoint folder.
        work: Folder of everything in between, from which the same call resumes; by default `out` with `.work` added.
        minutes: Time for all stages. Fine-tuning takes as many steps as they leave time for, at least one; the other
            stages take fewer names where the machine is slow. What a model needs at least (a rebuilt start, one step,
            an export) is not cut.
        steps: Steps of fine-tuning, instead of `minutes`; then nothing is cut.
        batch_size: Phrases of a step.
        ratio: Share of the fine-tuned weights in the average with the start.
        distil: Phrases whose vectors stay where the start has them, as `train corpus` writes them; by default words of
            the start's vocabulary, alone and in pairs.
        name: Name of the model; by default that of the folder `out`.
        seed: Determines everything.
        restart: Begin again, even if `work` holds a run.
        max_errors: Bad rows that the base may have; None for any number.
        device: auto, cpu, cuda or cuda:N.
    """

    base: Paths
    out: StrPath
    model: str = DEFAULT_MODEL
    work: StrPath | None = None
    minutes: float = 15.0
    steps: int | None = None
    batch_size: int = 256
    ratio: float = 0.5
    distil: Paths = ()
    name: str | None = None
    seed: int = 0
    restart: bool = False
    max_errors: int | None = DEFAULT_MAX_ERRORS
    device: str = DEFAULT_DEVICE


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure of the refreshed model beside that of its start, on entities that were kept out of training.

    Attributes:
        task: What was measured.
        before: The start, in percent.
        after: The refreshed model, in percent.
        low: Lower bound of the 95 % interval of the difference, in points.
        high: Upper bound, in points.
    """

    task: str
    before: float
    after: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class RefreshResult:
    """What a refresh left.

    Attributes:
        model: Folder of the exported model.
        steps: Steps of fine-tuning.
        entities: Entities that it learned from.
        held_out: Entities that were kept out.
        has_new_head: Whether the type head was fitted to types of the base; else it is that of the start.
        figures: The model beside its start; empty if too few entities with aliases were kept out.
        verdict: Whether it helped, by the interval of the mean difference.
    """

    model: Path
    steps: int
    entities: int
    held_out: int
    has_new_head: bool
    figures: tuple[Compared, ...] = field(default=())
    verdict: Verdict = "not measured"


class RefreshEvents:
    """What a refresh reports while it runs. Override the methods of interest."""

    def stage(self, name: str, detail: str = "") -> None:
        """A stage of `STAGES` starts, or is done already (`detail`)."""

    def progress(self, done: int, total: int | None) -> None:
        """So much of the stage is done; None: it is not known how much there is. Fine-tuning has a bar of its own."""
