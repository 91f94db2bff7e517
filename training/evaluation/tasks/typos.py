"""Makes typos: one random character edit in a name."""

from __future__ import annotations

import random

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def one_edit(name: str, rng: random.Random) -> str:
    """The name with one character swapped with the next, deleted, inserted, or replaced.

    The result differs from the name and is not blank. An empty name stays empty.
    """
    if not name:
        return name
    while True:
        at = rng.randrange(len(name))
        edit = rng.choice(("swap", "delete", "insert", "substitute"))
        if edit == "swap":
            edited = name[:at] + name[at + 1 : at + 2] + name[at] + name[at + 2 :]
        elif edit == "delete":
            edited = name[:at] + name[at + 1 :]
        else:
            edited = name[:at] + rng.choice(_LETTERS) + name[at + (edit == "substitute") :]
        if edited.strip() and edited != name:
            return edited
