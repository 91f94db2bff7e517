"""Read bases and load them into collections.

    from ingest import load_base

    result = load_base("umls.tsv", "umls")

Names resolve on first use (PEP 562), so that `import ingest` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ingest.base.new_entity import make_entity
    from ingest.base.scan import ScanResult
    from ingest.formats import ReadOptions
    from ingest.load.events import LoadEvents
    from ingest.load.load_base import load_base, scan_base, update_base
    from ingest.load.pipeline import IngestResult
    from ingest.load.update import UpdateResult
    from ingest.readers.tables.columns import TableColumns

__all__ = [
    "IngestResult",
    "LoadEvents",
    "ReadOptions",
    "ScanResult",
    "TableColumns",
    "UpdateResult",
    "load_base",
    "make_entity",
    "scan_base",
    "update_base",
]

_MODULE_OF = {
    "IngestResult": "ingest.load.pipeline",
    "LoadEvents": "ingest.load.events",
    "ReadOptions": "ingest.formats",
    "ScanResult": "ingest.base.scan",
    "TableColumns": "ingest.readers.tables.columns",
    "UpdateResult": "ingest.load.update",
    "load_base": "ingest.load.load_base",
    "make_entity": "ingest.base.new_entity",
    "scan_base": "ingest.load.load_base",
    "update_base": "ingest.load.load_base",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
