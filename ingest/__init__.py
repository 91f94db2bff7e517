"""Read bases and load them into collections.

    from ingest import load_base

    result = load_base("umls.tsv", "umls")

Names resolve on first use (PEP 562), so that `import ingest` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pearl_qdrant._lazy import lazy_exports

if TYPE_CHECKING:
    from ingest.base.new_entity import make_entity
    from ingest.base.scan import ScanResult
    from ingest.formats import ReadOptions
    from ingest.load.events import LoadEvents
    from ingest.load.load_base import load_base, load_or_update_base, scan_base, update_base
    from ingest.load.read_entities import read_entities
    from ingest.load.results import IngestResult, UpdateResult
    from ingest.readers.tables.columns import TableColumns
    from ingest.spread.load import load_base_in_parts

__all__ = [
    "IngestResult",
    "LoadEvents",
    "ReadOptions",
    "ScanResult",
    "TableColumns",
    "UpdateResult",
    "load_base",
    "load_base_in_parts",
    "load_or_update_base",
    "make_entity",
    "read_entities",
    "scan_base",
    "update_base",
]

_MODULE_OF = {
    "IngestResult": "ingest.load.results",
    "LoadEvents": "ingest.load.events",
    "ReadOptions": "ingest.formats",
    "ScanResult": "ingest.base.scan",
    "TableColumns": "ingest.readers.tables.columns",
    "UpdateResult": "ingest.load.results",
    "load_base": "ingest.load.load_base",
    "load_base_in_parts": "ingest.spread.load",
    "load_or_update_base": "ingest.load.load_base",
    "make_entity": "ingest.base.new_entity",
    "read_entities": "ingest.load.read_entities",
    "scan_base": "ingest.load.load_base",
    "update_base": "ingest.load.load_base",
}


__getattr__, __dir__ = lazy_exports(__name__, _MODULE_OF)
