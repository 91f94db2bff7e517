"""What `train_judge` is asked to do; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pearl_qdrant.options import Count, Device, Options
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_MODEL
from training.options import Rate, Share, StrPath

_DO_NOT_COUNT = ("examples", "out", "wordnet", "start", "restart", "device", "save_seconds")
"""Fields that a resumed run may have otherwise: paths, and where it runs."""


class JudgeRequest(Options):
    """A training of the judge of two names."""

    examples: StrPath
    """JSON Lines of entities with near names, and of given mentions (`training.judge.examples`)."""
    out: StrPath
    """Folder of the judge: judge.safetensors, judge.onnx, a card; state and log in its folder `training`."""
    wordnet: StrPath | None = None
    """WordNet's dict folder, for made differences; none are made without it."""
    base_model: StrPath = DEFAULT_MODEL
    """Encoder whose word table and first layers the judge starts from: a shipped name or a checkpoint."""
    start: StrPath | None = None
    """A judge to start from: a folder that this stage wrote, or a model with a judge, in 8 bits; it may have fewer
    layers."""
    kept: Share = 0.0
    """Share of the weights of `start` in the mean that is written (Wortsman et al. 2022); 0 to 0.5 where it learns what
    `start` had not seen."""
    layers: Count = 6
    """First layers of the encoder that the judge has, all where there are fewer; those that `start` lacks say nothing
    at first."""
    pairs: Count = 500_000
    """Pairs that it learns from."""
    batch_size: Count = 64
    """Pairs per step."""
    learning_rate: Rate = 1.2e-4
    """Peak learning rate of the layers; what starts from random weights learns five times as fast."""
    given_share: Share = 0.5
    """Share of the mentions that are given ones, where there are some."""
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """"bf16" autocast, "fp32", or "auto": bf16 where the device computes in it."""
    save_seconds: Rate = 300.0
    """Seconds between two saved states, at most, plus one step."""
    restart: bool = False
    """Start over, even if `out` holds the state of a run."""
    device: Device = DEFAULT_DEVICE
    """auto, cpu, cuda or cuda:N."""
    seed: int = 0
    """Determines everything."""

    def identity(self) -> dict[str, Any]:
        """The settings that affect what is learnt; a run resumes only with the same ones."""
        return self.model_dump(exclude=set(_DO_NOT_COUNT)) | {"base_model": str(self.base_model)}


@dataclass(frozen=True, slots=True)
class JudgeResult:
    """What a training of the judge left.

    Attributes:
        judge: The folder written.
        steps: Optimizer steps of the whole run.
        groups: Entities that it learnt from.
        given: Given mentions that it learnt from.
    """

    judge: Path
    steps: int
    groups: int
    given: int
