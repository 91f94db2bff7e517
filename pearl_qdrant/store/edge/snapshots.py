"""Shard snapshots that a Qdrant server made, opened as an embedded shard."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from qdrant_edge import EdgeShard

from pearl_qdrant.errors import StoreRejectedError
from pearl_qdrant.store.edge import shard as edge_shard

_SHARD = {"segments", "wal", "edge_config.json"}
"""What a shard has; a server's snapshot has more beside it, of replicas and clocks."""


def unpack_snapshot(snapshot: Path, shard: Path) -> None:
    """Unpack a server's snapshot to a folder that the engine can load as a shard.

    Args:
        snapshot: The server's file, whole: its checksum was compared.
        shard: Where to.

    Raises:
        StoreRejectedError: If the server has segments of another version; the message is a part of a sentence.
        StoreError: If the engine cannot read it.
    """
    with edge_shard.edge_errors(shard.parent.name, "unpacking a snapshot"):
        EdgeShard.unpack_snapshot(str(snapshot), str(shard))
    for path in shard.iterdir():
        if path.name not in _SHARD:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    with tempfile.TemporaryDirectory(prefix="pearl-qdrant-") as folder:
        edge_shard.create_shard(Path(folder) / "shard", 1)
        ours = _segment_versions(Path(folder) / "shard")
    theirs = _segment_versions(shard)
    if theirs != ours:
        raise StoreRejectedError(
            f"the server has segments of version {', '.join(sorted(theirs)) or '(none)'}, and the engine here writes "
            f"{', '.join(sorted(ours))}"
        )


def _segment_versions(shard: Path) -> set[str]:
    """Return the versions of the segments in a shard's folder."""
    return {file.read_text("utf-8").strip() for file in shard.glob("segments/*/version.info")}
