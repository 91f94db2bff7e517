"""Decompress gzip, bzip2, xz and zstd as a stream, with bounded memory and protection from bombs.

The file classes of the standard library are not used. They stop without an error at bytes after the end of a stream
that are not another stream, so the rest of a damaged file would be lost silently. zstandard's reader does the same with
a truncated file.
"""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from pearl_qdrant.errors import FormatError

if TYPE_CHECKING:
    from zstandard import ZstdDecompressor

CHUNK = 1 << 18
"""Bytes read or decompressed at a time."""

MAX_RATIO = 500
"""Decompressed bytes for each compressed byte; names compress 3 to 30 times, a gzip bomb 1,000 times, others more."""

RATIO_GRACE = 1 << 26
"""The ratio counts only beyond this many decompressed bytes: a small file of one repeated row is harmless."""

MAX_DECOMPRESSED = 1 << 42
"""4 TiB; the largest dump known to be read this way, Wikidata as JSON, has under 2 TiB."""

MAX_DECODER_MEMORY = 1 << 28
"""Memory that an xz stream may need to decode; xz -9 needs 65 MiB. zstd has its own limit, a window of 128 MiB."""

_XZ_MAGIC = b"\xfd7zXZ\x00"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# A bzip2 header alone ("BZh9") could begin a text: a block or the end of the stream must follow.
_BZIP2_BLOCKS = (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90")
# The output of one zstd call cannot be bounded, only its input: 2 KiB of input can become 64 MiB at worst.
_ZSTD_CHUNK = 1 << 11
_FIRST_BYTES = 1 << 9
_NOT_ZERO = re.compile(rb"[^\0]")


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
    if head.startswith(_XZ_MAGIC):
        return "xz"
    # A zstd file may begin with a skippable frame, as pzstd writes it: sixteen magics, 0x184D2A50 to 0x184D2A5F.
    if head.startswith(_ZSTD_MAGIC) or (head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5F):
        return "zstd"
    return None


def decompress(path: str, raw: RawInput, head: bytes, compression: str) -> Iterator[bytes]:
    """The content of all streams of a compressed file, one after the other.

    Args:
        path: For errors.
        raw: The file, read up to the end of `head`.
        head: Its first bytes.
        compression: From `detect_compression`.

    Returns:
        Pieces of `CHUNK` bytes, whatever the decoder returns at a time (1 byte or 128 MiB); the last one is shorter.

    Raises:
        FormatError: If the data is damaged, ends early, or is a bomb; the sound data before that is yielded first.
    """
    buffer = bytearray()
    try:
        for piece in _decompress_streams(path, raw, head, compression):
            buffer += piece
            start = 0
            while len(buffer) - start >= CHUNK:
                yield bytes(buffer[start : start + CHUNK])
                start += CHUNK
            del buffer[:start]
    except FormatError:
        # The data before the damage is sound, and shows the line that was reached.
        if buffer:
            yield bytes(buffer)
        raise
    if buffer:
        yield bytes(buffer)


class _Decoder(Protocol):
    """The interface of `bz2.BZ2Decompressor`: one stream, which may be followed by another."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Gzip:
    """A `_Decoder` over zlib, which checks the length and checksum at the stream's end."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def needs_input(self) -> bool:
        return not self._zlib.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._zlib.decompress(self._zlib.unconsumed_tail + data, max_length)


class _Zstd:
    """A `_Decoder` over zstandard. It cannot limit its output, so it must get little input at a time."""

    def __init__(self, context: ZstdDecompressor) -> None:
        """Begin a frame; no other frame of this context may be unfinished."""
        self._zstd = context.decompressobj()

    @property
    def eof(self) -> bool:
        return self._zstd.eof

    @property
    def needs_input(self) -> bool:
        return True

    @property
    def unused_data(self) -> bytes:
        return self._zstd.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._zstd.decompress(data)


def _decoders(compression: str) -> Iterator[_Decoder]:
    """A new decoder for each stream of a file; the previous one is no longer used."""
    if compression == "zstd":
        from zstandard import ZstdDecompressor

        # One for all frames: making it takes longer than decoding a small frame.
        context = ZstdDecompressor()
        while True:
            yield _Zstd(context)
    while True:
        if compression == "gzip":
            yield _Gzip()
        elif compression == "bzip2":
            yield bz2.BZ2Decompressor()
        else:
            yield lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=MAX_DECODER_MEMORY)


def _decompress_streams(path: str, raw: RawInput, head: bytes, compression: str) -> Iterator[bytes]:
    """All streams of a compressed file, one after the other.

    A decoder gets few bytes first, then more: unused bytes are copied, and a chunk may have 10,000 streams.
    """
    import zstandard

    most = _ZSTD_CHUNK if compression == "zstd" else CHUNK
    data, start, n_bytes = head, 0, _FIRST_BYTES
    decoders = _decoders(compression)
    decoder = next(decoders)
    n_read, n_written = len(head), 0
    while True:
        piece = b""
        if decoder.needs_input:
            if start == len(data):
                data, start = raw.read(CHUNK), 0
                if not data:
                    message = f"its {compression} data ends early: the file is truncated. Fetch it again"
                    raise FormatError(path, None, message)
                n_read += len(data)
            piece = data[start : start + n_bytes]
            start += len(piece)
            n_bytes = min(2 * n_bytes, most)
        try:
            output = decoder.decompress(piece, CHUNK)
        except (zlib.error, OSError, lzma.LZMAError, EOFError, zstandard.ZstdError, MemoryError) as error:
            raise FormatError(path, None, f"its {compression} data is damaged ({error}). Fetch it again") from error
        n_written += len(output)
        check_expansion(path, n_read, n_written, compression)
        if output:
            yield output
        if decoder.eof:
            # Tape-like padding with zero bytes is allowed after a stream; anything else must be a further stream.
            start = _skip_zeros(data, start - len(decoder.unused_data))
            while start == len(data):
                data = raw.read(CHUNK)
                if not data:
                    return
                n_read += len(data)
                start = _skip_zeros(data, 0)
            decoder, n_bytes = next(decoders), _FIRST_BYTES


def _skip_zeros(data: bytes, start: int) -> int:
    """The position of the first byte from `start` on that is not zero."""
    found = _NOT_ZERO.search(data, start)
    return len(data) if found is None else found.start()


def check_expansion(path: str, n_read: int, n_written: int, compression: str) -> None:
    """Refuse a decompression bomb.

    Raises:
        FormatError: If the sizes exceed `MAX_RATIO` or `MAX_DECOMPRESSED`.
    """
    too_dense = n_written > RATIO_GRACE and n_written > MAX_RATIO * n_read
    if too_dense or n_written > MAX_DECOMPRESSED:
        raise FormatError(
            path,
            None,
            f"its {compression} data expands from {n_read:,} to over {n_written:,} bytes, as no base of names does "
            f"(limits: {MAX_RATIO} times, {MAX_DECOMPRESSED:,} bytes). If the file is sound, decompress it first",
        )
