"""One random character edit, to see what a typo costs."""

from __future__ import annotations

import random

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def one_edit(name: str, rng: random.Random) -> str:
    """The name with one character swapped with the next, left out, put in, or replaced.

    Always another name, never an empty one; an empty name stays as it is.
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
