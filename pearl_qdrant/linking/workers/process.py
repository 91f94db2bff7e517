"""What a worker process does: it links as its parent does, over views of the same collections.

Answers go back as MessagePack, by msgspec: a link of 10 candidates takes 0.04 ms to pack and 0.1 to unpack, a quarter
of pickling it as it is. The parent unpacks for all workers.
"""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING, Any

import msgspec

from pearl_qdrant.linking.ranking.mention_cache import CACHE_BYTES
from pearl_qdrant.linking.ranking.model import Calibration, RankingModel
from pearl_qdrant.linking.state import LinkerState
from pearl_qdrant.records import Annotation, Link

if TYPE_CHECKING:
    from pearl_qdrant.encoder.protocol import Encoder
    from pearl_qdrant.linking.mention_detection.blocks import Block
    from pearl_qdrant.linking.options import AnnotateOptions, LinkOptions
    from pearl_qdrant.store.protocol import Store

_LOOK_S = 1.0  # how often to look whether the parent is gone
_LEAVE_S = 3.0  # how long closing the view may take

_encode = msgspec.msgpack.Encoder().encode
_decode_link = msgspec.msgpack.Decoder(Link).decode
_decode_annotations = msgspec.msgpack.Decoder(list[Annotation]).decode


@dataclass(frozen=True, slots=True)
class Setup:
    """What a worker needs to link as its parent does.

    Attributes:
        location: Folder of the embedded store.
        collections: Names of the collections.
        tokens: The state of each; see `protocol.Collection.state_token`.
        encoder: Name, pooling and prefix of the model.
        calibration, model: Those of the parent.
    """

    location: str
    collections: tuple[str, ...]
    tokens: tuple[str, ...]
    encoder: tuple[str, str, str]
    calibration: Calibration
    model: RankingModel


class _Worker:
    """What this process has open."""

    def __init__(self) -> None:
        self.encoder: Encoder | None = None
        self.state: LinkerState | None = None
        self.store: Store | None = None
        self.setup = b""

    def state_of(self, setup: bytes) -> LinkerState | None:
        """The collections in the state of a packed `Setup`; None if they have another state by now."""
        if setup != self.setup:
            self.close()
            self._open(pickle.loads(setup))  # noqa: S301 - packed by our parent
            self.setup = setup if self.state is not None else b""
        return self.state

    def _open(self, setup: Setup) -> None:
        from pearl_qdrant.encoder.loading import load_encoder
        from pearl_qdrant.store.open import open_store

        if self.encoder is None:
            name, pooling, prefix = setup.encoder
            self.encoder = load_encoder(name, device="cpu", runtime="onnx", pooling=pooling, prefix=prefix, threads=1)
        store = open_store(setup.location)
        try:
            opened = [store.open(name, read_only=True) for name in setup.collections]
            if tuple(one.state_token for one in opened) != setup.tokens:
                store.close()
                return
            self.state = LinkerState.of(
                setup.location,
                opened,
                self.encoder,
                calibration=setup.calibration,
                model=setup.model,
                cache_bytes=CACHE_BYTES // 4,  # there are several processes that remember mentions
            )
        except BaseException:
            store.close()
            raise
        self.store = store
        gc.freeze()  # what is open stays: the collector need not look at it

    def close(self) -> None:
        """Close the store, and with it the view."""
        store, self.store, self.state, self.setup = self.store, None, None, b""
        if store is not None:
            store.close()


_worker = _Worker()


def begin(parent: int, line: Connection) -> None:
    """Begin a worker process.

    Args:
        parent: Process id of the parent; the worker ends at once when it is gone, also within a task.
        line: As well, when the parent closes the other end of this.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches this process too; the parent decides
    Finalize(None, _worker.close, exitpriority=10)
    threading.Thread(target=_watch, args=(parent, line), daemon=True).start()


def _watch(parent: int, line: Connection) -> None:
    with suppress(Exception):
        while os.getppid() == parent and not line.poll(_LOOK_S):  # a forked copy of the parent may hold the other end
            pass
    timer = threading.Timer(_LEAVE_S, os._exit, [0])
    timer.daemon = True
    timer.start()
    with suppress(Exception):
        _worker.close()
    os._exit(0)


def link(setup: bytes, mentions: Sequence[str], options: LinkOptions) -> list[object] | None:
    """The packed links of mentions; None if the collections have another state than the setup."""
    state = _worker.state_of(setup)
    return None if state is None else [_pack(replace(one, mention="")) for one in state.links(mentions, options)]


def annotate(setup: bytes, blocks: Sequence[Block], options: AnnotateOptions) -> list[object] | None:
    """The packed annotations of blocks of texts; None as for `link`."""
    state = _worker.state_of(setup)
    return None if state is None else [_pack(one) for one in state.annotate_blocks(blocks, options)]


def _pack(answer: object) -> object:
    """As bytes; itself if MessagePack cannot hold it, as broken Unicode in a text."""
    try:
        return _encode(answer)
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError):
        return answer


def read_link(packed: Any, mention: str) -> Link:
    """A link; each call makes another one, so that a caller may change it.

    Args:
        packed: One of `link`.
        mention: As it was given.
    """
    return replace(_decode_link(packed) if isinstance(packed, bytes) else copy.deepcopy(packed), mention=mention)


def read_annotations(packed: Any, passage: object = None) -> list[Annotation]:
    """The annotations of a passage; each call makes others."""
    return _decode_annotations(packed) if isinstance(packed, bytes) else copy.deepcopy(packed)
