"""Ctrl-C between any two lines that hand work from thread to thread: nothing may wait forever."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from ingest.load.pipeline import overlap

MOST_S = 120
"""Bounds a hang; what is waited for takes a moment on any machine."""

_FILES = {sys.modules[overlap.__module__].__file__, queue.__file__}
"""Whose steps are interrupted; starting a thread cannot bear it anywhere in Python."""


def ends(work: Callable[[], None], *, after: int) -> bool:
    """Do work in a thread that is interrupted after so many traced steps; whether that came about.

    Fails if the thread does not end.
    """
    interrupted = False

    def run() -> None:
        nonlocal interrupted
        steps = 0

        def trace(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal steps, interrupted
            if frame.f_code.co_filename in _FILES:
                steps += 1
            if steps == after and not interrupted:
                interrupted = True
                sys.settrace(None)
                raise KeyboardInterrupt
            return trace

        sys.settrace(trace)
        try:
            work()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(MOST_S)
    assert not thread.is_alive(), f"interrupted at step {after}, it hangs"
    return interrupted


def test_an_interrupt_never_leaves_a_producer_waiting() -> None:
    """The consumer of an overlapped generator is interrupted at any step; the producer ends, and is waited for."""

    def numbers() -> Iterator[int]:
        yield from range(6)

    def consume() -> None:
        items = overlap(numbers(), 2)
        try:
            for _ in items:
                pass
        finally:
            items.close()

    step = 1
    while ends(consume, after=step):
        step += 1
    assert step > 10
    left = [thread for thread in threading.enumerate() if thread.name == "overlap"]
    for thread in left:
        thread.join(MOST_S)
    assert not [thread for thread in left if thread.is_alive()]
