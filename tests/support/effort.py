"""How thorough a run of the tests is: `make test` draws a quarter of the examples that `make test-slow` draws."""

from __future__ import annotations

import os

THOROUGH = os.environ.get("PEARL_QDRANT_TESTS") == "thorough"


def examples(number: int) -> int:
    """The examples of a property test, of this many in a thorough run."""
    return number if THOROUGH else max(10, number // 4)
