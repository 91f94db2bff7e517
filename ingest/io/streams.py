"""Open inputs: plain, compressed or in a zip archive, from a file, a pipe or standard input.

Members of archives are read in place: ``base.zip!folder/names.tsv`` names one. The first bytes of a file show its
compression, not its name. A `Source` can be read any number of times: standard input and pipes are copied once to an
unnamed temporary file.

The decoders of the standard library decompress, within a budget (that of zstd is a package before Python 3.14); not
their file classes: those stop without an error at bytes after a stream that are not another stream.
"""

from __future__ import annotations

import bz2
import errno
import logging
import lzma
import os
import re
import shutil
import stat
import sys
import tempfile
import threading
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from pearl_qdrant import binary_tables, settings
from pearl_qdrant.errors import FormatError, InputError

CHUNK = 1 << 18  # bytes read or decompressed at a time
MAX_RATIO, RATIO_GRACE = settings.MAX_RATIO, settings.RATIO_GRACE
_MAX_DECODER_MEMORY = 1 << 28  # of an xz stream; xz -9 needs 65 MiB
# Small, as a piece may hold many streams.
_PIECE = 1 << 11


Read = Callable[[int], bytes]  # gives at most so many bytes, none at the end


class ByteSource(ABC):
    """Input that can be read from its start any number of times, also by several threads at once. `path` is its name in
    errors: ``-`` is standard input, ``base.zip!names.tsv`` a member of an archive.
    """

    path: str

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


@contextmanager
def _as_input_error(path: str) -> Iterator[None]:
    """What the system refuses becomes an `InputError`."""
    try:
        yield
    except OSError as error:
        raise InputError(path, None, f"reading failed: {error.strerror or error}") from error


def stored_chunks(path: str, read: Read) -> Iterator[bytes]:
    """The content of stored bytes, decompressed if they are compressed. Raises as `ByteSource.chunks`."""
    with _as_input_error(path):
        head = read(_PIECE)
        compression = next((name for name, magic in _COMPRESSIONS.items() if magic.match(head)), None)
        if compression is not None:
            yield from _decompress(path, read, head, compression)
            return
        while head:
            yield head
            head = read(CHUNK)


_COMPRESSIONS = {
    "gzip": re.compile(rb"\x1f\x8b\x08"),
    "bzip2": re.compile(rb"BZh.(?:1AY&SY|\x17\x72\x45\x38\x50\x90)", re.DOTALL),  # "BZh9" alone could begin a text
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),  # also a skippable frame, as of pzstd
}
"""The compressions that are read, by the first bytes of a file."""


def _decompress(path: str, read: Read, data: bytes, compression: str) -> Iterator[bytes]:
    """The content of all streams of a compressed file, one after the other; zero bytes between them are padding. Raises
    FormatError if the data is damaged, ends early, or is a bomb; the sound data before that is yielded first.
    """
    zstd = _zstd() if compression == "zstd" else None
    damage = (zlib.error, OSError, lzma.LZMAError, EOFError, MemoryError, *([zstd.ZstdError] if zstd else ()))
    decoder: Any = None
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
            output = decoder.decompress(data, CHUNK)
        except damage as error:
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
    return _zstd().ZstdDecompressor()  # windows of up to 128 MiB, as zstd itself without --long


def _zstd() -> Any:
    """The module of the standard library, and before Python 3.14 the package that has the same."""
    return import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


def check_expansion(path: str, n_stored: int, n_written: int, kind: str) -> None:
    """As `binary_tables.check_expansion`, for all that is read here."""
    binary_tables.check_expansion(path, n_stored, n_written, kind, grace=RATIO_GRACE, ratio=MAX_RATIO)


SEPARATOR = "!"  # between archive and member in the path of a source
_MAX_SHOWN = 12
# What zipfile raises for an archive that is damaged, encrypted, or compressed in a way it does not know.
_DAMAGE = (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError, EOFError, UnicodeError)
_NO_DATA = ("readme", "license", "licence", "copying", "notice", "changelog", "manifest")


_MAGICS: dict[bytes, binary_tables.Kind] = {b"PAR1": "Parquet", b"ARROW1": "Arrow", b"\xd0\xcf\x11\xe0": "workbook"}
_MAX_METADATA = 1 << 26


def find_container(path: str) -> binary_tables.Kind | Literal["zip"] | None:
    """What a file is by its first bytes: Parquet, Arrow, Arrow stream, workbook, zip for an archive of other files, or
    None. Never raises.
    """
    try:
        if path == STDIN or not Path(path).is_file():
            return None
        with Path(path).open("rb") as file:
            head = file.read(8)
    except (OSError, ValueError):
        return None
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "workbook" if _is_workbook(path) else "zip"
    size = int.from_bytes(head[4:], "little")
    is_stream = head.startswith(b"\xff\xff\xff\xff") and 0 < size < _MAX_METADATA and not size % 8
    known = next((name for magic, name in _MAGICS.items() if head.startswith(magic)), None)
    return "Arrow stream" if is_stream else known


def _is_workbook(path: str) -> bool:
    """Whether a zip archive is a workbook (xlsx, xlsm, xlsb, ods)."""
    try:
        archive = _archive(path)
        names, is_ods = archive.namelist(), False
        if "mimetype" in names:
            with archive.open("mimetype") as file:
                is_ods = b"spreadsheet" in file.read(_MIMETYPE_BYTES)
    except (OSError, FormatError, zlib.error, *_DAMAGE):
        return False
    return is_ods or any(name.startswith("xl/") for name in names)


_MIMETYPE_BYTES = 1 << 8
_OFFICE = "[Content_Types].xml"  # of Word, PowerPoint and others


def list_members(path: str) -> list[str]:
    """Files in an archive that may hold data, read-me and hidden ones left out. Raises FormatError if it is damaged."""
    with _as_format_error(path):
        infos = _archive(path).infolist()
    return [info.filename for info in infos if not info.is_dir() and info.filename and _may_hold_data(info.filename)]


def choose_member(path: str) -> str:
    """The only file of an archive that may hold data. Raises FormatError if there is none, or several; names them."""
    members = list_members(path)
    if len(members) == 1:
        return members[0]
    if not members:
        raise FormatError(path, None, "holds no file")
    if _OFFICE in members or "content.xml" in members:
        raise FormatError(path, None, "is an office document, and no workbook. Save its table as one, or as CSV")
    more = f", and {len(members) - _MAX_SHOWN} more" if len(members) > _MAX_SHOWN else ""
    message = f"holds {len(members)} files. Name one of them as {path}{SEPARATOR}MEMBER: "
    raise FormatError(path, None, f"{message}{', '.join(members[:_MAX_SHOWN])}{more}")


class Member(ByteSource):
    """A member of an archive; one that is compressed itself (.gz) is decompressed too."""

    def __init__(self, path: str, member: str) -> None:
        """Find a member. Raises FormatError if the archive is damaged or has no such member."""
        self.path = f"{path}{SEPARATOR}{member}"
        self._archive, self._member = path, member
        with _as_format_error(path):
            archive = _archive(path)
        try:
            info = archive.getinfo(member)
        except KeyError:
            raise FormatError(path, None, f"has no member {member!r}. It has: see unzip -l") from None
        check_expansion(self.path, info.compress_size, info.file_size, "zip")

    def chunks(self) -> Iterator[bytes]:
        with _as_format_error(self.path), _archive(self._archive).open(self._member) as raw:
            yield from stored_chunks(self.path, raw.read)


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
        with _as_input_error(path):
            yield
    except (*_DAMAGE, zlib.error, ValueError) as error:
        if isinstance(error, RuntimeError) and "password" in str(error):
            message = "is encrypted. Unpack it with its password, and name the files"
        else:
            message = f"the zip archive is damaged or truncated ({str(error) or type(error).__name__}). Fetch it again"
        raise FormatError(path, None, message) from error


STDIN = "-"  # the path that means standard input
PATIENCE_S = 3.0  # after this time a warning says that a pipe has no writer
_MAX_ENTRIES = 1_000  # of a level of a folder; a release has some 50

_log = logging.getLogger(__name__)


class Source(ByteSource):
    """A file, a pipe or standard input (``-``)."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Check the path, and copy it to a temporary file if it can be read only once. Raises FormatError if it does
        not exist, is a directory or device, or may not be read; InputError if it could not be copied.
        """
        self.path = os.fspath(path)
        self._spool: BinaryIO | None = None
        if self.path == STDIN:
            self._spool = copy_to_temporary(self.path, sys.stdin.buffer)
            return
        with self._open_file() as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                self._spool = copy_to_temporary(self.path, file)

    def close(self) -> None:
        """Remove the temporary copy, if there is one."""
        if self._spool is not None:
            self._spool.close()

    def chunks(self) -> Iterator[bytes]:
        """See `ByteSource.chunks`."""
        if self._spool is not None:
            yield from stored_chunks(self.path, _read_at(self._spool.fileno()))
            return
        with self._open_file() as file:
            yield from stored_chunks(self.path, file.read)

    def _open_file(self) -> BinaryIO:
        """Open the path, after a check that it is a file or a pipe."""
        try:
            mode = Path(self.path).stat().st_mode
            if stat.S_ISDIR(mode):
                raise FormatError(self.path, None, "is a directory. Name the files in it")
            if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                raise FormatError(self.path, None, "is a device. Standard input is read with: -")
            with warn_while_waiting(self.path):
                return Path(self.path).open("rb", buffering=0)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FormatError(self.path, None, f"does not exist (looked in {Path.cwd()})") from error
        except PermissionError as error:
            raise FormatError(
                self.path, None, "may not be read by this user. Try: chmod u+r, or another user"
            ) from error
        except (OSError, ValueError) as error:
            raise FormatError(self.path, None, f"cannot be opened: {error}") from error


def _read_at(descriptor: int) -> Read:
    """Reads an open file from its start, at a position of its own."""
    position = 0

    def read(n_bytes: int) -> bytes:
        nonlocal position
        data = os.pread(descriptor, n_bytes, position)
        position += len(data)
        return data

    return read


def copy_to_temporary(path: str, stream: BinaryIO) -> BinaryIO:
    """An unnamed temporary file with what a stream gives; the caller closes it. Raises InputError on a failed copy."""
    try:
        with ExitStack() as stack:
            spool = cast("BinaryIO", stack.enter_context(tempfile.TemporaryFile(prefix="pearl-qdrant-")))
            shutil.copyfileobj(stream, spool, CHUNK)
            spool.flush()
            stack.pop_all()
            return spool
    except OSError as error:
        advice = " Point TMPDIR to a larger disk." if error.errno == errno.ENOSPC else ""
        where = tempfile.gettempdir()
        message = f"could not be copied to a temporary file in {where}: {error.strerror or error}.{advice}"
        raise InputError(path, None, message) from error


@contextmanager
def warn_while_waiting(path: str) -> Iterator[None]:
    """While a path is opened: log a warning if it is a pipe that has had no writer for `PATIENCE_S`."""
    message = "%s: nothing writes to this pipe yet. Waiting for a writer; press Ctrl-C to give up"
    timer = threading.Timer(PATIENCE_S, _log.warning, (message, path))
    timer.daemon = True
    if Path(path).is_fifo():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def open_source(path: str | os.PathLike[str]) -> ByteSource:
    """Open one input: a file, a pipe, ``-``, a zip archive of one file, or a member of one (``base.zip!names.tsv``).
    Raises FormatError as `Source`; for an archive of several files, with their names.
    """
    path = os.fspath(path)
    if not os.path.exists(path):  # noqa: PTH110 - a path with NUL is no error here
        for found in re.finditer(SEPARATOR, path):
            if find_container(path[: found.start()]) == "zip":
                return Member(path[: found.start()], path[found.end() :])
    return Member(path, choose_member(path)) if find_container(path) == "zip" else Source(path)


def open_sources(paths: Sequence[str | os.PathLike[str]]) -> tuple[ByteSource, ...]:
    """Open several inputs; if one cannot be opened, the others are closed. Raises FormatError as `open_source`, and if
    standard input is named twice; ValueError if there is no path.
    """
    if not paths:
        raise ValueError("nothing to read: no path was given")
    if sum(os.fspath(path) == STDIN for path in paths) > 1:
        raise FormatError(STDIN, None, "standard input can be read only once, but - was given twice")
    with ExitStack() as stack:
        sources: list[ByteSource] = []
        for path in paths:
            sources.append(open_source(path))
            stack.callback(sources[-1].close)
        stack.pop_all()
        return tuple(sources)


def is_folder(path: str) -> bool:
    """Whether a path is a folder; not one that is too long to be a path, as that of a member of an archive may be."""
    return os.path.isdir(path)  # noqa: PTH112 - it never raises


def list_inputs(path: str, *, n_levels: int = 4) -> list[str]:
    """The files that a path means, sorted: those in a folder (at most 1,000 entries of each of `n_levels`), the members
    of an archive that may hold data, or itself. Raises FormatError if an archive is damaged.
    """
    if path != STDIN and is_folder(path):
        levels = (islice(Path(path).glob("/".join("*" * (n + 1))), _MAX_ENTRIES) for n in range(n_levels))
        files = (child for level in levels for child in level if not child.name.startswith(".") and child.is_file())
        return sorted(map(str, files))
    if find_container(path) != "zip":
        return [path]
    return [f"{path}{SEPARATOR}{member}" for member in sorted(list_members(path))]
