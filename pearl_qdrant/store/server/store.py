"""A Qdrant server or cluster as a store, through qdrant-client over REST.

The manifest is in the collection's metadata. A bulk load switches the server's indexing off and stores the old setting
in the metadata, in one request; `finalize` restores it. So if a process dies in between, the collection still answers
(exactly), is reported as not finalized, and the next `finalize` repairs it.
"""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from qdrant_client import models

from pearl_qdrant.errors import CollectionExistsError, CollectionNotFoundError, ManifestError, StoreError
from pearl_qdrant.settings import DEFAULT_QUANTIZATION, REQUEST_TIMEOUT_S, TESTED_SERVER, ServerAccess
from pearl_qdrant.store.protocol import PLAIN, Check, Glance, Maker, Placement, Version, VersionMark, placement_of
from pearl_qdrant.store.schema import DENSE, INDEXED_FIELDS, LEXICAL, Manifest, Quantization, stored_bytes
from pearl_qdrant.store.search import EF_CONSTRUCT, FULL_SCAN_KB, M
from pearl_qdrant.store.server.collection import ServerCollection, is_built
from pearl_qdrant.store.server.connection import Connection, parse_release
from pearl_qdrant.store.server.errors import RetryPolicy
from pearl_qdrant.store.server.ledger import LEDGER_SUFFIX, ServerLedger
from pearl_qdrant.store.server.queries import Limits
from pearl_qdrant.store.server.versions import (
    BEAT_S,
    MANIFEST_KEY,
    MOVING_KEY,
    POINTER_KEY,
    POLL_S,
    SILENT_S,
    VERSION_KEY,
    Hold,
    find_current,
    parse_manifest,
    physical_name,
    read_mark,
    split_name,
)

_TURBO_SERVER = (1, 19)  # the oldest release that was tried with TurboQuant
MAX_COLLECTIONS = 50  # the most collections whose strict mode and replicas are checked


class ServerStore:
    """Collections on a Qdrant server. Thread-safe."""

    def __init__(
        self,
        url: str,
        access: ServerAccess | None = None,
        *,
        timeout: float = REQUEST_TIMEOUT_S,
        retry: RetryPolicy | None = None,
    ) -> None:
        """Use the server at `url`; sends nothing yet.

        Args:
            url: http:// or https://, port 6333 unless given; several with commas between.
            access: Its key and TLS settings. A key is refused for plain HTTP to another host, unless that is allowed.
            timeout, retry: For one try, in seconds; how often and how long a request is tried again.

        Raises:
            SettingsError: If the URL is not valid, the key would travel in plain text, or certificates cannot be read.
        """
        access, retry = access or ServerAccess(), retry or RetryPolicy()
        self._connection = Connection(url, access, timeout=timeout, retry=retry)
        self._client = self._connection.client
        self._holds: dict[str, Hold] = {}

    def __repr__(self) -> str:
        return f"ServerStore({self.location!r})"

    @property
    def location(self) -> str:
        return self._connection.location

    @property
    def quantization(self) -> Quantization:
        return DEFAULT_QUANTIZATION if parse_release(self._connection.version()) >= _TURBO_SERVER else "int8"

    def collections(self) -> list[str]:
        names = [name for name in self._connection.collections() if not name.endswith(LEDGER_SUFFIX)]
        plain = [name for name in names if split_name(name)[1] == PLAIN]
        if len(plain) == len(names):
            return plain
        answer = self._connection.call(self._connection.client.get_aliases)
        hidden = {one.alias_name for one in answer.aliases if split_name(one.collection_name)[0] == one.alias_name}
        return sorted({*plain, *(hidden - set(plain))})

    def glance(self, names: Sequence[str]) -> Iterator[Glance]:
        return (found for found in self._connection.map(self._glance, names) if found is not None)

    def _glance(self, name: str) -> Glance | None:
        """Look at one collection; None if it was deleted meanwhile."""
        try:
            info = find_current(self._connection, name).info
        except CollectionNotFoundError:
            return None
        metadata = info.config.metadata or {}
        try:
            manifest = parse_manifest(metadata, name)
        except ManifestError as error:
            return Glance(name, None, problem=str(error), is_foreign=MANIFEST_KEY not in metadata)
        has_graph = is_built(info, n_vectors=manifest.names)
        missing = tuple(field for field in INDEXED_FIELDS if field not in info.payload_schema)
        return Glance(name, manifest, has_graph, missing_indexes=missing)

    def versions(self, name: str) -> list[Version]:
        found = [version for one, version in map(split_name, self._connection.collections()) if one == name]
        current = self._current(name) if found else None
        listed = []
        for version in found:
            info = self._connection.info(physical_name(name, version))
            try:
                manifest: Manifest | None = parse_manifest(info.config.metadata, name)
            except ManifestError:
                manifest = None
            mark = replace(read_mark(info.config.metadata, name), id=version)
            listed.append(Version(mark, version == current, manifest))
        return sorted(listed, key=lambda one: (not one.is_current, one.id))

    def create(
        self,
        manifest: Manifest,
        placement: Placement | None = None,
        *,
        version: str | None = None,
        made_by: Maker = "load",
    ) -> ServerCollection:
        name, created, placed = manifest.collection, manifest.as_created(), placement or Placement()
        stored_as = physical_name(name, version or PLAIN)
        stored: dict[str, object] = {MANIFEST_KEY: created.model_dump(mode="json", exclude={"checkpoints"})}
        if version is not None:
            mark = VersionMark(id=version, collection=name, made_by=made_by, placement=placement_of(placement))
            stored[VERSION_KEY] = asdict(mark)
        elif name in self.collections():
            raise CollectionExistsError(name)

        dense = _dense_params(created.dim, created.quantization)
        full_scan_kb = FULL_SCAN_KB * stored_bytes(created.quantization) // 4
        # The index of n-grams is in mapped files: 300 bytes a name.
        lexical = models.SparseVectorParams(modifier=models.Modifier.IDF, index=models.SparseIndexParams(on_disk=True))

        def create() -> bool:
            return self._client.create_collection(
                stored_as,
                vectors_config={DENSE: dense},
                hnsw_config=models.HnswConfigDiff(m=M, ef_construct=EF_CONSTRUCT, full_scan_threshold=full_scan_kb),
                sparse_vectors_config={LEXICAL: lexical},
                shard_number=placed.shards,
                replication_factor=placed.replicas,
                write_consistency_factor=placed.write_consistency,
                metadata=stored,
            )

        try:
            self._connection.call(create, collection=stored_as)
        except CollectionExistsError:
            found = parse_manifest(self._connection.info(stored_as).config.metadata, stored_as)
            if found != created:  # else an earlier try has created it, but its answer was lost
                raise
        opened = self.open(name, version=version)
        opened.ensure_payload_indexes()
        return opened

    def open(self, name: str, *, version: str | None = None, read_only: bool = False) -> ServerCollection:
        """Open a collection; see `protocol.Store.open`. The key decides whether it can be written."""
        if version is not None:
            physical = physical_name(name, version)
            return self._open(name, self._connection.info(physical), physical, is_hidden=True)
        _, info, physical = find_current(self._connection, name)
        return self._open(name, info, physical)

    def _open(
        self, name: str, info: models.CollectionInfo, physical: str, *, is_hidden: bool = False
    ) -> ServerCollection:
        """Open a version of a collection, of which the server says this; ManifestError if it is not ours."""
        manifest = parse_manifest(info.config.metadata, name)
        params = info.config.params.vectors
        vectors = params if isinstance(params, dict) else {}
        dense = vectors.get(DENSE)
        if dense is None or dense.size != manifest.dim or dense.distance != models.Distance.COSINE:
            found = f"{dense.size} dim, {dense.distance}" if dense else "none"
            raise ManifestError(name, f"vector '{DENSE}' should be {manifest.dim} dim, Cosine; it is: {found}")
        if LEXICAL not in (info.config.params.sparse_vectors or {}):
            raise ManifestError(name, f"there should be sparse vectors '{LEXICAL}'")
        return ServerCollection(
            self._connection,
            name,
            manifest,
            limits=Limits.of(info),
            physical=physical,
            is_hidden=is_hidden,
        )

    @contextmanager
    def moving(self, name: str, *, wait_s: float) -> Iterator[ServerCollection]:
        physical = find_current(self._connection, name).physical
        self._refuse_other_mover(name, physical, wait_s)
        hold = Hold(lambda mark: self._set(physical, {MOVING_KEY: mark}))
        self._holds[name] = hold
        try:
            with hold:
                yield self._open(name, self._connection.info(physical), physical, is_hidden=True)
        finally:
            del self._holds[name]

    def _refuse_other_mover(self, name: str, physical: str, wait_s: float) -> None:
        """Wait until nobody else moves a collection; one that died is silent."""
        deadline, since, seen = time.monotonic() + wait_s, time.monotonic(), None
        while mark := (self._connection.info(physical).config.metadata or {}).get(MOVING_KEY):
            if mark != seen:
                seen, since = mark, time.monotonic()
            if time.monotonic() - since > min(SILENT_S, 3 * BEAT_S):
                return
            if time.monotonic() > deadline + SILENT_S:
                raise StoreError(f"Another process moves collection '{name}' to another version at the moment: wait.")
            time.sleep(POLL_S)

    def switch(self, name: str, version: str) -> None:
        hold = self._holds.get(name)
        if hold is not None and not hold.is_sound:
            raise StoreError(
                f"Qdrant at {self._connection.location} did not answer for too long while collection '{name}' was "
                f"moved, so that its writers may not have waited. Run the same command again; it goes on."
            )
        before = self._current(name)
        if before == version:
            return
        number = 1 + max(one.mark.number for one in self.versions(name))
        self._update_mark(name, version, is_complete=True, replaced=before, number=number)
        if name in self._connection.collections():  # an alias of that name is not possible
            self._set(name, {POINTER_KEY: version or None})
        else:
            self._point_alias(name, version, exists=before is not None)

    def delete(self, name: str, *, version: str | None = None, keep_ledger: bool = False) -> None:
        if version is not None:
            self._delete_version(name, version)
            return
        existing = self.collections()
        if name not in existing:
            raise CollectionNotFoundError(name, existing)
        physical = [one for one in self._connection.collections() if split_name(one)[0] == name]
        if name not in physical:
            remove = models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=name))
            self._call(lambda: self._client.update_collection_aliases([remove]), name)
        for one in sorted(physical):  # the one of the plain name first: it says which is current
            self._delete_physical(one)
        if not keep_ledger:
            ServerLedger(self._connection, name).delete()

    def _delete_version(self, name: str, version: str) -> None:
        current = self._current(name)
        if version == current:
            raise ValueError(f"version '{version}' of '{name}' is the current one")
        self._delete_physical(physical_name(name, version))
        if version == PLAIN and current is not None:
            self._point_alias(name, current, exists=False)

    def _delete_physical(self, physical: str) -> None:
        with suppress(CollectionNotFoundError):
            self._call(lambda: self._client.delete_collection(physical), physical)

    def _current(self, name: str) -> str | None:
        with suppress(CollectionNotFoundError):
            return find_current(self._connection, name, gap_s=0).version
        return None

    def _point_alias(self, name: str, version: str, *, exists: bool) -> None:
        target = models.CreateAlias(collection_name=physical_name(name, version), alias_name=name)
        operations: list[models.AliasOperations] = [models.CreateAliasOperation(create_alias=target)]
        if exists:
            operations.insert(0, models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=name)))
        self._call(lambda: self._client.update_collection_aliases(operations), name)

    def _update_mark(self, name: str, version: str, **changes: object) -> None:
        physical = physical_name(name, version)
        mark = read_mark(self._connection.info(physical).config.metadata, name)
        self._set(physical, {VERSION_KEY: asdict(mark) | changes})

    def _set(self, physical: str, metadata: dict[str, object]) -> None:
        self._call(lambda: self._client.update_collection(physical, metadata=metadata), physical)

    def _call(self, request: Callable[[], object], physical: str) -> object:
        return self._connection.call(request, collection=physical)

    def close(self) -> None:
        self._connection.close()


def _dense_params(dim: int, quantization: Quantization) -> models.VectorParams:
    """Make the configuration of dense vectors; what finds candidates stays in memory."""
    codes: models.ScalarQuantization | models.TurboQuantization | None = None
    if quantization == "int8":
        int8 = models.ScalarQuantizationConfig(type=models.ScalarType.INT8, always_ram=True)
        codes = models.ScalarQuantization(scalar=int8)
    elif quantization == "turbo4":
        turbo = models.TurboQuantQuantizationConfig(bits=models.TurboQuantBitSize.BITS4, always_ram=True)
        codes = models.TurboQuantization(turbo=turbo)
    datatype = models.Datatype.FLOAT16 if stored_bytes(quantization) == 2 else None
    return models.VectorParams(size=dim, distance=models.Distance.COSINE, quantization_config=codes, datatype=datatype)


def check_server(store: ServerStore) -> Iterator[Check]:
    """Check a server, without writing; StoreError if it does not answer, or refuses the key."""
    connection, client = store._connection, store._connection.client
    yield _version(connection.version())
    if len(connection.addresses) > 1:
        yield from map(partial(_address, connection), range(len(connection.addresses)))
    names = connection.collections()
    yield _key(connection)
    cluster = _optional(connection, client.cluster_status)
    is_cluster = cluster is not None and getattr(cluster, "status", "") == "enabled"
    if is_cluster:
        yield _nodes(cluster)
    for name in names[:MAX_COLLECTIONS]:
        yield from _collection(connection, name, is_cluster=is_cluster)
    if len(names) > MAX_COLLECTIONS:
        yield Check("collections", "note", f"only the first {MAX_COLLECTIONS} of {len(names)} were checked")


def _version(server: str) -> Check:
    """Check that server and client are at most one minor version apart; a server that is too old was refused before."""
    ours = importlib.metadata.version("qdrant-client")
    found = f"Qdrant {server}, qdrant-client {ours} (tested with Qdrant {TESTED_SERVER})"
    theirs, client = parse_release(server), parse_release(ours)
    if theirs[0] != client[0] or abs(theirs[1] - client[1]) > 1:
        return Check("server", "note", f"{found}: they are more than one minor version apart. Update the older one.")
    return Check("server", "ok", found)


def _address(connection: Connection, number: int) -> Check:
    url = connection.addresses[number].url
    try:
        return Check("address", "ok", f"{url}: Qdrant {connection.version(number)}")
    except StoreError as error:
        return Check(
            "address", "fail", f"{url} does not answer; the others do. Start it again, or leave it out. {error}"
        )


def _key(connection: Connection) -> Check:
    """Check whether the key may write: an empty change of aliases does nothing, but a read-only key may not do it."""
    try:
        connection.call(partial(connection.client.update_collection_aliases, []))
    except StoreError as error:
        if "403" in str(error) or "401" in str(error):
            return Check("key", "note", "may read, not write: enough to link, not to ingest, add or calibrate")
        return Check("key", "note", f"may read; whether it may write is unknown ({error})")
    return Check("key", "ok", "may read and write")


def _nodes(cluster: Any) -> Check:
    peers = getattr(cluster, "peers", None) or {}
    failing = getattr(cluster, "message_send_failures", None) or {}
    if failing:
        away = ", ".join(sorted(map(str, failing)))
        return Check("nodes", "fail", f"{len(peers)} nodes; not reached: {away}. Start them again, or remove them.")
    return Check("nodes", "ok", f"{len(peers)} nodes, all reached")


def _collection(connection: Connection, name: str, *, is_cluster: bool) -> Iterator[Check]:
    info = connection.info(name)
    if MANIFEST_KEY not in (info.config.metadata or {}):
        return
    limits = {key: value for key, value in asdict(Limits.of(info)).items() if value is not None}
    if limits:
        shown = ", ".join(f"{key} {value}" for key, value in limits.items())
        yield Check("strict mode", "note", f"{name}: requests keep to the limits of strict mode ({shown})")
    if not is_cluster:
        return
    placed = _optional(connection, partial(connection.client.collection_cluster_info, name))
    away = list(_replicas_away(placed)) if placed is not None else []
    if away:
        yield Check("replicas", "fail", f"{name}: {', '.join(away)}. Start the nodes again; the replicas then recover.")
    elif placed is not None:
        yield Check("replicas", "ok", f"{name}: all active")


def _replicas_away(placed: models.CollectionClusterInfo) -> Iterator[str]:
    for shard in placed.local_shards:
        if shard.state != models.ReplicaState.ACTIVE:
            yield f"shard {shard.shard_id} on this node is {shard.state.value}"
    for remote in placed.remote_shards:
        if remote.state != models.ReplicaState.ACTIVE:
            yield f"shard {remote.shard_id} on node {remote.peer_id} is {remote.state.value}"


def _optional(connection: Connection, request: Any) -> Any:
    """Send a request that an old server, or a read-only key, may be refused; None if it is."""
    try:
        return connection.call(request)
    except StoreError:
        return None
