"""Assign entities and names to the training, development and test split by a hash, never by row number.

There are ten splits: 0 to 6 train, 7 and 8 are development data, 9 is the test.
"""

from __future__ import annotations

import hashlib
import re

TRAIN_SPLITS = range(7)
DEVELOPMENT_SPLITS = range(7, 9)
TEST_SPLITS = range(9, 10)


def split_of(key: str) -> int:
    """Return the split of an entity id or of a `name_key`: 0 to 9, from its SHA-1."""
    return int(hashlib.sha1(key.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest(), 16) % 10


def name_key(name: str) -> str:
    """Return a key shared by names that must be in the same split: case-folded, every digit replaced by 0."""
    return re.sub(r"\d", "0", name.casefold().strip())
