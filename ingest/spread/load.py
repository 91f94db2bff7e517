"""Load a base in parts, by workers of Ray or one after the other, as `pearl-qdrant ingest --ray` and `--partitions` do.

from pearl_qdrant import load_base_in_parts

result = load_base_in_parts("umls.tsv", "umls", ray="auto")
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.base.type_map import TypeMap
from ingest.formats import ReadOptions
from ingest.load.events import LoadEvents
from ingest.load.load_base import (
    Encoding,
    Paths,
    checked_name,
    listed_paths,
    load_model,
    open_base,
    report_scan,
    type_map_of,
)
from ingest.load.results import IngestResult
from ingest.spread.cutting import BUCKETS
from ingest.spread.driver import Runner, RunnerHere, Spread
from ingest.spread.work import Work
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import OptionError, SettingsError, StoreError
from pearl_qdrant.settings import (
    DEFAULT_DEVICE,
    DEFAULT_MAX_ERRORS,
    DEFAULT_MODEL,
    DEFAULT_QUANTIZATION,
    DEFAULT_WAIT_S,
    default_store,
    is_url,
)
from pearl_qdrant.store.edge.lock import CollectionLock
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.open import StoreLike, location_of, use_store
from pearl_qdrant.store.protocol import Placement
from pearl_qdrant.store.schema import Manifest, Quantization

if TYPE_CHECKING:
    from pearl_qdrant.store.protocol import Store

WORK_PREFIX = ".parts-"
"""How work folders are called in a store; they are no collections."""


def load_base_in_parts(  # long: all arguments of a load are documented here
    paths: Paths,
    collection: str | None = None,
    *,
    ray: str | None = None,
    partitions: int | None = None,
    work: str | os.PathLike[str] | None = None,
    store: StoreLike = None,
    model: Encoder | str | os.PathLike[str] = DEFAULT_MODEL,
    device: str = DEFAULT_DEVICE,
    pooling: str | None = None,
    prefix: str | None = None,
    kind: str = "auto",
    options: ReadOptions | None = None,
    type_map: TypeMap | str | os.PathLike[str] | None = None,
    max_errors: int | None = DEFAULT_MAX_ERRORS,
    kb: str | None = None,
    kb_version: str | None = None,
    quantization: Quantization | None = None,
    embed_descriptions: bool = False,
    placement: Placement | None = None,
    restart: bool = False,
    wait_s: float = DEFAULT_WAIT_S,
    events: LoadEvents | None = None,
) -> IngestResult:
    """Load a base into a new collection in parts, each built apart with its graph; the points are those of `load_base`.

    After a kill of a worker or of this process, the same call goes on: parts that are built stay, and the others go on
    behind their last checkpoint. If the collection holds this very base already, nothing is done.

    Args:
        paths, collection: As in `load_base`.
        ray: A Ray cluster whose workers build: "auto" starts one on this machine, HOST:PORT is one that runs. None:
            this process builds one part after the other.
        partitions: Parts of the base, from 1 to 256. Default: as many as keep a part under two million names, and all
            workers busy.
        work: Folder for what is built until all of it is done; all machines of a cluster see it at the same path.
            Default: in the folder of the store, for a server in the user's data folder.
        store: As in `load_base`.
        model: As in `load_base`; an encoder object only without `ray`.
        device: As in `load_base`.
        pooling: As in `load_base`.
        prefix: As in `load_base`.
        kind: As in `load_base`.
        options: As in `load_base`.
        type_map: As in `load_base`.
        max_errors: As in `load_base`.
        kb: As in `load_base`.
        kb_version: As in `load_base`.
        quantization: As in `load_base`.
        embed_descriptions: As in `load_base`.
        placement: As in `load_base`.
        wait_s: As in `load_base`.
        events: As in `load_base`.
        restart: Replace an existing collection. What it learned stays. The same call goes on with the new one.

    Returns:
        The counts. `load_seconds` is the time of building all parts, their graphs included, `encode_seconds` that of
        all encoders together, `graph_seconds` the time of joining the parts.

    Raises:
        InputError, EmptyBaseError, ModelError, ModelMismatchError, StoreError: As `load_base`.
        StoreLockedError: If another process does the same.
        SettingsError: If an embedded store is given a placement.
        OptionError: If the collection exists and holds something else, Ray is not installed or does not answer, or
            another option does not fit.
    """
    if partitions is not None and not 1 <= partitions <= BUCKETS:
        raise OptionError("partitions", f"A base has from 1 to {BUCKETS} parts, not {partitions}.")
    name, events = checked_name(collection, paths, store), events or LoadEvents()
    _check_store(store, placement)
    runner = _runner(ray, model)
    types = type_map_of(type_map)
    with (
        open_base(paths, kind, options, types) as reader,
        use_store(store, wait_s=wait_s) as opened,
        _locked(work, opened, name) as folder,
        closing(runner),
    ):
        encoder = load_model(Encoding(model, device, pooling, prefix, embed_descriptions), events)
        manifest = Manifest.for_model(
            encoder.info,
            collection=name,
            kb=kb or name,
            kb_version=kb_version,
            quantization=quantization or DEFAULT_QUANTIZATION,
            has_descriptions=embed_descriptions,
            type_map_version=types.version,
        )
        spread = Spread(
            reader=reader,
            paths=listed_paths(paths),
            encoder=encoder,
            model=os.fspath(model) if isinstance(model, (str, os.PathLike)) else model,
            device=device,
            pooling=pooling,
            prefix=prefix,
            store=opened,
            name=name,
            manifest=manifest,
            placement=placement or Placement(),
            work=folder,
            partitions=partitions,
            workers=runner.workers,
            restart=restart,
            max_errors=max_errors,
            wait_s=wait_s,
            events=events,
        )
        return spread.run(runner, lambda scanned: report_scan(scanned, paths, events))


def _check_store(store: StoreLike, placement: Placement | None) -> None:
    """Refuse a store that other processes cannot open by its location, and a placement without a cluster."""
    location = location_of(store)
    if is_url(location):
        return
    if store is not None and not isinstance(store, (str, os.PathLike, EdgeStore)):
        raise OptionError("store", "A base in parts goes to a folder, or to a server by its URL.")
    if placement not in (None, Placement()):
        raise SettingsError(
            f"The embedded store at {location} has no shards or replicas. Use a Qdrant server as the store.",
            option="store",
        )


def _runner(ray: str | None, model: object) -> Runner:
    """What builds the parts."""
    if ray is None:
        return RunnerHere()
    if not isinstance(model, (str, os.PathLike)):
        raise OptionError("model", "Workers of Ray load the model themselves: give its name or folder, not an encoder.")
    from ingest.spread.ray_runner import RayRunner

    return RayRunner(ray)


@contextmanager
def _locked(given: str | os.PathLike[str] | None, store: Store, name: str) -> Iterator[Work]:
    """The work folder, locked; it is removed where nothing is left in it."""
    location, folder = store.location, f"{WORK_PREFIX}{name}"
    if is_url(location):
        where = hashlib.sha256(location.encode()).hexdigest()[:12]
        work = Work(Path(given or default_store()) / f"{folder}-{where}")
    else:
        work = Work(Path(given or location) / folder, Path(location) / f"{folder}-joined" if given else None)
    path = work.path
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"The work folder {path} cannot be made: {error}. Choose another one.", option="work"
        ) from error
    lock = CollectionLock.acquire(path / ".lock", name)
    try:
        yield work
    finally:
        if work.read_plan() is None:  # the base was not cut
            work.clear()
        lock.release()
        _remove_if_empty(path)


def _remove_if_empty(path: Path) -> None:
    if [file.name for file in path.iterdir()] == [".lock"]:
        (path / ".lock").unlink(missing_ok=True)
        path.rmdir()
