"""64-bit keys of phrases, the same in every process, so that large tables are arrays of numbers."""

from __future__ import annotations

import hashlib
import unicodedata


def phrase_key(phrase: str) -> int:
    """Return a number in [0, 2^64); among ten million phrases, two share a key with probability 3e-6."""
    data = phrase.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def normalise_name(name: str) -> str:
    """Return a name in Unicode's composed form with white space normalised; case is kept."""
    return " ".join(unicodedata.normalize("NFC", name).split())
