"""Join embedded collections that were built apart into one, without encoding or indexing anything again.

A shard of Qdrant Edge is a set of segments, each with its own points, graph, payload indexes and n-grams, and a search
looks into each and merges by score. So the segments of the parts become the segments of one shard: hard links where the
file system has them, which takes a moment whatever the size. N-grams are weighted over all segments of a shard, so the
collection answers as one that was built in one piece; a store that searches several shards would weigh them in each
shard alone (docs/experiments/server.md).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.content import (
    Files,
    new_token,
    read_content,
    remove_other_files,
    share_files,
    write_content,
)

_SEGMENTS = "segments"
_POINTS = ("id_tracker.mappings", "mutable_id_tracker.mappings")  # a segment without either is empty
_CONFIG = "edge_config.json"


def join_parts(target: Path, parts: Sequence[Path], name: str) -> None:
    """Give a new, empty, closed collection the points, graphs and indexes of others, all by their folders.

    The parts have one model, quantisation and layout, and disjoint ids; afterwards they may be deleted. If this fails,
    or the process is killed, `target` is not usable: delete it and begin with another one.

    Raises:
        StoreFullError: If there is no space for what cannot be linked.
    """
    manifest, before = read_content(target, name)
    contents = [read_content(part, name)[1] for part in parts]
    with edge_shard.edge_errors(name, "joining its parts"):
        files = Files()
        for part, content in zip(parts, contents, strict=True):
            added = _joined(files, content.files)
            share_files(part, added, target)
            files |= added
        with_graph = next((i for i, content in enumerate(contents) if content.index is not None), 0)
        config = Files({_CONFIG: contents[with_graph].files[_CONFIG]})
        share_files(parts[with_graph], config, target)
        files |= config
        joined = replace(before, token=new_token(), files=files)
        if states := [content.index for content in contents if content.index is not None]:
            n_vectors = sum(max(0, state.vectors - state.rewritten) for state in states)
            joined = replace(joined, index=replace(states[0], vectors=n_vectors, rewritten=0, parts=len(parts)))
        write_content(target, manifest, joined)
        remove_other_files(target, joined)


def _joined(files: Files, more: Files) -> Files:
    """What the segments of another part add to a shard; of empty segments a shard has one."""
    by_segment: dict[str, Files] = {}
    for path, file in more.items():
        folder, _, rest = path.partition("/")
        if folder == _SEGMENTS and "/" in rest:
            segment, _, name = rest.partition("/")
            by_segment.setdefault(segment, Files())[name] = file
    segments = {path.split("/")[1] for path in files}
    has_empty = any(not any(f"{_SEGMENTS}/{one}/{name}" in files for name in _POINTS) for one in segments)
    added = Files()
    for segment, own in by_segment.items():
        is_empty = not any(name in own for name in _POINTS)
        if is_empty and has_empty:
            continue
        has_empty = has_empty or is_empty
        # parts that began as copies of one collection have segments of one name
        placed = segment if segment not in segments else str(uuid.uuid4())
        added |= {f"{_SEGMENTS}/{placed}/{name}": file for name, file in own.items()}
    return added
