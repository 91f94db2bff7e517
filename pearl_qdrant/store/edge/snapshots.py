"""Shard snapshots that a Qdrant server made, opened as an embedded collection."""

from __future__ import annotations

import shutil
from pathlib import Path

from qdrant_edge import EdgeShard

from pearl_qdrant.errors import StoreRejectedError
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.content import (
    SHARD_FOLDER,
    Content,
    IndexState,
    store_files,
    write_content,
)
from pearl_qdrant.store.schema import Manifest
from pearl_qdrant.store.versions import VersionMark

_SHARD = {"segments", "wal", "edge_config.json"}
"""What a shard has; a server's snapshot has more beside it, of replicas and clocks."""


def make_from_snapshot(
    folder: Path, snapshot: Path, manifest: Manifest, index: IndexState, version: VersionMark
) -> None:
    """Make the folder of a collection of a server's snapshot.

    Args:
        folder: Where to; it exists, and is empty.
        snapshot: The server's file, whole: its checksum was compared.
        manifest: The collection's.
        index: The state of its graph.
        version: What it says of itself.

    Raises:
        StoreRejectedError: If the engine cannot open it, as that of a newer server; the message is a sentence part.
        StoreError: If there is too little space or memory, or files cannot be written.
    """
    shard = folder / SHARD_FOLDER
    with edge_shard.edge_errors(manifest.collection, "creating it"):
        try:
            EdgeShard.unpack_snapshot(str(snapshot), str(shard))
            for path in shard.iterdir():
                if path.name not in _SHARD:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            opened = EdgeShard.load(str(shard))  # it repeats what is in the log alone
            opened.flush()
            opened.close()
        except BaseException as error:
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # Edge's own
                raise
            if edge_shard.known_error(str(error), manifest.collection, "creating it") is not None:
                raise
            raise StoreRejectedError(f"the engine here cannot open it ({error})") from error
        files = store_files(folder, shard, {})
        shutil.rmtree(shard)
        write_content(folder, manifest, Content(files, index=index, version=version))
