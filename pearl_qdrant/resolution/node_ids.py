"""Ids of nodes that no collection knows: a hash of the name that founded the node, so that runs agree."""

from __future__ import annotations

import json
from collections.abc import Container
from hashlib import blake2b

PREFIX = "nil-"


def free_id(key: tuple[str, str], taken: Container[str]) -> str:
    """The id of a node that a name founds.

    Args:
        key: Spelling key and type of the name (`names.key_of`).
        taken: Ids of other nodes; one of them may have the same founder, which left it.
    """
    number = 0
    while True:
        text = json.dumps([*key, number] if number else list(key), ensure_ascii=True)
        found = PREFIX + blake2b(text.encode(), digest_size=8).hexdigest()
        if found not in taken:
            return found
        number += 1
