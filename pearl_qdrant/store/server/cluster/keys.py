"""Shards with keys: a collection whose partitions are shards of their own, each under a key.

The server takes a point for such a collection only with the key of its shard, and looks for it there alone. So every
write names a key. A search names none and goes over all shards.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError
from qdrant_client import models

from pearl_qdrant.errors import ManifestError
from pearl_qdrant.store.partitions.rule import Partitions

SHARDS_KEY = "pearl_qdrant_shards"
"""Key in a collection's metadata: the `Partitions` that are its shards. It is written once, with the collection."""


@dataclass(frozen=True, slots=True)
class ShardKeys:
    """The keys of a collection's shards.

    Attributes:
        partitions: How it is cut; each partition is the shard under one key.
    """

    partitions: Partitions

    def key_of(self, entity_id: str) -> str:
        """Return the key of the shard that has all names of an entity."""
        return key_of_partition(self.partitions.partition_of(entity_id))

    @property
    def all(self) -> list[str]:
        """The keys of all shards, in the order of the partitions."""
        return [key_of_partition(partition) for partition in range(self.partitions.count)]


def key_of_partition(partition: int) -> str:
    """Return the key of a partition's shard; an empty key or 0 would count as none in some clients."""
    return f"part-{partition:03d}"


def read_keys(info: models.CollectionInfo, collection: str) -> ShardKeys | None:
    """Return the keys of a collection's shards; None if it has none.

    Args:
        info: What the server says of it.
        collection: Its name, for errors.

    Raises:
        ManifestError: If it has shard keys, but not by a rule that this program knows: names would go astray.
    """
    if info.config.params.sharding_method != models.ShardingMethod.CUSTOM:
        return None
    try:
        partitions = Partitions.model_validate((info.config.metadata or {}).get(SHARDS_KEY))
    except ValidationError as error:
        raise ManifestError(collection, "its shards have keys that another program made") from error
    if not partitions.is_known:
        raise ManifestError(collection, f"its shards have keys by a rule of a newer program ({partitions.rule})")
    return ShardKeys(partitions)
