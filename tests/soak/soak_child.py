"""The command line with small sizes, for the soak: ``python soak_child.py WORDS...``.

With small sizes, a base of a few thousand names has as many batches, checkpoints and compactions as one of millions,
without options in the product. With a job alone, as the embedded store calls its writing process, it is that process,
on a disk that `FULL_FLAG` fills.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

FULL_FLAG = "SOAK_FULL_FLAG"
"""Environment variable: while the file that it names exists, the disk is full."""

SIZES: dict[str, object] = {
    "ingest.load.pipeline.WINDOW": 96,
    "ingest.load.pipeline.FLUSH_S": 0.0,
    "ingest.load.pipeline.CAPACITY": 40,
    "pearl_qdrant.store.edge.shard.BATCH_POINTS": 40,
    "pearl_qdrant.store.edge.child_process.DIRECT_POINTS": 60,
    "pearl_qdrant.store.edge.folder.SMALL_POINTS": 500,
    "pearl_qdrant.store.edge.folder.COMPACT_POINTS": 400,
    "pearl_qdrant.store.edge.folder.COMPACT_UNINDEXED_POINTS": 700,
    "pearl_qdrant.store.edge.shard.INDEXING_THRESHOLD_KB": 16,
    "pearl_qdrant.store.server.upload.MAX_BATCH_POINTS": 32,
}


def replace(name: str, value: object) -> None:
    """Replace the value of a full name."""
    module, _, constant = name.rpartition(".")
    owner = importlib.import_module(module)
    assert hasattr(owner, constant), name
    setattr(owner, constant, value)


def fill_disk() -> None:
    """Make the embedded store see a full disk while the flag file exists."""
    flag = Path(os.environ[FULL_FLAG])

    def disk_usage(path: Path) -> object:
        return SimpleNamespace(free=0) if flag.exists() else shutil.disk_usage(path)

    replace("pearl_qdrant.store.edge.shard.shutil", SimpleNamespace(disk_usage=disk_usage, rmtree=shutil.rmtree))
    replace("pearl_qdrant.store.edge.child_process.MODULE", "soak_child")


def main() -> None:
    """Set the sizes and run the command."""
    if FULL_FLAG in os.environ:
        fill_disk()
    if len(sys.argv) == 2:
        from pearl_qdrant.store.edge.child_main import main as write

        return write()
    to_server = any("://" in word for word in sys.argv)
    for name, value in SIZES.items():
        if (".store.edge." if to_server else ".store.server.") not in name:  # which takes a second to import
            replace(name, value)
    if to_server:  # give up after a second, and not after a quarter of a minute
        from pearl_qdrant.store.server.errors import RetryPolicy

        replace("pearl_qdrant.store.server.store.RetryPolicy", partial(RetryPolicy, tries=4, first_wait_s=0.1))
        replace("pearl_qdrant.store.server.collection.POLL_S", 0.1)
    from pearl_qdrant.cli import main as run

    return run()


if __name__ == "__main__":
    main()
