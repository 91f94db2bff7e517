"""Which names a collection can have: those that both a folder and a Qdrant server take, versions included."""

from __future__ import annotations

from pearl_qdrant.errors import StoreRejectedError

MAX_NAME_BYTES = 200
"""The longest name, in UTF-8. File systems and servers allow 255; versions and ledgers have longer names."""

_FORBIDDEN = set('/\\:*?"<>|')  # not allowed by one file system or another, or by a server


def check_name(name: str) -> None:
    """Raise StoreRejectedError for a name that a folder or a server cannot have, before anything is done for it."""
    reason = None
    if not name or name.startswith(".") or name[-1] in ". ":
        reason = "it must not be empty, begin with a dot, or end with a dot or space"
    elif _FORBIDDEN & set(name) or not name.isprintable():
        reason = f"it must not hold control characters or any of {' '.join(sorted(_FORBIDDEN))}"
    elif len(name.encode()) > MAX_NAME_BYTES:
        reason = f"it has {len(name.encode())} bytes, {MAX_NAME_BYTES} are allowed"
    if reason:
        raise StoreRejectedError(f"{name!a} cannot be the name of a collection: {reason}.")
