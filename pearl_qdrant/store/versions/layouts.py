"""The two layouts of a payload, and how both stores read both.

An embedded store keeps a point as one record with the indexed fields beside it (`edge.points.edge_payload`), a server
keeps plain fields (`NamePoint.to_payload`). Filters, facets and counts use the same fields in both. So a shard can move
between an embedded store and a server as it is, and points of both layouts may be in one collection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pearl_qdrant.errors import ManifestError
from pearl_qdrant.store.schema import NamePoint

RECORD_FIELD = "record"
"""The whole `NamePoint` as JSON, in the payload of an embedded store."""

_PLAIN_FIELD = "canonical_name"  # in every plain payload; a base may have a column of its own called `record`


class _Recorded(msgspec.Struct, gc=False):
    """What tells the layouts apart."""

    record: str | None = None
    canonical_name: str | None = None


_read_recorded = msgspec.json.Decoder(_Recorded).decode
_decode = msgspec.json.Decoder(NamePoint).decode


def read_record(payload: Mapping[str, Any] | None, collection: str) -> NamePoint:
    """Read the payload of an embedded store.

    Raises:
        ManifestError: If it was not written by pearl-qdrant.
    """
    try:
        return _decode((payload or {}).get(RECORD_FIELD, ""))
    except (msgspec.DecodeError, TypeError) as error:
        raise ManifestError(collection, f"a point has no valid record in its payload ({error})") from error


def read_payload(payload: Mapping[str, Any] | None, collection: str) -> NamePoint:
    """Read a payload of either layout; raises as `read_record`."""
    if payload and RECORD_FIELD in payload and _PLAIN_FIELD not in payload:
        return read_record(payload, collection)
    return NamePoint.from_payload(payload, collection)


class PayloadReader:
    """Reads payloads of either layout from a server's bytes, first as the layout of the one before."""

    def __init__(self, collection: str) -> None:
        self._collection = collection
        self._expects_record = False

    def read(self, payload: bytes | msgspec.Raw) -> NamePoint:
        """Read one payload; raises as `read_record`."""
        if self._expects_record:
            try:
                found = _read_recorded(payload)
            except (ValueError, RecursionError) as error:
                raise ManifestError(self._collection, f"the payload of a point is not valid: {error}") from error
            if found.canonical_name is None:
                return read_record({RECORD_FIELD: found.record or ""}, self._collection)
            self._expects_record = False
        try:
            return NamePoint.from_json(payload, self._collection)
        except ManifestError:
            try:
                found = _read_recorded(payload)
            except (ValueError, RecursionError):
                found = _Recorded()
            if found.record is None or found.canonical_name is not None:
                raise
            self._expects_record = True
            return read_record({RECORD_FIELD: found.record}, self._collection)
