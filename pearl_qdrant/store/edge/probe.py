"""Open a shard and close it again, within limits: ``python -m pearl_qdrant.store.edge.probe SHARD DATA FILE CPU``.

Started by `edge_seal.py`, of no use by hand. It imports next to nothing, so that it starts in a tenth of a second.
"""

from __future__ import annotations

import sys
from contextlib import suppress

BEGUN = "begun\n"
"""Said before the shard is opened: whoever does not hear it has started something else."""


def _limit(n_data_bytes: int, n_file_bytes: int, cpu_s: int) -> None:
    """Limit what this process may take; does nothing where the system has no such limits (Windows).

    Damaged lengths make Edge allocate, or lengthen a file and read it to its end, or go round for hours. Mapped files
    do not count as data. Python ignores the signal of a file that grows too large: for Edge that is an error.
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
    """Say `BEGUN`, then what the shard cannot be opened for, with exit status 1, or nothing."""
    shard, *limits = sys.argv[1:]
    from qdrant_edge import EdgeShard

    _limit(*map(int, limits))
    sys.stdout.write(BEGUN)
    sys.stdout.flush()
    try:
        EdgeShard.load(shard).close()
    except BaseException as error:  # noqa: BLE001 - a panic is no Exception
        sys.stdout.write(str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
