"""Settings for all tests."""

from __future__ import annotations

import os

# The models of the tests are tiny: torch is faster on one thread, above all where the cores are shared.
os.environ.setdefault("OMP_NUM_THREADS", "1")
