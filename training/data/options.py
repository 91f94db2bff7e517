"""How batches are made of examples; imports nothing heavy, so that the command line can show the defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """How batches are made of examples.

    Attributes:
        batch_size: Phrases encoded per step on all processes together: anchors, positives and hard negatives.
            PEARL: 512.
        epochs: How often each example is an anchor. PEARL: 2.
        n_negatives: Hard negatives drawn for each anchor. PEARL: 2.
        neighbours: Alphabetical neighbours drawn together; 1 draws each example by itself, once per epoch.
        paper_settings: As the paper and its code: no aliases, one label per phrase, and each hard negative is an anchor
            with a variant of its own.
        n_plain: Plain phrases distilled per step and process, if there are any.
        misspelt_plain: Share of the plain phrases that the network sees with one character edited.
        seed: Determines all batches.
    """

    batch_size: int = 512
    epochs: float = 2.0
    n_negatives: int = 2
    neighbours: int = 1
    paper_settings: bool = False
    n_plain: int = 64
    misspelt_plain: float = 0.0
    seed: int = 0

    def n_pairs(self, *, has_negatives: bool, world_size: int) -> int:
        """Anchors per batch and process: 85 for a batch of 512 with two hard negatives that have variants."""
        each = self.n_negatives if has_negatives else 0
        phrases_each = 2 * (1 + each) if self.paper_settings else 2 + each
        return max(2, self.batch_size // (phrases_each * world_size))
