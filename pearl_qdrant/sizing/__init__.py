"""How long a base of so many names takes, what it costs, and how much disk and memory it needs; `pearl-qdrant size`.

    from pearl_qdrant.sizing import Machines, estimate_size

    print(estimate_size(150e6, Machines(cores=64, gpus=8)).build_gpu_hours)

The arithmetic is in `estimate.py`, its constants in `rates.tsv`, one measured rate a row with machine and source. Names
resolve on first use (PEP 562).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pearl_qdrant._lazy import lazy_exports

if TYPE_CHECKING:
    from pearl_qdrant.sizing.estimate import Estimate, Footprint, Machines, estimate_size
    from pearl_qdrant.sizing.rates import Rate, read_rates
    from pearl_qdrant.sizing.table import format_estimates

__all__ = ["Estimate", "Footprint", "Machines", "Rate", "estimate_size", "format_estimates", "read_rates"]

_MODULE_OF = {
    "Estimate": "pearl_qdrant.sizing.estimate",
    "Footprint": "pearl_qdrant.sizing.estimate",
    "Machines": "pearl_qdrant.sizing.estimate",
    "Rate": "pearl_qdrant.sizing.rates",
    "estimate_size": "pearl_qdrant.sizing.estimate",
    "format_estimates": "pearl_qdrant.sizing.table",
    "read_rates": "pearl_qdrant.sizing.rates",
}


__getattr__, __dir__ = lazy_exports(__name__, _MODULE_OF)
