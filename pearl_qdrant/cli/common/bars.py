"""A progress bar for library calls that report (done, total)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def progress_bar(doing: str, unit: str = " names") -> Iterator[Callable[[int, int], None]]:
    """Yield a function that moves a bar on stderr; nothing is shown where stderr is no terminal.

    Args:
        doing: Stands before the bar.
        unit: What is counted.
    """
    bars: list[Any] = []

    def report(done: int, total: int) -> None:
        from tqdm import tqdm

        if not bars:
            bars.append(tqdm(total=total, unit=unit, unit_scale=True, desc=doing, dynamic_ncols=True, disable=None))
        bars[0].total = total
        bars[0].update(done - bars[0].n)

    try:
        yield report
    finally:
        for bar in bars:
            bar.close()
