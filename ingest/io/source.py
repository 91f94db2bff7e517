"""What every input is: bytes that can be read from their start any number of times."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from ingest.io.decompress import CHUNK, RawInput, decompress, detect_compression
from pearl_qdrant.errors import InputError


class ByteSource(ABC):
    """Input that can be read from its start any number of times, also by several threads at once.

    Attributes:
        path: Its name in errors; ``-`` is standard input, ``base.zip!names.tsv`` a member of an archive.
        size: In bytes, as stored (compressed).
    """

    path: str
    size: int

    @abstractmethod
    def chunks(self) -> Iterator[bytes]:
        """The decompressed content, in pieces that are never empty.

        Raises:
            FormatError: If the compressed data is damaged, ends early, or is a bomb.
            InputError: If reading fails.
        """

    @abstractmethod
    def close(self) -> None:
        """Close files and remove temporary ones."""

    def head(self, n_bytes: int) -> bytes:
        """The first bytes of the decompressed content, or all of it if it is shorter. Raises as `chunks`."""
        parts = []
        missing = n_bytes
        for chunk in self.chunks():
            parts.append(chunk[:missing])
            missing -= len(parts[-1])
            if not missing:
                break
        return b"".join(parts)


def stored_chunks(path: str, raw: RawInput) -> Iterator[bytes]:
    """The content of stored bytes, decompressed if they are compressed. Raises as `ByteSource.chunks`."""
    try:
        head = raw.read(CHUNK)
        compression = detect_compression(head)
        if compression is None:
            while head:
                yield head
                head = raw.read(CHUNK)
        else:
            yield from decompress(path, raw, head, compression)
    except OSError as error:
        raise InputError(path, None, f"reading failed: {error.strerror or error}") from error
