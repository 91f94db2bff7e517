"""64-bit keys of phrases, the same in every process: tables of millions of phrases as arrays of numbers."""

from __future__ import annotations

import hashlib
import unicodedata


def phrase_key(phrase: str) -> int:
    """A number in [0, 2^64); two of ten million phrases share one with probability 3e-6."""
    data = phrase.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def folded(name: str) -> str:
    """A name in Unicode's composed form with white space folded; case stays."""
    return " ".join(unicodedata.normalize("NFC", name).split())
