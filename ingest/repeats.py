"""Encoding each distinct name once, with bounded memory.

A base's names repeat: 538,036 of 571,078 are distinct in a general base of 450,000 entities. Within a window the
encoder sees to it; across windows the vectors of the names that a scan found to repeat are kept here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from ingest.scan import Hashes, hash_texts
from pearl_qdrant.encoder.protocol import Encoded, Encoder, FloatArray

CAPACITY = 32_768
"""Names kept; 61 MB at 384 dimensions with types. Past it the ones unused for longest go, and would be encoded
again."""


class RepeatedNames:
    """An encoder that remembers the names known to come again."""

    def __init__(self, encoder: Encoder, repeated_name_hashes: Hashes, *, capacity: int = CAPACITY) -> None:
        """Wrap `encoder`; the hashes are sorted, as `ScanResult.repeated_name_hashes`."""
        self._encoder = encoder
        self._repeated = repeated_name_hashes
        self._capacity = capacity
        self._kept: OrderedDict[str, tuple[FloatArray, bool, FloatArray | None]] = OrderedDict()

    def encode(self, names: Sequence[str]) -> Encoded:
        """As `Encoder.encode`, without encoding again what is remembered."""
        missing = [name for name in dict.fromkeys(names) if name not in self._kept]
        fresh = self._encoder.encode(missing)
        if len(missing) == len(names):
            self._remember(missing, fresh)
            return fresh
        row = {name: i for i, name in enumerate(missing)}
        info = self._encoder.info
        vectors = np.empty((len(names), info.dim), dtype=np.float32)
        encodable = np.empty(len(names), dtype=np.bool_)
        types = fresh.type_probabilities
        probabilities = None if types is None else np.empty((len(names), types.shape[1]), dtype=np.float32)
        known, from_fresh, fresh_rows = [], [], []
        for i, name in enumerate(names):
            if name in row:
                from_fresh.append(i)
                fresh_rows.append(row[name])
            else:
                known.append(i)
        vectors[from_fresh] = fresh.vectors[fresh_rows]
        encodable[from_fresh] = fresh.encodable[fresh_rows]
        if probabilities is not None and types is not None:
            probabilities[from_fresh] = types[fresh_rows]
        for i in known:
            vector, seen, kinds = self._kept[names[i]]
            self._kept.move_to_end(names[i])
            vectors[i], encodable[i] = vector, seen
            if probabilities is not None and kinds is not None:
                probabilities[i] = kinds
        self._remember(missing, fresh)
        return Encoded(vectors, encodable, probabilities)

    def _remember(self, names: Sequence[str], encoded: Encoded) -> None:
        """Keep those of `names` that the scan found more than once."""
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
