"""Decompress gzip, bzip2, xz and zstd as a stream, with bounded memory, and refuse decompression bombs.

The decoders of the standard library and of zstandard do the work. Their file classes are not used: those stop without
an error at bytes after a stream that are not another stream, and zstandard's at a truncated file, so that the rest of a
damaged file would be lost silently.
"""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections.abc import Iterator
from typing import Any, Protocol

from pearl_qdrant.errors import FormatError

CHUNK = 1 << 18
"""Bytes read or decompressed at a time."""

MAX_RATIO = 500
"""Decompressed bytes for each stored byte; names compress 3 to 30 times, a gzip bomb 1,000 times, others more."""

RATIO_GRACE = 1 << 26
"""The ratio counts only beyond this many decompressed bytes: a small file of one repeated row is harmless."""

_MAX_DECODER_MEMORY = 1 << 28  # of an xz stream; xz -9 needs 65 MiB
# One call of zstd returns all that its input holds, so the input is small: 2 KiB can become 64 MiB at worst.
_ZSTD_INPUT = 1 << 11
_FIRST_BYTES = 1 << 9
_NOT_ZERO = re.compile(rb"[^\0]")
_BZIP2_BLOCKS = (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90")  # "BZh9" alone could begin a text


class RawInput(Protocol):
    """Something that bytes are read from."""

    def read(self, n_bytes: int, /) -> bytes:
        """At most this many bytes; none at the end."""
        ...


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


def decompress(path: str, raw: RawInput, head: bytes, compression: str) -> Iterator[bytes]:
    """The content of all streams of a compressed file, one after the other, in pieces of at most a few MiB.

    Args:
        path: For errors.
        raw: The file, read up to the end of `head`.
        head: Its first bytes.
        compression: From `detect_compression`.

    Raises:
        FormatError: If the data is damaged, ends early, or is a bomb; the sound data before that is yielded first.
    """
    import zstandard

    most = _ZSTD_INPUT if compression == "zstd" else CHUNK
    decoder, step = _new_decoder(compression), _FIRST_BYTES
    data, start, n_read, n_written = head, 0, len(head), 0
    while True:
        if start == len(data):
            data, start = raw.read(CHUNK), 0
            n_read += len(data)
        if not data:
            raise FormatError(path, None, f"its {compression} data ends early: the file is truncated. Fetch it again")
        # A stream gets few bytes first, then more: what it leaves is copied, and a chunk may have 10,000 streams.
        piece = data[start : start + step]
        start, step = start + len(piece), min(2 * step, most)
        try:
            for output in _feed(decoder, piece, compression):
                n_written += len(output)
                check_expansion(path, n_read, n_written, compression)
                yield output
        except (zlib.error, OSError, lzma.LZMAError, EOFError, zstandard.ZstdError, MemoryError) as error:
            raise FormatError(path, None, f"its {compression} data is damaged ({error}). Fetch it again") from error
        if decoder.eof:
            # Padding with zero bytes is allowed after a stream; anything else must be a further stream.
            start -= len(decoder.unused_data)
            while (found := _NOT_ZERO.search(data, start)) is None:
                data, start = raw.read(CHUNK), 0
                if not data:
                    return
                n_read += len(data)
            start = found.start()
            decoder, step = _new_decoder(compression), _FIRST_BYTES


def _new_decoder(compression: str) -> Any:
    if compression == "gzip":
        return zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    if compression == "bzip2":
        return bz2.BZ2Decompressor()
    if compression == "xz":
        return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_MAX_DECODER_MEMORY)
    from zstandard import ZstdDecompressor

    return ZstdDecompressor().decompressobj()


def _feed(decoder: Any, piece: bytes, compression: str) -> Iterator[bytes]:
    """All output of a piece of input, in bounded pieces."""
    if compression == "gzip":
        while piece and not decoder.eof:
            if output := decoder.decompress(piece, CHUNK):
                yield output
            piece = decoder.unconsumed_tail
        return
    if compression == "zstd":
        if output := decoder.decompress(piece):
            yield output
        return
    while True:
        if output := decoder.decompress(piece, CHUNK):
            yield output
        if decoder.needs_input or decoder.eof:
            return
        piece = b""


def check_expansion(path: str, n_stored: int, n_written: int, kind: str) -> None:
    """Refuse a decompression bomb: one rule for every container.

    Args:
        path, kind: For the error.
        n_stored: Bytes in the file.
        n_written: Bytes that these become, decompressed or declared.

    Raises:
        FormatError: If the ratio of the two is over `MAX_RATIO`.
    """
    if n_written > RATIO_GRACE and n_written > MAX_RATIO * n_stored:
        message = (
            f"its {kind} data expands from {n_stored:,} to over {n_written:,} bytes, as no base of names does (limit: "
            f"{MAX_RATIO} times). If the file is sound, decompress it first"
        )
        raise FormatError(path, None, message)
