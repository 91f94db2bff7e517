"""What a worker and its parent say to each other: frames of one byte for the kind and a pickle.

A worker gets a setup, then tasks; a later setup replaces the first. Each task has one answer, in order.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pearl_qdrant.errors import WorkerError
from pearl_qdrant.linking.ranking.model import Calibration, RankingModel

MODULE = "pearl_qdrant.linking.workers.worker_main"

SETUP, LINK, ANNOTATE = b"S", b"L", b"A"
"""Requests: open collections; link mentions; annotate passages."""

DONE, FAILED, OTHER_STATE, UNUSABLE = b"+", b"!", b"?", b"-"
"""Answers: the results; an error of the task; the collections have another state by now; an error of the setup."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a worker needs to link as its parent does.

    Attributes:
        linker: The class of the linker.
        location: Folder of the embedded store.
        collections: Names of the collections.
        tokens: The state of each; see `protocol.Collection.state_token`.
        encoder: Name, pooling and prefix of the model.
        calibration, model: Those of the parent.
    """

    linker: Callable[..., Any]
    location: str
    collections: tuple[str, ...]
    tokens: tuple[str, ...]
    encoder: tuple[str, str, str]
    calibration: Calibration
    model: RankingModel

    def pack(self) -> bytes:
        """As bytes."""
        return pickle.dumps(self, pickle.HIGHEST_PROTOCOL)


@dataclass(frozen=True, slots=True)
class SentSpan:
    """A span of a `Doc` of spaCy, in characters."""

    start_char: int
    end_char: int


@dataclass(frozen=True, slots=True)
class SentDoc:
    """A `Doc` of spaCy: its text and its recognised entities."""

    text: str
    ents: tuple[SentSpan, ...]


def pack_task(items: Sequence[object], options: object) -> bytes:
    """Mentions or passages, and how to link them."""
    return pickle.dumps((items, options), pickle.HIGHEST_PROTOCOL)


def pack_error(error: BaseException) -> bytes:
    """An error, so that the parent can raise the same."""
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    packed = []
    for form in (error, (type(error), error.args, error.__dict__)):
        with suppress(Exception):  # its attributes may be anything
            packed.append(pickle.dumps(form, pickle.HIGHEST_PROTOCOL))
    return pickle.dumps((packed, _shown(error), trace), pickle.HIGHEST_PROTOCOL)


def unpack_error(body: bytes) -> Exception:
    """Reverse `pack_error`; a `WorkerError` if the error cannot be made here. Its cause is the worker's traceback."""
    packed, shown, trace = pickle.loads(body)  # noqa: S301 - packed by our own process
    error: Exception = WorkerError(f"A worker process failed: {shown}")
    for form in packed:
        with suppress(Exception):  # a class may refuse anything
            made = _remade(pickle.loads(form))  # noqa: S301 - as above
            if isinstance(made, Exception) and _shown(made) == shown:
                error = made
                break
    error.__cause__ = WorkerTraceback(trace)
    return error


def _remade(form: Any) -> object:
    """An error from its class, arguments and attributes: most of ours make their message of other arguments."""
    if not isinstance(form, tuple):
        return form
    kind, arguments, attributes = form
    made = kind.__new__(kind, *arguments)
    made.args = arguments
    made.__dict__.update(attributes)
    return made


def _shown(error: object) -> str:
    return f"{type(error).__name__}: {error}"


class WorkerTraceback(Exception):  # noqa: N818 - only shown below another error
    """The traceback of an error, in the process where it was raised."""

    def __init__(self, text: str) -> None:
        super().__init__(f'\n"""\n{text}"""')
