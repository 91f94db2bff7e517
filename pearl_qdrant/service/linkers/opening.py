"""Opens linkers over collections; collections of one model share one encoder."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.service.names import NameKeeper, usable_cache
from pearl_qdrant.service.observing.metrics import Metrics
from pearl_qdrant.service.observing.timed import TimedEncoder, timed_store
from pearl_qdrant.service.settings import ServiceSettings
from pearl_qdrant.settings import ServerAccess
from pearl_qdrant.store.open import location_of, open_store
from pearl_qdrant.store.protocol import Store
from pearl_qdrant.store.schema import Manifest


@dataclass
class Opener:
    """Opens stores and linkers as the settings say. Safe to use from several threads.

    Attributes:
        settings: Of the service.
        metrics: Learns how long encoding and searching take.
        access: How to reach a server; read from the environment, as on the command line.
    """

    settings: ServiceSettings
    metrics: Metrics
    access: ServerAccess = field(default_factory=ServerAccess.from_environment)
    _encoders: dict[tuple[str, str, str], Encoder] = field(default_factory=dict)
    _loading: threading.Lock = field(default_factory=threading.Lock)

    @property
    def location(self) -> str:
        """Folder or URL of the store."""
        return location_of(self.settings.store)

    def store(self) -> Store:
        """The store, opened."""
        return open_store(
            self.location, access=self.access, wait_s=self.settings.store_wait_s, timeout_s=self.settings.timeout_s
        )

    def linker(self, name: str) -> EntityLinker:
        """A linker over a collection, for reading unless the service may write.

        Raises:
            CollectionNotFoundError: If it does not exist.
            ModelError: If its model cannot be loaded.
            StoreError: If it cannot be opened.
        """

        def again(manifest: Manifest) -> Encoder:
            return self._encoder(manifest.model, manifest.pooling, manifest.prefix)

        store = timed_store(self.store(), self.metrics.search_seconds.labels(name).observe)
        read_only = not self.settings.allow_writing
        try:
            collection = store.open(name, read_only=read_only)
            manifest = collection.manifest
            encoder = self._encoder(self.settings.model or manifest.model, manifest.pooling, manifest.prefix)
            return EntityLinker(
                store, [collection], encoder, read_only=read_only, encoder_for=None if self.settings.model else again
            )
        except BaseException:
            store.close()
            raise

    def names(self, name: str) -> NameKeeper:
        """What keeps the index of a collection's names."""
        folder = usable_cache() if self.settings.cache is None else Path(self.settings.cache)
        return NameKeeper(folder, self.location, name, self.access)

    def _encoder(self, model: str, pooling: str, prefix: str) -> Encoder:
        with self._loading:
            key = model, pooling, prefix
            if key not in self._encoders:
                encoder = load_encoder(model, device=self.settings.device, pooling=pooling, prefix=prefix, arena=False)
                self._encoders[key] = TimedEncoder(encoder, self.metrics.encode_seconds.observe)
            return self._encoders[key]
