"""Variants of a phrase that mean the same, on three levels: characters, tokens, phrases. Seeded, never empty.

`Augmenter` (`training.augment.draw`) draws the level as the paper does. The functions here need no resources.

Source: PEARL (Chen et al. 2024), section 3.1.
"""

from __future__ import annotations

from training.augment.surface import (
    abbreviate,
    augment,
    augment_or_abbreviate,
    edit_character,
    respell,
    swap_words,
)

__all__ = ["abbreviate", "augment", "augment_or_abbreviate", "edit_character", "respell", "swap_words"]
