"""Defaults of the evaluation, apart from what is heavy to import."""

from __future__ import annotations

DEFAULT_SEEDS = 3
DEFAULT_DISTRACTORS = 100_000
DEFAULT_EPOCHS = 100
