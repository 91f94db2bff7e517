"""Members of zip archives as sources. They are read in place; nothing is unpacked under a name from the archive.

A path such as ``base.zip!folder/names.tsv`` names a member. An archive inside an archive is not opened.
"""

from __future__ import annotations

import os
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from ingest.io.source import ByteSource, check_expansion, stored_chunks
from pearl_qdrant.errors import FormatError, InputError

SEPARATOR = "!"
"""Between archive and member in the path of a source."""

MAX_MEMBERS = 10_000
"""Members of an archive; a release has some hundred."""

_MAX_SHOWN = 12
_DAMAGE = (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError, EOFError, UnicodeError)
_NO_DATA = ("readme", "license", "licence", "copying", "notice", "changelog", "manifest")


def is_zip(path: str) -> bool:
    """Whether a file begins like a zip archive of files, and not like a workbook; False where it cannot be opened."""
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):
            return False
        with Path(path).open("rb") as file:
            return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06") and not is_workbook(path)
    except (OSError, ValueError):
        return False


def is_workbook(path: str) -> bool:
    """Whether a zip archive is a workbook (xlsx, xlsm, xlsb, ods)."""
    try:
        names = _archive(path).namelist()
    except (OSError, FormatError, *_DAMAGE):
        return False
    return "[Content_Types].xml" in names or "mimetype" in names


def list_members(path: str) -> list[str]:
    """Names of the files in an archive that may hold data, in its order; read-me and hidden files are left out.

    Raises:
        FormatError: If it is damaged, or has too many members.
    """
    with _as_format_error(path):
        infos = _archive(path).infolist()
    if len(infos) > MAX_MEMBERS:
        raise FormatError(path, None, f"has {len(infos):,} members (limit: {MAX_MEMBERS:,}). Unpack it, name the files")
    return [info.filename for info in infos if not info.is_dir() and info.filename and _may_hold_data(info.filename)]


def choose_member(path: str) -> str:
    """The only file of an archive that may hold data.

    Raises:
        FormatError: If there is none, or several; names them.
    """
    members = list_members(path)
    if len(members) == 1:
        return members[0]
    if not members:
        raise FormatError(path, None, "holds no file")
    more = f", and {len(members) - _MAX_SHOWN} more" if len(members) > _MAX_SHOWN else ""
    message = f"holds {len(members)} files. Name one of them as {path}{SEPARATOR}MEMBER: "
    raise FormatError(path, None, f"{message}{', '.join(members[:_MAX_SHOWN])}{more}")


class Member(ByteSource):
    """A member of an archive; one that is compressed itself (.gz) is decompressed too."""

    def __init__(self, path: str, member: str) -> None:
        """Find a member.

        Raises:
            FormatError: If the archive is damaged or has no such member.
        """
        self.path = f"{path}{SEPARATOR}{member}"
        self._archive, self._member = path, member
        with _as_format_error(path):
            archive = _archive(path)
        try:
            info = archive.getinfo(member)
        except KeyError:
            raise FormatError(path, None, f"has no member {member!r}. It has: see unzip -l") from None
        self.size = info.compress_size
        check_expansion(self.path, self.size, info.file_size, "zip")

    def chunks(self) -> Iterator[bytes]:
        with _as_format_error(self.path), _archive(self._archive).open(self._member) as raw:
            yield from stored_chunks(self.path, raw)

    def close(self) -> None:
        """Nothing is held between two passes."""


def _may_hold_data(name: str) -> bool:
    *folders, last = name.replace("\\", "/").casefold().split("/")
    return not last.startswith((".", *_NO_DATA)) and "__macosx" not in folders


def _archive(path: str) -> zipfile.ZipFile:
    """An archive, opened once: thousands of members would each read the list of all of them."""
    found = Path(path).stat()
    return _opened(path, (found.st_ino, found.st_size, found.st_mtime_ns), os.getpid())


@lru_cache(maxsize=2)
def _opened(path: str, _state: tuple[int, int, int], _process: int) -> zipfile.ZipFile:
    return zipfile.ZipFile(path)


@contextmanager
def _as_format_error(path: str) -> Iterator[None]:
    """What zipfile raises for a damaged archive becomes a `FormatError`; a disk error an `InputError`."""
    try:
        yield
    except (*_DAMAGE, zlib.error, ValueError) as error:
        if isinstance(error, RuntimeError) and "password" in str(error):
            message = "is encrypted. Unpack it with its password, and name the files"
        else:
            message = f"the zip archive is damaged or truncated ({str(error) or type(error).__name__}). Fetch it again"
        raise FormatError(path, None, message) from error
    except OSError as error:
        raise InputError(path, None, f"reading failed: {error.strerror or error}") from error
