"""What `train_judge` is asked to do; imports nothing heavy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_MODEL
from training.options import Count, Rate, Share, StrPath, check_bounds

_DO_NOT_COUNT = ("examples", "out", "wordnet", "start", "restart", "device", "save_seconds")
"""Fields that a resumed run may have otherwise: paths, and where it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRequest:
    """A training of the judge of two names.

    Attributes:
        examples: JSON Lines of entities with near names, and of given mentions (`training.judge.examples`).
        out: Folder of the judge: judge.safetensors, judge.onnx, a card; state and log in its folder `training`.
        wordnet: WordNet's dict folder, for made differences; none are made without it.
        base_model: Encoder whose word table and first layers the judge starts from: a shipped name or a checkpoint.
        start: A judge to start from: a folder that this stage wrote.
        layers: First layers of the encoder that the judge has, all where there are fewer.
        pairs: Pairs that it learns from.
        batch_size: Pairs per step.
        learning_rate: Peak learning rate of the layers; what starts from random weights learns five times as fast.
        given_share: Share of the mentions that are given ones, where there are some.
        precision: "bf16" autocast, "fp32", or "auto": bf16 where the device computes in it.
        save_seconds: Seconds between two saved states, at most, plus one step.
        restart: Start over, even if `out` holds the state of a run.
        device: auto, cpu, cuda or cuda:N.
        seed: Determines everything.
    """

    examples: StrPath
    out: StrPath
    wordnet: StrPath | None = None
    base_model: StrPath = DEFAULT_MODEL
    start: StrPath | None = None
    layers: Count = 4
    pairs: Count = 500_000
    batch_size: Count = 64
    learning_rate: Rate = 1.2e-4
    given_share: Share = 0.5
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    save_seconds: Rate = 300.0
    restart: bool = False
    device: str = DEFAULT_DEVICE
    seed: int = 0

    def check(self) -> None:
        """Refuse values that are out of bounds. Raises OptionError."""
        check_bounds(self)

    def identity(self) -> dict[str, Any]:
        """The settings that affect what is learnt; a run resumes only with the same ones."""
        return {name: value for name, value in asdict(self).items() if name not in _DO_NOT_COUNT} | {
            "base_model": str(self.base_model)
        }


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
