"""`LoadRequest`, all that `load_base` can be told, each with its default and its text."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

from ingest.formats import ReadOptions
from ingest.load.results import LoadEvents
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_MAX_ERRORS, DEFAULT_MODEL, DEFAULT_WAIT_S

if TYPE_CHECKING:
    from ingest.base.type_map import TypeMap
    from pearl_qdrant.encoder.protocol import Encoder
    from pearl_qdrant.store.open import StoreLike
    from pearl_qdrant.store.protocol import Placement
    from pearl_qdrant.store.schema import Quantization

StrPath = str | os.PathLike[str]

MayUpdate = Callable[[], bool]
"""Called where a base is a newer release of what is stored; returns whether to update the collection to it."""

MayRemove = Callable[[int, int], bool]
"""Called with the number of names that would be deleted and that of all names; returns whether to delete them."""


def allow(*_: object) -> bool:
    """Ask nobody."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """How a base is loaded.

    Attributes:
        store: A store, a folder or a URL; by default PEARL_QDRANT_STORE, else QDRANT_URL, else the user's data folder.
            Key and certificates of a server come from the environment (`ServerAccess.from_environment`).
        model: An encoder, a shipped name, a folder or a hub id.
        device: auto, cpu, cuda or cuda:N.
        pooling: For a plain encoder: mean or cls, instead of its own.
        prefix: For a plain encoder: text put before each name.
        kind: One of `formats.FORMAT_NAMES`, the name of a known base, or "auto".
        options: What to read.
        type_map: From native types to coarse ones: a table, or a file with rows to add to the shipped one.
        max_errors: Bad rows to skip before giving up; None: any number. With the default, more than 1 % of the rows are
            too many, too.
        kb: Short name of the base, part of every point's id. Default: the collection's name.
        kb_version: Release of the base, for the record.
        quantization: How a new collection keeps vectors for finding candidates; scores come from the whole ones.
        placement: Shards and replicas of a new collection on a server.
        restart: Delete an existing collection first, its calibration included. What it learned stays
            (`EntityLinker.learn`).
        update: True makes an existing collection equal to the base, the whole of a newer release of what it holds: it
            loses the names that the base lacks. False adds the base. None updates if the base shows to be a newer
            release (`session.MOSTLY`) and no `options.limit` is given.
        may_update: Called before an update that None decided for, with no argument; False adds the base instead.
        may_remove: Called with the number of names that the new release lacks and that of all names, before any is
            deleted; False keeps them.
        ray: Build a new collection in parts, each apart with its graph, by the workers of a Ray cluster: "auto" starts
            one on this machine, HOST:PORT is one that runs. They load the model by its name.
        parts: Parts, from 1 to 256; without `ray`, this process builds one after the other. Default: as many as keep a
            part under two million names, and all workers busy.
        work: Folder for parts until all of them are built; all machines of a cluster see it at the same path. Default:
            in the folder of the store, for a server in the user's data folder.
        wait_s: How long to wait for a server that does not answer, in seconds.
        events: Receives progress.
    """

    store: StoreLike = None
    model: Encoder | StrPath = DEFAULT_MODEL
    device: str = DEFAULT_DEVICE
    pooling: str | None = None
    prefix: str | None = None
    kind: str = "auto"
    options: ReadOptions | None = None
    type_map: TypeMap | StrPath | None = None
    max_errors: int | None = DEFAULT_MAX_ERRORS
    kb: str | None = None
    kb_version: str | None = None
    quantization: Quantization | None = None
    placement: Placement | None = None
    restart: bool = False
    update: bool | None = False
    may_update: MayUpdate = allow
    may_remove: MayRemove = allow
    ray: str | None = None
    parts: int | None = None
    work: StrPath | None = None
    wait_s: float = DEFAULT_WAIT_S
    events: LoadEvents = field(default_factory=LoadEvents)

    @property
    def is_limited(self) -> bool:
        """Whether only a part of the base is read."""
        return self.options is not None and self.options.limit is not None

    @property
    def in_parts(self) -> bool:
        """Whether the collection is built in parts."""
        return self.ray is not None or self.parts is not None


class LoadKeywords(TypedDict, total=False):
    """The fields of `LoadRequest` as keyword arguments."""

    store: StoreLike
    model: Encoder | StrPath
    device: str
    pooling: str | None
    prefix: str | None
    kind: str
    options: ReadOptions | None
    type_map: TypeMap | StrPath | None
    max_errors: int | None
    kb: str | None
    kb_version: str | None
    quantization: Quantization | None
    placement: Placement | None
    restart: bool
    update: bool | None
    may_update: MayUpdate
    may_remove: MayRemove
    ray: str | None
    parts: int | None
    work: StrPath | None
    wait_s: float
    events: LoadEvents
