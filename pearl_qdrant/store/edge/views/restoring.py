"""Bring a collection whose writer was killed back to its last commit, so that no edit is half done.

The engine itself keeps all that was written, also the first half of an edit: new names of an entity beside its old
ones. What is published is a committed state. It takes the place of the shard.
"""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import suppress
from pathlib import Path

from pearl_qdrant.errors import StoreError
from pearl_qdrant.store.atomic import sync_folder, write_atomically
from pearl_qdrant.store.edge.checksums import read_checksums, sums_of
from pearl_qdrant.store.edge.ledger import LEDGER_FILE
from pearl_qdrant.store.edge.views.content import INDEX_FILE, MANIFEST_FILE, SHARD_FOLDER
from pearl_qdrant.store.edge.views.placing import make_log, place, without_log
from pearl_qdrant.store.edge.views.published import PUBLISHED_FOLDER, Published, boot_id

_NEW, _OLD = ".restored", ".replaced"  # folders beside the shard

log = logging.getLogger(__name__)


def restore(path: Path, name: str, state: Published) -> bool:
    """Replace the shard, the manifest and the ledger by a committed state.

    Args:
        path: Folder of the collection, which is locked, and was not closed.
        name: Its name.
        state: What is published of it.

    Returns:
        Whether it was done. Else the collection is as the killed process left it: nothing was published, a load was
        running, the machine has been restarted since, or the disk is full.
    """
    for folder in (_NEW, _OLD):
        shutil.rmtree(path / folder, ignore_errors=True)
    if state.folder is None or state.keeps_shard or not state.boot or state.boot != boot_id():
        return False
    try:
        _make_shard(path / PUBLISHED_FOLDER / state.folder, path / _NEW)
        _replace_shard(path)
        _restore_others(path, state)
    except (OSError, ValueError, StoreError) as error:
        shutil.rmtree(path / _NEW, ignore_errors=True)
        log.warning("Collection '%s' cannot be brought back to its last commit: %s", name, error)
        return False
    return True


def _make_shard(published: Path, shard: Path) -> None:
    """Make a shard of the published files."""
    sums = read_checksums(published)
    if sums is None or without_log(sums) != sums_of(published / SHARD_FOLDER):
        raise ValueError("its published files are not complete")
    place(published / SHARD_FOLDER, without_log(sums), shard, only_hard_links=True)
    make_log(shard)


def _replace_shard(path: Path) -> None:
    """Exchange the folders. If this process dies in between, the next one makes the shard again."""
    with suppress(FileNotFoundError):
        (path / SHARD_FOLDER).rename(path / _OLD)
    try:
        (path / _NEW).rename(path / SHARD_FOLDER)
    except OSError:
        (path / _OLD).rename(path / SHARD_FOLDER)
        raise
    sync_folder(path)
    shutil.rmtree(path / _OLD, ignore_errors=True)


def _restore_others(path: Path, state: Published) -> None:
    """Restore the manifest, the state of the graph, and the ledger, which only grows."""
    write_atomically(path / MANIFEST_FILE, state.manifest)
    if state.index:
        write_atomically(path / INDEX_FILE, state.index)
    else:
        (path / INDEX_FILE).unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        # Without a committed line, it may be the kept ledger of a collection that was made again.
        if 0 < state.ledger_bytes < (path / LEDGER_FILE).stat().st_size:
            os.truncate(path / LEDGER_FILE, state.ledger_bytes)
