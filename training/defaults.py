"""Defaults that several stages share, each written once; imports nothing, so that the command line can show them."""

from __future__ import annotations

MIN_COUNT = 2
"""Occurrences that a phrase of a corpus needs. PEARL, section 3.3: phrases that appear less than twice are removed."""

AVERAGE_RATIO = 0.5
"""Share of the fine-tuned encoder in an average, as in PEARL."""
