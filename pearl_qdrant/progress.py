"""Progress bars on stderr."""

from __future__ import annotations

import os
import sys
from typing import Any

_COLUMNS, _ROWS = 80, 24  # of a terminal that says it has none, as some of editors and of containers do


def counting_bar(
    doing: str, unit: str, total: int | None = None, *, initial: int = 0, disable: bool | None = None
) -> Any:
    """A bar of tqdm on stderr; `doing` stands before it, and `initial` were done before. With None for `disable` it is
    shown at a terminal alone.
    """
    from tqdm import tqdm

    try:
        is_known = os.get_terminal_size(sys.stderr.fileno()).columns > 0
    except (OSError, ValueError):  # no terminal, or closed
        is_known = True
    return tqdm(
        desc=doing,
        total=total,
        initial=initial,
        unit=unit,
        unit_scale=True,
        disable=disable,
        dynamic_ncols=is_known,
        ncols=None if is_known else _COLUMNS,
        nrows=None if is_known else _ROWS,
    )


def skip_stored(bar: Any, n: int) -> None:
    """Move a bar over what was done before it, which says nothing of its rate and of the time that is left."""
    if bar.disable:
        return
    bar.n += n
    bar.initial += n
    bar.last_print_n = bar.n
    bar.unpause()
    bar.refresh()
