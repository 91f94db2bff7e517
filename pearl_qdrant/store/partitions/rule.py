"""Which partition of a collection a name belongs to: by the hash of its entity, the same in every process and release.

A base that is built in parts is cut by this rule, and so are collections whose shards have keys. All names of an entity
are in one partition. The rule must never change: points would be written to other shards than they are in.
"""

from __future__ import annotations

from hashlib import blake2b

from pydantic import BaseModel, ConfigDict, Field

BUCKETS = 256
"""Entities are in so many buckets. A partition is every n-th of them, so that there are at most as many partitions."""

RULE = "blake2b-64 of the entity id, 256 buckets"
"""The name of the rule in what is stored; another rule would get another name."""


def bucket_of(entity_id: str) -> int:
    """Return the bucket of an entity, in [0, `BUCKETS`)."""
    # Text from JSON can have lone surrogates, which plain UTF-8 refuses; they are checked elsewhere.
    digest = blake2b(entity_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") % BUCKETS


class Partitions(BaseModel):
    """How a collection is cut into partitions.

    Attributes:
        count: How many there are, from 1 to `BUCKETS`.
        rule: The name of the rule; a newer program may have another one.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    count: int = Field(ge=1, le=BUCKETS)
    rule: str = RULE

    @property
    def is_known(self) -> bool:
        """Whether this program knows the rule."""
        return self.rule == RULE

    def partition_of(self, entity_id: str) -> int:
        """Return the partition of an entity, in [0, `count`)."""
        return bucket_of(entity_id) % self.count
