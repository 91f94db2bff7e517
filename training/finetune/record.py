"""The figures of one step of fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepRecord:
    """Figures of one step.

    Attributes:
        step: From 1.
        contrastive: Contrastive loss, in nats.
        type_loss: Type loss, in nats, before its weight.
        distillation: One minus the mean cosine of the plain phrases, before its weight.
        learning_rate: Learning rate of the phrase encoder.
        seconds: Duration of the step, waiting included.
        waited: Share of the duration spent waiting for data, in [0, 1].
        phrases: Phrases encoded by all processes.
    """

    step: int
    contrastive: float
    type_loss: float
    distillation: float
    learning_rate: float
    seconds: float
    waited: float
    phrases: int


@dataclass(frozen=True, slots=True)
class UlrStepRecord(StepRecord):
    """Figures of one step with the terms of ULR.

    Attributes:
        misad: MiSAD before its weight.
        mlm: MLM loss in nats, before its weight.
        spans: Sequences with an n-gram.
    """

    misad: float
    mlm: float
    spans: int
