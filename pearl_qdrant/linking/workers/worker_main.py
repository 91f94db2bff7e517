"""A worker process: ``python -m pearl_qdrant.linking.workers.worker_main PARENT``.

Started by `process.py`; not for use by hand. One thread reads requests, the main thread answers them one after the
other. When the parent closes the pipe or is gone, the worker ends at once, also within a task.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import sys
import threading
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

from pearl_qdrant.linking.workers.messages import (
    DONE,
    FAILED,
    LINK,
    OTHER_STATE,
    SETUP,
    UNUSABLE,
    Setup,
    pack_error,
)
from pearl_qdrant.linking.workers.packing import pack_annotations, pack_links

if TYPE_CHECKING:
    from pearl_qdrant.encoder.protocol import Encoder

_LOOK_S = 1.0  # how often to look whether the parent is gone; a forked copy of it may keep the pipe open
_LEAVE_S = 3.0  # how long closing the view may take
_LEAVING = threading.Lock()


class Worker:
    """Links as its parent does, over views of the same collections."""

    def __init__(self) -> None:
        self._encoder: Encoder | None = None
        self._linker: Any = None
        self._problem: tuple[bytes, bytes] | None = None

    def prepare(self, setup: Setup) -> None:
        """Open the collections; if that fails, or they are of another state, tasks are answered so."""
        self._problem = None
        try:
            if not self._open(setup):
                self._problem = OTHER_STATE, b""
        except Exception as error:  # noqa: BLE001 - the parent raises it
            self._problem = UNUSABLE, pack_error(error)

    def _open(self, setup: Setup) -> bool:
        from pearl_qdrant.encoder.loading import load_encoder
        from pearl_qdrant.store.open import open_store

        if self._encoder is None:
            name, pooling, prefix = setup.encoder
            self._encoder = load_encoder(name, device="cpu", runtime="onnx", pooling=pooling, prefix=prefix, threads=1)
        self.close()
        store = open_store(setup.location)
        try:
            opened = [store.open(name, read_only=True) for name in setup.collections]
            if tuple(one.state_token for one in opened) != setup.tokens:
                store.close()
                return False
            self._linker = setup.linker(
                store, opened, self._encoder, calibration=setup.calibration, model=setup.model, read_only=True
            )
            self._linker.limit_memory()
        except BaseException:
            store.close()
            raise
        return True

    def answer(self, kind: bytes, body: bytes) -> tuple[bytes, bytes]:
        """Do a task."""
        if self._problem is not None:
            return self._problem
        try:
            items, options = pickle.loads(body)  # noqa: S301 - packed by our parent
            if kind == LINK:
                return DONE, pack_links(self._linker.link_batch(items, options, workers=1))
            return DONE, pack_annotations(self._linker.annotate_batch(items, options, workers=1))
        except Exception as error:  # noqa: BLE001 - the parent raises it
            return FAILED, pack_error(error)

    def close(self) -> None:
        """Close the linker, and with it the view."""
        linker, self._linker = self._linker, None
        if linker is not None:
            linker.close()


def _leave(worker: Worker) -> None:
    """End this process at once, but remove the folder of its view."""
    timer = threading.Timer(_LEAVE_S, os._exit, [0])
    timer.daemon = True
    timer.start()
    _LEAVING.acquire()  # several threads may leave: the first one closes, the others wait for the end
    with suppress(Exception):
        worker.close()
    os._exit(0)


def _read(requests: IO[bytes], tasks: queue.SimpleQueue[tuple[bytes, bytes]], worker: Worker) -> None:
    """Queue the requests; at their end, leave."""
    from pearl_qdrant.store.edge.child_process import receive

    while frame := receive(requests):
        tasks.put(frame)
    _leave(worker)


def _watch(parent: int, worker: Worker) -> None:
    """Leave when the parent is gone."""
    pause = threading.Event()
    while os.getppid() == parent:
        pause.wait(_LOOK_S)
    _leave(worker)


def main() -> None:
    """Answer tasks until the parent closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches this process too; the parent decides
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not mix with the frames
    from pearl_qdrant.store.edge.child_process import send

    worker = Worker()
    tasks: queue.SimpleQueue[tuple[bytes, bytes]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, tasks, worker), daemon=True).start()
    threading.Thread(target=_watch, args=(int(sys.argv[1]), worker), daemon=True).start()
    while True:
        kind, body = tasks.get()
        if kind == SETUP:
            worker.prepare(pickle.loads(body))  # noqa: S301 - packed by our parent
            continue
        try:
            send(answers, *worker.answer(kind, body))
        except BrokenPipeError:
            _leave(worker)


if __name__ == "__main__":
    main()
