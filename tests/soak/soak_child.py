"""The command line with small sizes, for the soak: ``python soak_child.py SIZES WORDS...``.

SIZES is JSON: constants by their full name, as in {"ingest.load.pipeline.WINDOW": 64}. With small sizes, a base of a
few thousand names has as many batches, checkpoints and compactions as one of millions, without options in the product.
Called only with a job, as the embedded store calls its writing process, it is that process, on a disk that `FULL_FLAG`
fills.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace

FULL_FLAG = "SOAK_FULL_FLAG"
"""Environment variable: while the file that it names exists, the disk is full."""

_OTHER_STORE = {True: ".store.edge.", False: ".store.server."}


def _set(name: str, value: object) -> None:
    """Replace the value of a full name."""
    module, _, constant = name.rpartition(".")
    owner = importlib.import_module(module)
    assert hasattr(owner, constant), name
    setattr(owner, constant, value)


def set_sizes(sizes: Mapping[str, object], *, to_server: bool) -> None:
    """Replace the constants of one kind of store, and the common ones."""
    for name, value in sizes.items():
        if _OTHER_STORE[to_server] not in name:  # which takes more than a second to import
            _set(name, value)


def _fill_disk() -> None:
    """Make the embedded store see a full disk while the flag file exists."""
    flag = Path(os.environ[FULL_FLAG])

    def disk_usage(path: Path) -> object:
        return SimpleNamespace(free=0) if flag.exists() else shutil.disk_usage(path)

    _set("pearl_qdrant.store.edge.shard.shutil", SimpleNamespace(disk_usage=disk_usage, rmtree=shutil.rmtree))
    _set("pearl_qdrant.store.edge.child_process.MODULE", "soak_child")


def _hurry() -> None:
    """Make the server adapter give up after a second instead of a quarter of a minute."""
    from pearl_qdrant.store.retry import RetryPolicy
    from pearl_qdrant.store.server.indexing import Indexing

    _set("pearl_qdrant.store.server.store.RetryPolicy", partial(RetryPolicy, tries=4, first_wait_s=0.1))
    _set("pearl_qdrant.store.server.store.Indexing", partial(Indexing, poll_s=0.1))


def main() -> None:
    """Set the sizes and run the command."""
    if FULL_FLAG in os.environ:
        _fill_disk()
    if len(sys.argv) == 2:
        from pearl_qdrant.store.edge.child_main import main as write

        write()
        return
    to_server = any("://" in word for word in sys.argv)
    set_sizes(json.loads(sys.argv.pop(1)), to_server=to_server)
    if to_server:
        _hurry()
    from pearl_qdrant.cli import main as run

    run()


if __name__ == "__main__":
    main()
