"""Defaults of `estimate_size` and of `pearl-qdrant size`."""

from __future__ import annotations

CORES = 16
GPUS = 1
NODE_MEMORY_GB = 64.0
REPLICAS = 2

DIM = 448
"""Width of the model that ships."""

NAMES_PER_SHARD = 4_500_000
"""One graph: the largest segment that the embedded store makes by itself holds 8 GB of whole vectors."""
