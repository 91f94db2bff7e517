"""What counts as a hard negative; imports nothing heavy, so that the command line can show the defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MiningConfig:
    """What counts as a hard negative.

    Attributes:
        kept: Hard negatives kept per phrase, at most.
        pool: Candidates per phrase that are encoded and compared: those at the smallest edit distance.
        neighbours: Neighbours compared on each side in each sorted order; 0 leaves only edit distance 2.
        max_share: Edit distance of a candidate divided by the length of the longer phrase, at most; in (0, 1].
        max_cosine: A candidate with a higher teacher cosine means the same and is skipped.
        different_type: Only candidates whose known phrase types have none in common with the phrase's.
        threads: Threads of rapidfuzz.
    """

    kept: int = 12
    pool: int = 32
    neighbours: int = 8
    max_share: float = 0.5
    max_cosine: float = 0.9
    different_type: bool = False
    threads: int = 2

    def __post_init__(self) -> None:
        if not 1 <= self.kept <= self.pool:
            raise ValueError(f"kept must be between 1 and pool ({self.pool}), not {self.kept}")
        if not 0 < self.max_share <= 1:
            raise ValueError(f"max_share must be in (0, 1], not {self.max_share}")
