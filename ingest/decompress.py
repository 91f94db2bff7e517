"""Decompressing gzip, bzip2, xz and zstd as a stream, with bounded memory and an end to bombs.

The standard library's file classes are not used: they stop without an error at bytes after a stream's end that are no
stream, which would lose the rest of a damaged file in silence. zstandard's reader does so at a file that is cut off.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Iterator
from typing import Protocol

from pearl_qdrant.errors import FormatError

CHUNK = 1 << 18
"""Bytes read or decompressed at a time."""

MAX_RATIO = 500
"""Decompressed bytes a compressed byte; names compress 3 to 30 times, a gzip bomb 1,000 times, others more."""

RATIO_GRACE = 1 << 26
"""The ratio counts only past so many decompressed bytes: a small file of one repeated row is harmless."""

MAX_DECOMPRESSED = 1 << 42
"""4 TiB; the largest dump known to be read this way, Wikidata as JSON, has under 2 TiB."""

MAX_DECODER_MEMORY = 1 << 28
"""What an xz stream may ask of the decoder; xz -9 needs 65 MiB. zstd's own limit is a window of 128 MiB."""

_XZ_MAGIC = b"\xfd7zXZ\x00"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# A bzip2 header alone ("BZh9") could begin a text: a block or the end of the stream must follow.
_BZIP2_BLOCKS = (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90")
# The output of one zstd call cannot be bounded, only its input: 4 KiB of input can become 128 MiB at worst.
_ZSTD_CHUNK = 1 << 12


class RawInput(Protocol):
    """What bytes are read from."""

    def read(self, n_bytes: int, /) -> bytes:
        """At most so many bytes; none at the end."""
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
        Pieces of `CHUNK` bytes, whatever the decoder gives (a stream of one byte; 128 MiB at a time); the last one
        is shorter.

    Raises:
        FormatError: If the data is damaged, ends early, or expands beyond all measure; what is sound before that
            comes first.
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
        # What came before the damage is sound, and tells the line that was reached.
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
    """A `_Decoder` over zstandard, fed in small pieces since it cannot bound its output."""

    def __init__(self) -> None:
        import zstandard

        self._zstd = zstandard.ZstdDecompressor().decompressobj()
        self._pending = b""

    @property
    def eof(self) -> bool:
        return self._zstd.eof

    @property
    def needs_input(self) -> bool:
        return not self._pending

    @property
    def unused_data(self) -> bytes:
        return self._zstd.unused_data + self._pending

    def decompress(self, data: bytes, max_length: int) -> bytes:
        data = self._pending + data
        self._pending = data[_ZSTD_CHUNK:]
        return self._zstd.decompress(data[:_ZSTD_CHUNK])


def _new_decoder(compression: str) -> _Decoder:
    if compression == "gzip":
        return _Gzip()
    if compression == "bzip2":
        return bz2.BZ2Decompressor()
    if compression == "xz":
        return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=MAX_DECODER_MEMORY)
    return _Zstd()


def _decompress_streams(path: str, raw: RawInput, head: bytes, compression: str) -> Iterator[bytes]:
    """All streams of a compressed file, one after the other."""
    import zstandard

    decoder = _new_decoder(compression)
    data = head
    n_read, n_written = len(head), 0
    while True:
        try:
            output = decoder.decompress(data, CHUNK)
        except (zlib.error, OSError, lzma.LZMAError, EOFError, zstandard.ZstdError, MemoryError) as error:
            raise FormatError(path, None, f"its {compression} data is damaged ({error}). Fetch it again") from error
        n_written += len(output)
        check_expansion(path, n_read, n_written, compression)
        if output:
            yield output
        data = b""
        if decoder.eof:
            # Tape-like padding with zero bytes is allowed after a stream; anything else must be a further stream.
            data = decoder.unused_data.lstrip(b"\0")
            while not data:
                data = raw.read(CHUNK)
                if not data:
                    return
                n_read += len(data)
                data = data.lstrip(b"\0")
            decoder = _new_decoder(compression)
        elif decoder.needs_input:
            data = raw.read(CHUNK)
            if not data:
                raise FormatError(path, None, f"its {compression} data ends early: the file is cut off. Fetch it again")
            n_read += len(data)


def check_expansion(path: str, n_read: int, n_written: int, compression: str) -> None:
    """Stop at a decompression bomb.

    Raises:
        FormatError: If so many bytes out of so few are more than `MAX_RATIO` and `MAX_DECOMPRESSED` allow.
    """
    too_dense = n_written > RATIO_GRACE and n_written > MAX_RATIO * n_read
    if too_dense or n_written > MAX_DECOMPRESSED:
        raise FormatError(
            path,
            None,
            f"its {compression} data expands from {n_read:,} to over {n_written:,} bytes, which no base of names does "
            f"(limits: {MAX_RATIO} times, {MAX_DECOMPRESSED:,} bytes). If it is sound, decompress it first",
        )
