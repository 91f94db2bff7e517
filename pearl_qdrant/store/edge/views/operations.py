"""Operations on the points of a shard, in a form that a reader repeats: the writer notes each in a journal.

A reader that repeats the operations of the writer on the files from which the writer began has the same points.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import msgspec
from qdrant_edge import EdgeShard, Filter, UpdateOperation

from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.child_process import receive
from pearl_qdrant.store.edge.points import PointBatch
from pearl_qdrant.store.protocol import PointFilter
from pearl_qdrant.store.schema import FILTER_FIELD

UPSERT, DELETE, DELETE_MATCHING, REPLACE = b"U", b"D", b"M", b"R"
"""Write a batch; delete points by id; delete the points that pass a filter; replace payloads."""

_FRAME = struct.Struct("!cI")  # as `child_process.send` writes it

_read_texts = msgspec.json.Decoder(tuple[list[str], list[dict[str, Any]]]).decode


def to_filter(point_filter: PointFilter | None) -> Filter | None:
    """Make Edge's filter; None if there is no condition."""
    if point_filter is None:
        return None
    wanted = {
        "entity_id": point_filter.entity_ids,
        "name": point_filter.names,
        FILTER_FIELD: point_filter.types,
    }
    must = [edge_shard.any_of(field, values) for field, values in wanted.items() if values]
    return Filter(must=[*must]) if must else None


def frame(kind: bytes, body: bytes) -> bytes:
    """Pack an operation for the journal."""
    return _FRAME.pack(kind, len(body)) + body


def upsert_body(batch: PointBatch) -> bytes:
    """Pack a batch of points. Another program may read the journal, so its texts are JSON."""
    return batch.pack(msgspec.json.encode)


def delete_body(ids: Sequence[str]) -> bytes:
    """Pack the ids of points to delete."""
    return msgspec.json.encode(list(ids))


def delete_matching_body(point_filter: PointFilter) -> bytes:
    """Pack the filter of points to delete."""
    return msgspec.json.encode(point_filter)


def replace_body(payloads: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Pack new payloads by the ids of their points."""
    return msgspec.json.encode(payloads)


def replay(shard: EdgeShard, journal: bytes) -> int:
    """Repeat the operations of a journal; returns how many there were.

    Raises:
        ValueError: If the journal is damaged.
        Exception: If Edge fails.
    """
    stream, n_done = BytesIO(journal), 0
    while stream.tell() < len(journal):
        read = receive(stream)
        if read is None:
            raise ValueError("its journal is cut off")
        _apply(shard, *read)
        n_done += 1
    return n_done


def _apply(shard: EdgeShard, kind: bytes, body: bytes) -> None:
    if kind == UPSERT:
        edge_shard.upsert(shard, PointBatch.unpack(body, _read_texts))
    elif kind == DELETE:
        shard.update(UpdateOperation.delete_points([*msgspec.json.decode(body, type=list[str])]))
    elif kind == DELETE_MATCHING:
        selected = to_filter(msgspec.json.decode(body, type=PointFilter))
        assert selected is not None  # the writer had a condition
        shard.update(UpdateOperation.delete_points_by_filter(selected))
    elif kind == REPLACE:
        for point_id, payload in msgspec.json.decode(body, type=dict[str, dict[str, Any]]).items():
            shard.update(UpdateOperation.overwrite_payload([point_id], payload))
    else:
        raise ValueError(f"its journal has an unknown operation {kind!r}")
