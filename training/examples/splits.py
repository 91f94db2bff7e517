"""Which entity or name belongs to training, development and test, decided by a hash, never by row.

Folds 0 to 6 train, 7 and 8 develop, 9 test.
"""

from __future__ import annotations

import hashlib
import re

TRAIN_FOLDS = range(7)
DEVELOPMENT_FOLDS = range(7, 9)
TEST_FOLDS = range(9, 10)


def fold(key: str) -> int:
    """0 to 9, from the SHA-1 of an entity id."""
    return int(hashlib.sha1(key.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest(), 16) % 10


def name_key(name: str) -> str:
    """What two names share if one must not be in training and the other in test: case folded, digits as 0."""
    return re.sub(r"\d", "0", name.casefold().strip())
