"""Augmentation: makes variants of a phrase with the same meaning, from characters, tokens and paraphrases.

`Augmenter` (`training.augment.draw`) draws the level as in the paper. The functions here need no files. Variants are
seeded and never empty.

Source: PEARL (Chen et al. 2024), section 3.1.
"""

from __future__ import annotations

from training.augment.edits import (
    abbreviate,
    augment,
    augment_or_abbreviate,
    edit_character,
    respell,
    swap_words,
)

__all__ = ["abbreviate", "augment", "augment_or_abbreviate", "edit_character", "respell", "swap_words"]
