"""Join embedded collections that were built apart into one, without encoding or indexing anything again.

A shard of Qdrant Edge is a set of segments, each with its own points, graph, payload indexes and n-grams, and a search
looks into each and merges by score. So the segments of the parts become the segments of one shard: hard links where the
file system has them, which takes a moment whatever the size. N-grams are weighted over all segments of a shard, so the
collection answers as one that was built in one piece; a store that searches several shards would weigh them in each
shard alone (docs/experiments/server.md).

What must hold: the parts share one model and layout, and no point id is in two of them.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from pearl_qdrant.store.atomic import write_atomically
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.checksums import write_checksums
from pearl_qdrant.store.edge.content import (
    INDEX_FILE,
    SHARD_FOLDER,
    Published,
    new_token,
    read_index_state,
    write_published,
)
from pearl_qdrant.store.edge.placing import copy_file, make_log, place, shard_files

_SEGMENTS = "segments"
_POINTS = ("id_tracker.mappings", "mutable_id_tracker.mappings")  # a segment without either is empty
_PLACING = "placing"


def join_parts(target: Path, parts: Sequence[Path], name: str) -> None:
    """Give a new, empty, closed collection the points, graphs and indexes of others.

    If this fails, or the process is killed, `target` is not usable: delete it and begin with another one. The parts are
    as before, and may be deleted afterwards: hard links keep what is shared.

    Args:
        target: Its folder.
        parts: Folders of closed collections of the same model, quantisation and layout; their ids are disjoint.
        name: Its name, for errors.

    Raises:
        StoreFullError: If there is no space for what cannot be linked.
        StoreError: If files cannot be read or written.
    """
    shard = target / SHARD_FOLDER
    try:
        shutil.rmtree(shard)
        shard.mkdir()
        for part in parts:
            _place_segments(part / SHARD_FOLDER, shard)
        with_graph = next((part for part in parts if read_index_state(part) is not None), parts[0])
        shutil.copyfile(with_graph / SHARD_FOLDER / "edge_config.json", shard / "edge_config.json")
        make_log(shard)
        states = [state for state in map(read_index_state, parts) if state is not None]
        if states:
            n_vectors = sum(max(0, state.vectors - state.rewritten) for state in states)
            joined = replace(states[0], vectors=n_vectors, rewritten=0, parts=len(parts))
            write_atomically(target / INDEX_FILE, json.dumps(asdict(joined)) + "\n")
        write_checksums(shard)
        write_published(target, Published(new_token()))
    except OSError as error:
        raise edge_shard.os_error(error, name, "joining its parts") from error


def _place_segments(source: Path, target: Path) -> None:
    """Link or copy the segments of a shard; of its empty ones, only the first that the target gets."""
    by_segment: dict[str, list[str]] = {}
    for name in shard_files(source):
        folder, _, rest = name.partition("/")
        if folder == _SEGMENTS and "/" in rest:
            by_segment.setdefault(rest.partition("/")[0], []).append(name)
    for segment, names in by_segment.items():
        is_empty = not any(f"{_SEGMENTS}/{segment}/{file}" in names for file in _POINTS)
        if is_empty and _has_empty_segment(target):
            continue
        _place(source, names, target / _PLACING)
        placed = target / _SEGMENTS / segment
        while placed.exists():  # parts that began as copies of one collection
            placed = placed.with_name(str(uuid.uuid4()))
        placed.parent.mkdir(exist_ok=True)
        (target / _PLACING / _SEGMENTS / segment).rename(placed)
        shutil.rmtree(target / _PLACING)


def _place(source: Path, names: Sequence[str], target: Path) -> None:
    """Link or copy files of a shard."""
    try:
        place(source, names, target, only_hard_links=True)
    except OSError:  # another disk, or a file system without hard links: then all of it is copied
        shutil.rmtree(target, ignore_errors=True)
        for name in names:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            copy_file(source / name, target / name)


def _has_empty_segment(shard: Path) -> bool:
    segments = shard / _SEGMENTS
    return segments.is_dir() and any(
        not any((segment / file).exists() for file in _POINTS) for segment in segments.iterdir()
    )
