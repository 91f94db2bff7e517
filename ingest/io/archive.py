"""Read zip archives from untrusted sources: their members as sources, and zips inside them.

Members are read in place; nothing is unpacked to a name from the archive. `zipfile` reads the directory and checks the
checksums. This module adds what `zipfile` leaves to the caller: it refuses names that lead out of the archive, names
that occur twice, false sizes, and bombs (each member is compared with the bytes that the outermost file really has).
All damage is one kind of error.
"""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ingest.io.decompress import CHUNK, RawInput, check_expansion
from ingest.io.streams import ByteSource, RawFile, StoredBytes, copy_to_temporary
from ingest.io.zip_directory import LOCAL_HEADER, MAGICS, FilePart, as_format_error, check_directory, name_members
from pearl_qdrant.errors import FormatError

if TYPE_CHECKING:
    from typing_extensions import Self

SEPARATOR = "!"
"""Between archive and member in the path of a source: ``base.zip!folder/names.tsv``."""

MAX_DEPTH = 4
"""Levels of archives inside archives; UMLS has two."""

_ENCRYPTED = 0x1
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_METHOD_NAMES = {6: "implode", 9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd", 95: "xz", 98: "ppmd", 99: "AES"}


def is_zip(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins like a zip archive; False for pipes and for files that cannot be opened."""
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):
            return False
        with Path(path).open("rb") as file:
            return file.read(4) in MAGICS
    except (OSError, ValueError):
        return False


class Archive:
    """A zip archive, open for reading.

    Attributes:
        path: As given; that of a zip within a zip is ``outer.zip!inner.nlm``.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open a file and read its directory.

        Raises:
            FormatError: If it cannot be opened or is not a sound zip archive, or a member has an unsafe name.
        """
        self.path = os.fspath(path)
        try:
            # Not opened at once: opening a pipe would wait for its writer.
            if not stat.S_ISREG(Path(self.path).stat().st_mode):
                raise FormatError(self.path, None, "is not a regular file, as a zip archive must be")
            descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise FormatError(self.path, None, f"cannot be opened: {reason}") from error
        self._begin(descriptor, start=0, size=os.fstat(descriptor).st_size, density=1.0, depth=1)

    def _begin(self, descriptor: int, *, start: int, size: int, density: float, depth: int) -> None:
        """Take over a descriptor, and read the directory of the archive in this part of its file.

        Args:
            descriptor: Closed with the archive.
            start, size: Position of the archive in the file, in bytes.
            density: Bytes in the outermost file for each byte of this archive, at most 1.
            depth: 1 for the outermost one.
        """
        self._file = FilePart(descriptor, start, size)
        self._density = density
        self._depth = depth
        try:
            check_directory(self.path, self._file)
            with as_format_error(self.path):
                self._zip = zipfile.ZipFile(self._file)
            self._members = name_members(self.path, self._zip, size)
        except BaseException:
            self._file.close()
            raise

    def members(self) -> tuple[str, ...]:
        """Names of all files, in the order of the archive; with forward slashes, without ``.`` and ``..``."""
        return tuple(self._members)

    def source(self, member: str) -> ByteSource:
        """A member as a source; one that is compressed itself (.gz) is decompressed, as by `Source`.

        It works while the archive is open. Closing the source leaves the archive open.

        Raises:
            FormatError: If the member is encrypted, or its compression method is not supported.
            ValueError: If there is no such member.
        """
        return _MemberSource(self._member_path(member), self._zip, self._find(member), self._density)

    def archive(self, member: str) -> Archive:
        """A zip inside the zip, independent of this one: read in place if it is stored, else from a temporary copy.

        Raises:
            FormatError: As the constructor, and if it is encrypted, damaged, a bomb, or nested too deep.
            InputError: If the temporary copy cannot be written.
            ValueError: If there is no such member.
        """
        info, path = self._find(member), self._member_path(member)
        if self._depth >= MAX_DEPTH:
            raise FormatError(path, None, f"is inside {self._depth} nested archives. Unpack the outer ones")
        inner = Archive.__new__(Archive)
        inner.path = path
        depth = self._depth + 1
        if info.compress_type == zipfile.ZIP_STORED:
            start = self._content_start(path, info)
            inner._begin(
                os.dup(self._file.descriptor), start=start, size=info.file_size, density=self._density, depth=depth
            )
        else:
            source = _MemberSource(path, self._zip, info, self._density)
            descriptor, size = source.copy_to_temporary()
            density = self._density * min(1.0, info.compress_size / max(size, 1))
            inner._begin(descriptor, start=0, size=size, density=density, depth=depth)
        return inner

    def close(self) -> None:
        """Close the file. Its sources no longer work; archives taken from it do."""
        self._zip.close()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _member_path(self, member: str) -> str:
        return f"{self.path}{SEPARATOR}{member}"

    def _find(self, member: str) -> zipfile.ZipInfo:
        """The entry of a member, after a check that it can be read."""
        if member not in self._members:
            raise ValueError(f"{self.path} has no member {member!r}")
        info, path = self._members[member], self._member_path(member)
        if info.flag_bits & _ENCRYPTED:
            raise FormatError(path, None, "is encrypted. Unpack the archive with its password, and name the folder")
        if info.compress_type not in _METHODS:
            method = _METHOD_NAMES.get(info.compress_type, f"number {info.compress_type}")
            message = f"is compressed by the method {method}; only stored and deflate are read. Unpack it (7z x, unzip)"
            raise FormatError(path, None, message)
        return info

    def _content_start(self, path: str, info: zipfile.ZipInfo) -> int:
        """The position of a stored member's bytes in the file of the descriptor."""
        header = self._file.read_at(info.header_offset, LOCAL_HEADER)
        if len(header) < LOCAL_HEADER or header[:4] != MAGICS[0]:
            raise FormatError(path, None, "the zip archive is damaged (no local header). Fetch it again")
        offset = info.header_offset + LOCAL_HEADER
        offset += int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        if info.file_size != info.compress_size or offset + info.file_size > self._file.size:
            raise FormatError(path, None, "the zip archive is damaged (sizes do not agree). Fetch it again")
        return self._file.start + offset


class _MemberSource(StoredBytes):
    """A member of an archive."""

    def __init__(self, path: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo, density: float) -> None:
        self.path = path
        self.size = info.file_size
        self._archive = archive
        self._info = info
        # Nested compression multiplies: the bytes in the outermost file are what counts.
        self._n_stored = int(info.compress_size * density) + 1

    def chunks(self) -> Iterator[bytes]:
        n_written = 0
        for chunk in super().chunks():
            n_written += len(chunk)
            check_expansion(self.path, self._n_stored, n_written, "zip")
            yield chunk

    def copy_to_temporary(self) -> tuple[int, int]:
        """Copy the member, as it is, to an unnamed temporary file; its descriptor, for the caller to close, and size.

        Raises:
            FormatError: If it is damaged, or is a bomb.
            InputError: If the file cannot be written, or the disk is nearly full.
        """
        with self._open() as raw:
            spool, size = copy_to_temporary(self.path, self._stored_chunks(raw))
        with spool:
            return os.dup(spool.fileno()), size

    def _stored_chunks(self, raw: RawInput) -> Iterator[bytes]:
        """The member as it is, compressed or not."""
        n_written = 0
        while chunk := raw.read(CHUNK):
            n_written += len(chunk)
            check_expansion(self.path, self._n_stored, n_written, "zip")
            yield chunk

    def close(self) -> None:
        """Nothing to close: only the archive holds a file."""

    def _open(self) -> RawFile:
        with as_format_error(self.path):
            return _MemberFile(self.path, self._archive.open(self._info), self._info.file_size)


class _MemberFile:
    """The bytes of a member; errors of zipfile become ours."""

    def __init__(self, path: str, file: IO[bytes], size: int) -> None:
        self._path = path
        self._file = file
        self._missing = size

    def read(self, n_bytes: int, /) -> bytes:
        with as_format_error(self._path):
            data = self._file.read(n_bytes)
        self._missing -= len(data)
        if not data and n_bytes and self._missing:
            raise FormatError(self._path, None, f"its zip data ends {self._missing:,} bytes early. Fetch it again")
        return data

    def __enter__(self) -> RawInput:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._file.close()
