"""Open a shard on trial, within limits: ``python -m pearl_qdrant.store.edge.trial_open SHARD DATA FILE CPU``.

Started by `checksums.py`; not for use by hand. It imports very little, so that it starts in a tenth of a second.
"""

from __future__ import annotations

import sys
from contextlib import suppress

STARTED = "started\n"
"""Printed before the shard is opened. Without it, something else was started."""


def _limit(n_data_bytes: int, n_file_bytes: int, cpu_s: int) -> None:
    """Limit the memory, file size and processor time of this process; does nothing on Windows, which has no limits.

    A damaged length makes Edge allocate memory, or enlarge a file and read it to its end, or loop for hours. Mapped
    files do not count as data. Python ignores the signal for a file that grows too large, so Edge gets an error.
    """
    try:
        import resource
    except ImportError:
        return
    limits = (
        (resource.RLIMIT_DATA, n_data_bytes),
        (resource.RLIMIT_FSIZE, n_file_bytes),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_CORE, 0),
    )
    for kind, limit in limits:
        _, hard = resource.getrlimit(kind)
        soft = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        with suppress(ValueError, OSError):  # a limit that this system does not have
            resource.setrlimit(kind, (soft, hard))


def main() -> None:
    """Print `STARTED`; if the shard cannot be opened, print the error and exit with status 1."""
    shard, *limits = sys.argv[1:]
    from qdrant_edge import EdgeShard

    _limit(*map(int, limits))
    sys.stdout.write(STARTED)
    sys.stdout.flush()
    try:
        EdgeShard.load(shard).close()
    except BaseException as error:  # noqa: BLE001 - a panic is not an Exception
        sys.stdout.write(str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
