"""Opening inputs: compression, standard input, damage, bombs, files that are not text."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import random
import struct
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from standard_input import given_input

from ingest.io import streams
from ingest.io.encoding import BadLine, read_lines
from ingest.io.limits import MAX_LINE_BYTES
from ingest.io.streams import Source, open_sources
from pearl_qdrant.errors import FormatError, InputError

TEXT = "".join(f"Q{i}\tname {i} é\n" for i in range(20_000)).encode()
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}
compressions = pytest.mark.parametrize("compression", COMPRESS)


def write(path: Path, content: bytes) -> Source:
    """A source over a new file."""
    path.write_bytes(content)
    return Source(path)


def read(source: Source) -> bytes:
    """All of it."""
    return b"".join(source.chunks())


@compressions
def test_compression_is_told_by_content_not_by_name(tmp_path: Path, compression: str) -> None:
    """A compressed file may have any name, and a plain file may be called .gz."""
    assert read(write(tmp_path / "names.txt", COMPRESS[compression](TEXT))) == TEXT
    assert read(write(tmp_path / "names.gz", TEXT)) == TEXT


@compressions
def test_every_stream_of_a_file_is_read(tmp_path: Path, compression: str) -> None:
    """Members that were joined with cat are read to the last, also empty and tiny ones; zero bytes may pad them."""
    compress = COMPRESS[compression]
    parts = [TEXT, b"", b"a", b"\n", TEXT]

    for padding in (b"", bytes(300_000)):
        assert read(write(tmp_path / "f", b"".join(map(compress, parts)) + padding)) == b"".join(parts)


def test_zstd_frames_that_are_to_be_skipped_are_skipped(tmp_path: Path) -> None:
    """What pzstd puts between frames does not disturb."""
    skippable = struct.pack("<II", 0x184D2A50, 5) + b"12345"
    frame = COMPRESS["zstd"](TEXT)

    assert read(write(tmp_path / "f", skippable + frame + skippable + frame)) == TEXT + TEXT


@compressions
@pytest.mark.parametrize("keep", [0.9, 0.99])
def test_a_file_that_is_cut_off_says_how_far_it_went(tmp_path: Path, compression: str, keep: float) -> None:
    """A download that broke off is an error with path and line, never a shorter base."""
    content = b"".join(COMPRESS[compression](part) for part in (TEXT, TEXT))
    source = write(tmp_path / "f", content[: int(len(content) * keep)])
    lines: list[tuple[int, str | BadLine]] = []

    with pytest.raises(FormatError, match=r"f:\d+: after this line, its .* data ends early") as caught:
        lines.extend(read_lines(source))
    assert caught.value.line == len(lines) > 0
    assert lines[-1] == (len(lines), f"Q{(len(lines) - 1) % 20_000}\tname {(len(lines) - 1) % 20_000} é")


@compressions
def test_every_way_to_cut_a_file_is_noticed(tmp_path: Path, compression: str) -> None:
    """A compressed file that is truncated at any byte is never read as complete."""
    content = COMPRESS[compression](b"Q1\tParis\nQ2\tRome\n")

    for length in range(7 if compression == "xz" else 10, len(content)):
        with pytest.raises(FormatError):
            read(write(tmp_path / "f", content[:length]))


@compressions
def test_damage_is_noticed(tmp_path: Path, compression: str) -> None:
    """A changed byte in the middle is an error; the rest of a file whose second stream is damaged is not lost in
    silence.
    """
    content = bytearray(COMPRESS[compression](random.Random(1).randbytes(100_000)))
    content[len(content) // 2] ^= 0xFF
    if compression == "zstd":
        checked = zstandard.ZstdCompressor(write_checksum=True).compress(random.Random(1).randbytes(100_000))
        content = bytearray(checked)
        content[len(content) // 2] ^= 0xFF

    for damaged in (bytes(content), COMPRESS[compression](TEXT) + b"garbage, no stream at all"):
        with pytest.raises(FormatError, match="damaged"):
            read(write(tmp_path / "f", damaged))


@compressions
def test_a_decompression_bomb_is_stopped(tmp_path: Path, compression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file that expands without end is refused while it is read."""
    monkeypatch.setattr(streams, "RATIO_GRACE", 1 << 20)
    bomb = COMPRESS[compression](bytes(3 << 20))

    with pytest.raises(FormatError, match="expands"):
        for _ in write(tmp_path / "f", bomb).chunks():
            pass


def test_an_xz_file_may_not_ask_for_any_memory(tmp_path: Path) -> None:
    """A stream that needs a gigabyte for its dictionary is refused."""
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 25}]
    content = bytearray(lzma.compress(b"Q1\tx\n", filters=filters))
    # Byte 16 of the block header is LZMA2's dictionary size; 38 means 2 GiB. Its checksum follows in 20 to 23.
    content[16] = 38
    content[20:24] = struct.pack("<I", zlib.crc32(content[12:20]))

    with pytest.raises(FormatError, match=r"(?i)memory"):
        read(write(tmp_path / "f", bytes(content)))


@compressions
def test_standard_input_can_be_read_twice(compression: str) -> None:
    """Input from a pipe is kept for the second pass, also if both passes run at the same time."""
    (source,) = given_input(COMPRESS[compression](TEXT), open_sources, ["-"])
    first, second = source.chunks(), source.chunks()

    assert [next(first), next(second), *first][2:] == [*second]
    assert read(source) == TEXT
    source.close()


def test_a_named_pipe_is_read(tmp_path: Path) -> None:
    """Process substitution, as in <(zcat names.gz), works."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(TEXT))
    writer.start()
    source = Source(path)
    writer.join()

    assert read(source) == read(source) == TEXT
    source.close()


def test_what_cannot_be_opened_says_why(tmp_path: Path) -> None:
    """A missing file, a directory, a device and an impossible name have different messages."""
    for path, message in (
        (tmp_path / "no", "does not exist"),
        (tmp_path, "is a directory"),
        ("/dev/null", "is a device"),
        ("a\0b", "cannot be opened"),
    ):
        with pytest.raises(FormatError, match=message):
            Source(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_says_so(tmp_path: Path) -> None:
    """A file that the user may not read is named."""
    path = tmp_path / "f"
    path.write_bytes(TEXT)
    path.chmod(0)

    with pytest.raises(FormatError, match="may not be read"):
        Source(path)


def test_a_pipe_that_nothing_writes_to_is_waited_for_with_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a pipe has no writer, a warning explains the wait; a writer may still come."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    monkeypatch.setattr(streams, "PATIENCE_S", 0.0)
    told, said = threading.Event(), list[str]()

    def warn(message: str, path: Path) -> None:
        said.append(message % path)
        told.set()

    monkeypatch.setattr(streams._log, "warning", warn)
    writer = threading.Thread(target=lambda: told.wait() and path.write_bytes(TEXT))
    writer.start()
    source = Source(path)  # opens the pipe, which takes a writer, which waits for the word
    writer.join()

    assert said == [f"{path}: nothing writes to this pipe yet. Waiting for a writer; press Ctrl-C to give up"]
    assert read(source) == TEXT
    source.close()


def test_nothing_is_opened_if_one_path_is_wrong(tmp_path: Path) -> None:
    """The copy of standard input is closed if a later path fails (no resource warning), or is named twice."""
    with pytest.raises(FormatError, match="does not exist"):
        given_input(TEXT, open_sources, ["-", tmp_path / "no"])
    with pytest.raises(FormatError, match="twice"):
        given_input(TEXT, open_sources, ["-", "-"])


def test_a_failing_read_is_an_input_error() -> None:
    """A broken pipe is reported with the path."""

    class Broken(io.BytesIO):
        def read(self, n_bytes: int | None = -1, /) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(InputError, match=r"-: could not be copied .* Input/output error"):
        given_input(Broken(), open_sources, ["-"])


def test_lines_are_cut_at_newlines_only(tmp_path: Path) -> None:
    """Characters that Python takes for line ends stay in the line; BOM and CRLF go."""
    text = "\ufeffa\x0b\x0c\x1c\x1d\x85\u2028\u2029b\rc\r\n\nlast"

    assert [*read_lines(write(tmp_path / "f", text.encode()))] == [
        (1, "a\x0b\x0c\x1c\x1d\x85\u2028\u2029b\rc"),
        (2, ""),
        (3, "last"),
    ]


def test_a_line_that_is_too_long_is_skipped(tmp_path: Path) -> None:
    """Lines up to the limit are read; with one byte more they are bad, for any division into chunks. A file that never
    ends its line is one bad line, not a full memory.
    """
    for before in (0, 1, streams.CHUNK - 1, streams.CHUNK):
        lines = [
            "b" * before,
            "é" + "x" * (MAX_LINE_BYTES - 2),
            "y" * (MAX_LINE_BYTES + 1),
            "z" * 3 * MAX_LINE_BYTES,
            "end",
        ]
        found = [*read_lines(write(tmp_path / "f", "\n".join(lines).encode()))]

        assert found[:2] == [(1, lines[0]), (2, lines[1])]
        assert [(n, bad.reason) for n, bad in found[2:4] if isinstance(bad, BadLine)] == [
            (3, "line_too_long"),
            (4, "line_too_long"),
        ]
        assert found[4:] == [(5, "end")]
    last = [*read_lines(write(tmp_path / "f", b"Q1\tx\n" + b"y" * 4 * MAX_LINE_BYTES))][1]
    assert last[0] == 2
    assert isinstance(last[1], BadLine)
    assert len(last[1].text) < 2000


def test_bad_bytes_spoil_only_their_line(tmp_path: Path) -> None:
    """Invalid UTF-8 and NUL are reported with their line; the lines around are read."""
    found = [*read_lines(write(tmp_path / "f", b"Q1\ta\nQ2\t\xff\r\nQ3\tc\r\nQ4\t\0\nQ5\te"))]

    assert found == [
        (1, "Q1\ta"),
        (2, BadLine("invalid_utf8", "Q2\t\ufffd\r")),
        (3, "Q3\tc"),
        (4, BadLine("nul_character", "Q4\t\0")),
        (5, "Q5\te"),
    ]


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "PNG"),
        (b"PK\x03\x04" + bytes(100), "zip archive or a workbook"),
        (random.Random(2).randbytes(5000), "NUL bytes"),
        (gzip.compress(gzip.compress(TEXT, mtime=0), mtime=0), "compressed twice"),
        (b"f".ljust(257, b"\0") + b"ustar" + bytes(500), "tar archive"),
        (b"Q1\ta\rQ2\tb\rQ3\tc\r", "r alone"),
        (b"FEA1" + bytes(100) + b"FEA1", "Feather file of version 1"),
        (b"PAR1" + bytes(100), "is not text but a Parquet file"),
        (gzip.compress(b"PAR1" + bytes(100), mtime=0), "uncompressed file"),
    ],
)
def test_what_is_no_text_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    """A file of another kind is refused with what it is and what to do."""
    with pytest.raises(FormatError, match=message):
        list(read_lines(write(tmp_path / "f", content)))
