"""An encoder that remembers what it was asked."""

from __future__ import annotations

from collections.abc import Sequence

from pearl_qdrant.encoder.protocol import Encoded, Encoder, ModelInfo


class CountingEncoder(Encoder):
    """Passes on to an encoder and remembers every name that it was given; may fail at one call."""

    def __init__(self, inner: Encoder, *, fail_at: int | None = None) -> None:
        self._inner = inner
        self._fail_at = fail_at
        self.calls = 0
        self.names: list[str] = []

    @property
    def info(self) -> ModelInfo:
        return self._inner.info

    def encode(self, names: Sequence[str]) -> Encoded:
        self.calls += 1
        if self.calls == self._fail_at:
            raise MemoryError("out of memory")
        self.names.extend(names)
        return self._inner.encode(names)
