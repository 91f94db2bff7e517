"""Bases to entities to points: readers, the scan, and the load.

    from ingest import load_base

    result = load_base("umls.tsv", "umls")

Names resolve on first use (PEP 562), so that `import ingest` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ingest.formats import ReadOptions
    from ingest.load_events import LoadEvents
    from ingest.loading import load_base, scan_base, update_base
    from ingest.pipeline import IngestResult
    from ingest.scan import ScanResult
    from ingest.tsv_layout import TsvColumns
    from ingest.update import UpdateResult

__all__ = [
    "IngestResult",
    "LoadEvents",
    "ReadOptions",
    "ScanResult",
    "TsvColumns",
    "UpdateResult",
    "load_base",
    "scan_base",
    "update_base",
]

_MODULE_OF = {
    "IngestResult": "ingest.pipeline",
    "LoadEvents": "ingest.load_events",
    "ReadOptions": "ingest.formats",
    "ScanResult": "ingest.scan",
    "TsvColumns": "ingest.tsv_layout",
    "UpdateResult": "ingest.update",
    "load_base": "ingest.loading",
    "scan_base": "ingest.loading",
    "update_base": "ingest.loading",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
