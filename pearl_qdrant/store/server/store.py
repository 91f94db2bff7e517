"""A Qdrant server or cluster as a store, through qdrant-client over REST.

The manifest is in the collection's metadata. A bulk load switches the server's indexing off and stores the old setting
in the metadata, in one request; `finalize` restores it. So if a process dies in between, the collection still answers
(exactly), is reported as not finalized, and the next `finalize` repairs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from qdrant_client import models

from pearl_qdrant.errors import CollectionExistsError, CollectionNotFoundError, ManifestError
from pearl_qdrant.settings import REQUEST_TIMEOUT_S
from pearl_qdrant.store import graph
from pearl_qdrant.store.protocol import Glance, Placement
from pearl_qdrant.store.retry import RetryPolicy
from pearl_qdrant.store.schema import DENSE, LEXICAL, Manifest
from pearl_qdrant.store.server import connection as server_connection
from pearl_qdrant.store.server import indexing as server_indexing
from pearl_qdrant.store.server.collection import MANIFEST_KEY, ServerCollection, parse_manifest
from pearl_qdrant.store.server.connection import Connection
from pearl_qdrant.store.server.current import find_current, split_name
from pearl_qdrant.store.server.indexing import Indexing
from pearl_qdrant.store.server.ledger import LEDGER_SUFFIX, ServerLedger
from pearl_qdrant.store.server.queries import Limits
from pearl_qdrant.store.server.versions import ServerVersions
from pearl_qdrant.store.versions import PLAIN


class ServerStore:
    """Collections on a Qdrant server. Thread-safe."""

    def __init__(self, connection: Connection, *, indexing: Indexing | None = None) -> None:
        self._connection = connection
        self._indexing = indexing or Indexing()
        self._versions = ServerVersions(self)

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        api_key: str | None = None,
        timeout: float = REQUEST_TIMEOUT_S,
        retry: RetryPolicy | None = None,
        indexing: Indexing | None = None,
        allow_plain_http: bool = False,
        ca_file: str | None = None,
        compress: bool = False,
    ) -> ServerStore:
        """Use the server at `url`; sends nothing yet.

        Args:
            url: http:// or https://, port 6333 unless given; several with commas between.
            api_key: Sent with every request; refused for plain HTTP to another host, unless that is allowed.
            timeout, retry: For one try, in seconds; how often and how long a request is tried again.
            indexing: How `finalize` waits.
            allow_plain_http: Whether the key may go over plain HTTP to another host; only for a private network.
            ca_file: Certificates (PEM) of an authority that is trusted besides the system's.
            compress: Request compressed answers: for a distant host, where bytes cost more time than waiting.

        Raises:
            SettingsError: If the URL is not valid, the key would travel in plain text, or `ca_file` cannot be read.
        """
        connection = server_connection.connect(
            url,
            api_key=api_key,
            timeout=timeout,
            retry=retry or RetryPolicy(),
            allow_plain_http=allow_plain_http,
            ca_file=ca_file,
            compress=compress,
        )
        return cls(connection, indexing=indexing)

    def __repr__(self) -> str:
        return f"ServerStore({self.location!r})"

    @property
    def connection(self) -> Connection:
        """The connection of all requests."""
        return self._connection

    @property
    def location(self) -> str:
        """URL, without any key."""
        return self._connection.location

    def collections(self) -> list[str]:
        """Return the names of all collections on the server, sorted, also those of other programs.

        Ledgers and hidden versions are left out; an alias of a version counts as a collection.
        """
        names = [name for name in self._connection.collections() if not name.endswith(LEDGER_SUFFIX)]
        plain = [name for name in names if split_name(name)[1] == PLAIN]
        if len(plain) == len(names):
            return plain
        answer = self._connection.call(self._connection.client.get_aliases)
        hidden = {one.alias_name for one in answer.aliases if split_name(one.collection_name)[0] == one.alias_name}
        return sorted({*plain, *(hidden - set(plain))})

    @property
    def versions(self) -> ServerVersions:
        """The versions of its collections."""
        return self._versions

    def glance(self, names: Sequence[str]) -> Iterator[Glance]:
        """Look at collections with one request each, a few at the same time; see `protocol.Store.glance`."""
        return (found for found in self._connection.map(self._glance, names) if found is not None)

    def _glance(self, name: str) -> Glance | None:
        """Look at one collection; None if it was deleted meanwhile."""
        try:
            _, info = find_current(self._connection, name)
        except CollectionNotFoundError:
            return None
        metadata = info.config.metadata or {}
        try:
            manifest = parse_manifest(metadata, name)
        except ManifestError as error:
            return Glance(name, None, problem=str(error), is_foreign=MANIFEST_KEY not in metadata)
        has_graph = server_indexing.is_built(info, n_vectors=manifest.names, dim=manifest.dim)
        return Glance(name, manifest, has_graph)

    def create(self, manifest: Manifest, placement: Placement | None = None) -> ServerCollection:
        """Create a collection with its payload indexes; see `protocol.Store.create`."""
        if manifest.collection in self.collections():
            raise CollectionExistsError(manifest.collection)
        self.create_physical(manifest.collection, manifest, placement)
        return self.open(manifest.collection)

    def create_physical(
        self,
        name: str,
        manifest: Manifest,
        placement: Placement | None = None,
        *,
        metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Create a collection as `create` does, under the server's own name for it, and with more metadata."""
        client = self._connection.client
        manifest, placement = manifest.as_created(), placement or Placement()
        stored = {MANIFEST_KEY: manifest.model_dump(mode="json", exclude={"checkpoints"}), **(metadata or {})}

        def create() -> bool:
            return client.create_collection(
                name,
                vectors_config={DENSE: server_indexing.dense_params(manifest)},
                hnsw_config=models.HnswConfigDiff(
                    m=graph.M, ef_construct=graph.EF_CONSTRUCT, full_scan_threshold=graph.FULL_SCAN_KB
                ),
                sparse_vectors_config={LEXICAL: server_indexing.sparse_params()},
                shard_number=placement.shards,
                replication_factor=placement.replicas,
                write_consistency_factor=placement.write_consistency,
                metadata=stored,
            )

        try:
            self._connection.call(create, collection=name)
        except CollectionExistsError:
            if self._manifest(name) != manifest:  # else an earlier try has created it, but its answer was lost
                raise
        server_indexing.ensure_payload_indexes(self._connection, name)

    def _manifest(self, physical: str) -> Manifest:
        return parse_manifest(self._connection.info(physical).config.metadata, physical)

    def open(self, name: str, *, read_only: bool = False) -> ServerCollection:
        """Open a collection; see `protocol.Store.open`. The key decides whether it can be written."""
        version, info = find_current(self._connection, name)
        return self.open_physical(name, version, info)

    def open_physical(
        self, name: str, version: str, info: models.CollectionInfo, *, is_hidden: bool = False
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
            indexing=self._indexing,
            version=version,
            is_hidden=is_hidden,
        )

    def delete(self, name: str, *, keep_ledger: bool = False) -> None:
        """Delete a collection with all its versions, even one without a manifest; see `protocol.Store.delete`."""
        existing = self.collections()
        if name not in existing:
            raise CollectionNotFoundError(name, existing)
        self._versions.delete_all(name)
        if not keep_ledger:
            ServerLedger(self._connection, name).delete()

    def close(self) -> None:
        """Close the connection, and so all collections."""
        self._connection.close()
