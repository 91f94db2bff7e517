"""Encode each distinct name once, with bounded memory.

Names of a base repeat: 538,036 of 571,078 are distinct in a general base of 450,000 entities. The encoder encodes a
name once within a window; across windows, the vectors of names that the scan found to repeat are kept here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from ingest.base.reader import Hashes
from ingest.base.scan import hash_texts
from pearl_qdrant.encoder.protocol import Encoded, Encoder, FloatArray

CAPACITY = 32_768
"""Names kept; 61 MB at 384 dimensions with types. Beyond it, the least recently used are dropped, and encoded again
if they come back."""


class RepeatedNames:
    """An encoder that remembers the vectors of names that repeat."""

    def __init__(self, encoder: Encoder, repeated_name_hashes: Hashes, *, capacity: int = CAPACITY) -> None:
        """Wrap `encoder`; the hashes are sorted, as `ScanResult.repeated_name_hashes`."""
        self._encoder = encoder
        self._repeated = repeated_name_hashes
        self._capacity = capacity
        self._kept: OrderedDict[str, tuple[FloatArray, bool, FloatArray | None]] = OrderedDict()

    def encode(self, names: Sequence[str]) -> Encoded:
        """As `Encoder.encode`; remembered names are not encoded again."""
        new = list(dict.fromkeys(name for name in names if name not in self._kept))
        fresh = self._encoder.encode(new)
        whole = fresh if len(new) == len(names) else self._combine(names, new, fresh)
        self._remember(new, fresh)
        return whole

    def forget(self) -> None:
        """Free the memory, after the last name."""
        self._kept.clear()

    def _combine(self, names: Sequence[str], new: Sequence[str], fresh: Encoded) -> Encoded:
        """New and remembered vectors, in the order of the names."""
        row = {name: i for i, name in enumerate(new)}
        rows = np.fromiter((row.get(name, -1) for name in names), dtype=np.int64, count=len(names))
        is_new = rows >= 0
        rows = rows[is_new]
        types = fresh.type_probabilities
        vectors = np.empty((len(names), fresh.vectors.shape[1]), dtype=np.float32)
        encodable = np.empty(len(names), dtype=np.bool_)
        probabilities = None if types is None else np.empty((len(names), types.shape[1]), dtype=np.float32)
        vectors[is_new], encodable[is_new] = fresh.vectors[rows], fresh.encodable[rows]
        if probabilities is not None and types is not None:
            probabilities[is_new] = types[rows]
        for i in np.flatnonzero(~is_new).tolist():
            self._kept.move_to_end(names[i])
            vectors[i], encodable[i], kinds = self._kept[names[i]]
            if probabilities is not None and kinds is not None:
                probabilities[i] = kinds
        return Encoded(vectors, encodable, probabilities)

    def _remember(self, names: Sequence[str], encoded: Encoded) -> None:
        """Keep the vectors of the names that the scan found more than once."""
        if not len(self._repeated) or not names:
            return
        hashes = hash_texts(names)
        at = np.minimum(np.searchsorted(self._repeated, hashes), len(self._repeated) - 1)
        types = encoded.type_probabilities
        for i in np.flatnonzero(self._repeated[at] == hashes).tolist():
            kinds = None if types is None else types[i].copy()
            self._kept[names[i]] = (encoded.vectors[i].copy(), bool(encoded.encodable[i]), kinds)
        while len(self._kept) > self._capacity:
            self._kept.popitem(last=False)
