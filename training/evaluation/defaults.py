"""Defaults of the evaluation, in a module that is cheap to import."""

from __future__ import annotations

DEFAULT_SEEDS = 3
DEFAULT_DISTRACTORS = 100_000
DEFAULT_EPOCHS = 100
DEFAULT_SPLITS = (7, 8)
DEFAULT_MENTIONS = 5000
DEFAULT_NIL_SHARES = (0.0, 0.2, 0.5)
