"""What every input is: bytes that can be read from their start any number of times, decompressed within a budget.

The decoders of the standard library and of zstandard do the work, not their file classes: those stop without an error
at bytes after a stream that are not another stream, and zstandard's at a truncated file.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from pearl_qdrant.errors import FormatError, InputError

CHUNK = 1 << 18  # bytes read or decompressed at a time
MAX_RATIO = 500
"""Decompressed bytes for each stored byte; names compress 3 to 30 times, a gzip bomb 1,000 times, others more."""

RATIO_GRACE = 1 << 26
"""The ratio counts only beyond this many decompressed bytes: a small file of one repeated row is harmless."""

_MAX_DECODER_MEMORY = 1 << 28  # of an xz stream; xz -9 needs 65 MiB
# Small, as a piece may hold many streams, and one call of zstd returns all that its input holds: at worst 64 MiB.
_PIECE = 1 << 11
_BZIP2_BLOCKS = (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90")  # "BZh9" alone could begin a text


Read = Callable[[int], bytes]  # gives at most so many bytes, none at the end


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
        """The decompressed content, in pieces that are never empty. Raises FormatError if the compressed data is
        damaged, ends early, or is a bomb; InputError if reading fails.
        """

    def close(self) -> None:  # noqa: B027 - most hold nothing between two passes
        """Close files and remove temporary ones."""

    def head(self, n_bytes: int) -> bytes:
        """The first bytes of the decompressed content, or all of it if it is shorter. Raises as `chunks`."""
        found = b""
        for chunk in self.chunks():
            found += chunk
            if len(found) >= n_bytes:
                break
        return found[:n_bytes]


def stored_chunks(path: str, read: Read) -> Iterator[bytes]:
    """The content of stored bytes, decompressed if they are compressed. Raises as `ByteSource.chunks`."""
    try:
        head = read(_PIECE)
        compression = detect_compression(head)
        if compression is not None:
            yield from _decompress(path, read, head, compression)
            return
        while head:
            yield head
            head = read(CHUNK)
    except OSError as error:
        raise InputError(path, None, f"reading failed: {error.strerror or error}") from error


def detect_compression(head: bytes) -> str | None:
    """Name of the compression that a file's first bytes show: gzip, bzip2, xz, zstd or None."""
    if head.startswith(b"\x1f\x8b\x08"):
        return "gzip"
    if head.startswith(b"BZh") and head[4:10] in _BZIP2_BLOCKS:
        return "bzip2"
    if head.startswith(b"\xfd7zXZ\x00"):
        return "xz"
    # A zstd file may begin with a skippable frame, as pzstd writes it: sixteen magics, 0x184D2A50 to 0x184D2A5F.
    if head.startswith(b"\x28\xb5\x2f\xfd") or (head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5F):
        return "zstd"
    return None


def _decompress(path: str, read: Read, data: bytes, compression: str) -> Iterator[bytes]:
    """The content of all streams of a compressed file, one after the other; zero bytes between them are padding. Raises
    FormatError if the data is damaged, ends early, or is a bomb; the sound data before that is yielded first.
    """
    import zstandard

    decoder: Any = None
    most = () if compression == "zstd" else (CHUNK,)
    n_read, n_written, has_more = len(data), 0, False
    while True:
        if not data and not has_more:
            data = read(_PIECE)
            n_read += len(data)
            if not data and decoder is None:
                return
            if not data:
                raise FormatError(
                    path, None, f"its {compression} data ends early: the file is truncated. Fetch it again"
                )
        if decoder is None:
            data = data.lstrip(b"\0")
            if not data:
                continue
            decoder = _new_decoder(compression)
        try:
            output = decoder.decompress(data, *most)
        except (zlib.error, OSError, lzma.LZMAError, EOFError, zstandard.ZstdError, MemoryError) as error:
            raise FormatError(path, None, f"its {compression} data is damaged ({error}). Fetch it again") from error
        n_written += len(output)
        check_expansion(path, n_read, n_written, compression)
        if output:
            yield output
        if decoder.eof:
            data, decoder, has_more = decoder.unused_data, None, False
        else:
            data, has_more = getattr(decoder, "unconsumed_tail", b""), not getattr(decoder, "needs_input", True)


def _new_decoder(compression: str) -> Any:
    if compression == "gzip":
        return zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    if compression == "bzip2":
        return bz2.BZ2Decompressor()
    if compression == "xz":
        return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_MAX_DECODER_MEMORY)
    from zstandard import ZstdDecompressor

    return ZstdDecompressor().decompressobj()


def check_expansion(path: str, n_stored: int, n_written: int, kind: str) -> None:
    """Refuse a decompression bomb: one rule for every container. Raises FormatError if the ratio of the two is over
    `MAX_RATIO`.

    Args:
        path, kind: For the error.
        n_stored: Bytes in the file.
        n_written: Bytes that these become, decompressed or declared.
    """
    if n_written > RATIO_GRACE and n_written > MAX_RATIO * n_stored:
        message = (
            f"its {kind} data expands from {n_stored:,} to over {n_written:,} bytes, as no base of names does (limit: "
            f"{MAX_RATIO} times). If the file is sound, decompress it first"
        )
        raise FormatError(path, None, message)
