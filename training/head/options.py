"""How a type head is fitted; imports nothing heavy, so that the command line can show the defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeadOptions:
    """How to fit a type head.

    Attributes:
        epochs: Passes over the data: per epoch as many names are drawn as there are.
        learning_rate: Peak of a cosine schedule.
        balance: 0 draws each name equally often, 1 each set of types; 0.5 weighs a set by the root of its size.
        max_each: Names of one set of types that are encoded, at most; the first ones by hash.
        hold_out: Whether a tenth of the names is kept for a test.
        seed: Determines everything.
    """

    epochs: int = 12
    learning_rate: float = 3e-3
    balance: float = 0.5
    max_each: int = 20_000
    hold_out: bool = True
    seed: int = 0
