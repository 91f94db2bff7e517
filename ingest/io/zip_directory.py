"""Check the directory of a zip archive, and the names and positions of its members, before anything is read."""

from __future__ import annotations

import io
import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from pearl_qdrant.errors import FormatError, InputError

MAX_DIRECTORY = 1 << 24
"""Bytes of an archive's directory, enough for 200,000 members; it takes ten times as much memory."""

MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
"""First bytes of an archive, and of an empty one."""

LOCAL_HEADER = 30
"""Bytes of the fixed part of the header before each member."""

_DRIVE = re.compile(r"[A-Za-z]:")
# What zipfile raises for a damaged archive.
_DAMAGE = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    NotImplementedError,
    RuntimeError,
    EOFError,
    UnicodeError,
    ValueError,
    OverflowError,
    IndexError,
    zlib.error,
)


class FilePart(io.RawIOBase):
    """A part of a file as a file. It reads by position, so threads and parts do not disturb each other."""

    def __init__(self, descriptor: int, start: int, size: int) -> None:
        super().__init__()
        self.descriptor, self.start, self.size = descriptor, start, size
        self._position = 0

    def read_at(self, offset: int, n_bytes: int) -> bytes:
        """Bytes from an offset, at most as many as there are."""
        n_bytes = max(0, min(n_bytes, self.size - offset))
        return os.pread(self.descriptor, n_bytes, self.start + offset) if n_bytes else b""

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = self.size if size is None or size < 0 else size
        data = self.read_at(self._position, wanted)
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise OSError("negative seek position")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            os.close(self.descriptor)
        super().close()


@contextmanager
def as_format_error(path: str) -> Iterator[None]:
    """Turn what zipfile raises for a damaged archive into a `FormatError`, and a disk error into an `InputError`."""
    try:
        yield
    except _DAMAGE as error:
        message = f"the zip archive is damaged or truncated ({str(error) or type(error).__name__}). Fetch it again"
        raise FormatError(path, None, message) from error
    except MemoryError as error:
        raise FormatError(path, None, "the zip archive needs more memory than is available") from error
    except OSError as error:
        raise InputError(path, None, f"reading failed: {error.strerror or error}") from error


def check_directory(path: str, file: FilePart) -> None:
    """Refuse a file without a zip directory at its end, or with one too large; zipfile would read any size.

    Raises:
        FormatError: If the directory is missing or too large.
    """
    tail_start = max(0, file.size - (1 << 16) - 22)
    tail = file.read_at(tail_start, file.size)
    end = tail.rfind(b"PK\x05\x06")
    if end < 0 or len(tail) < end + 22:
        looks = "is truncated (its directory, at its end, is missing). Fetch it again"
        if file.read_at(0, 4) not in MAGICS:
            looks = "is not a zip archive"
        raise FormatError(path, None, looks)
    size = int.from_bytes(tail[end + 12 : end + 16], "little")
    wide = tail.rfind(b"PK\x06\x06", 0, end)
    if size == 0xFFFFFFFF and wide >= 0:
        size = int.from_bytes(tail[wide + 40 : wide + 48], "little")
    if size > MAX_DIRECTORY:
        raise FormatError(
            path, None, f"its directory has {size:,} bytes (limit: {MAX_DIRECTORY:,}). Unpack it and name the files"
        )


def name_members(path: str, archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """Entries of all files by normalised name.

    Raises:
        FormatError: If a name is unsafe or occurs twice, or a member lies beyond the end of the file.
    """
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = _normalise(path, info.filename)
        # `is_dir()` fails for an empty name before Python 3.12.
        if info.filename.endswith("/") or (info.filename.endswith("\\") and not info.file_size):
            continue
        if not name:
            raise FormatError(path, None, f"holds a member without a name ({info.filename!r}). Unpack it by hand")
        if name in members:
            raise FormatError(path, None, f"holds the member {name!r} twice. Unpack it, and name the right files")
        if info.header_offset < 0 or info.header_offset + LOCAL_HEADER + info.compress_size > size:
            raise FormatError(path, None, f"is truncated: its member {name!r} lies beyond its end. Fetch it again")
        members[name] = info
    return members


def _normalise(path: str, name: str) -> str:
    """A member's name with forward slashes and without dot segments; empty for the top folder itself."""
    slashed = name.replace("\\", "/")
    if slashed.startswith("/") or _DRIVE.match(slashed):
        raise FormatError(path, None, f"holds a member with an absolute name ({name!r}): a hostile file?")
    parts: list[str] = []
    for part in slashed.split("/"):
        if part == "..":
            if not parts:
                raise FormatError(path, None, f"holds a member that climbs out of it ({name!r}): a hostile file?")
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)
