"""Open inputs: plain or compressed (gzip, bzip2, xz, zstd), from a file, a pipe or standard input.

The first bytes of a file show its compression, not its name. A `Source` can be read any number of times: standard
input and pipes are copied once to an unnamed temporary file, which the operating system removes even if the process is
killed, after a check of their first bytes.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import re
import stat
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from ingest.io.archive import SEPARATOR, Member, choose_member, is_zip, list_members
from ingest.io.source import CHUNK, ByteSource, stored_chunks
from ingest.io.text_check import HEAD_BYTES, check_is_text
from pearl_qdrant.errors import FormatError, InputError

if TYPE_CHECKING:
    from typing_extensions import Self

STDIN = "-"
"""The path that means standard input."""

PATIENCE_S = 3.0
"""After this time a warning says that a pipe has no writer."""

_MAX_ENTRIES = 1_000  # of a level of a folder; a release has some 50

_log = logging.getLogger(__name__)


class Source(ByteSource):
    """A file, a pipe or standard input.

    Attributes:
        path: As given; ``-`` is standard input.
        size: In bytes, as stored (compressed).
    """

    def __init__(self, path: str | os.PathLike[str], stdin: BinaryIO | None = None) -> None:
        """Check the path, and copy it to a temporary file if it can be read only once.

        Raises:
            FormatError: If it does not exist, is a directory or device, or may not be read; if standard input or a
                pipe does not begin like text.
            InputError: If it could not be copied.
        """
        self.path = os.fspath(path)
        self._spool: BinaryIO | None = None
        if self.path == STDIN:
            self._spool = copy_to_temporary(self.path, self._checked_chunks(stdin or sys.stdin.buffer))
            self.size = os.fstat(self._spool.fileno()).st_size
            return
        with self._open_file() as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                self._spool = copy_to_temporary(self.path, self._checked_chunks(file))
            self.size = os.fstat((self._spool or file).fileno()).st_size

    def close(self) -> None:
        """Remove the temporary copy, if there is one."""
        if self._spool is not None:
            self._spool.close()

    def chunks(self) -> Iterator[bytes]:
        """See `ByteSource.chunks`."""
        with self._open_file() if self._spool is None else _SpoolView(self._spool) as raw:
            yield from stored_chunks(self.path, raw)

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

    def _checked_chunks(self, stream: BinaryIO) -> Iterator[bytes]:
        """The chunks of a stream, if it begins like text or compressed text."""
        head = b""
        while len(head) < HEAD_BYTES and (chunk := stream.read(CHUNK)):
            head += chunk
        text = b""
        with suppress(FormatError):  # damaged or too short: reported when it is read
            text = next(stored_chunks(self.path, io.BytesIO(head)), b"")
        if text:
            check_is_text(self.path, text[:HEAD_BYTES], may_be_wide=True)
        yield head
        while chunk := stream.read(CHUNK):
            yield chunk


class _SpoolView:
    """Reads the temporary file at its own position; the file stays open until the source is closed."""

    def __init__(self, spool: BinaryIO) -> None:
        self._descriptor, self._position = spool.fileno(), 0

    def read(self, n_bytes: int) -> bytes:
        data = os.pread(self._descriptor, n_bytes, self._position)
        self._position += len(data)
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Nothing to close."""


def copy_to_temporary(path: str, chunks: Iterable[bytes]) -> BinaryIO:
    """An unnamed temporary file with the chunks, for the caller to close.

    Raises:
        InputError: If it cannot be written.
    """
    try:
        with ExitStack() as stack:
            spool = cast("BinaryIO", stack.enter_context(tempfile.TemporaryFile(prefix="pearl-qdrant-")))
            for chunk in chunks:
                spool.write(chunk)
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


def open_source(path: str | os.PathLike[str], stdin: BinaryIO | None = None) -> ByteSource:
    """Open one input: a file, a pipe, ``-``, a zip archive of one file, or a member of one (``base.zip!names.tsv``).

    Raises:
        FormatError: As `Source`; for an archive of several files, with their names.
    """
    path = os.fspath(path)
    if not os.path.exists(path):  # noqa: PTH110 - a path with NUL is no error here
        for found in re.finditer(SEPARATOR, path):
            if is_zip(path[: found.start()]):
                return Member(path[: found.start()], path[found.end() :])
    return Member(path, choose_member(path)) if is_zip(path) else Source(path, stdin)


def open_sources(paths: Sequence[str | os.PathLike[str]], stdin: BinaryIO | None = None) -> tuple[ByteSource, ...]:
    """Open several inputs; if one cannot be opened, the others are closed.

    Raises:
        FormatError: As `open_source`, and if standard input is named twice.
        ValueError: If there is no path.
    """
    if not paths:
        raise ValueError("nothing to read: no path was given")
    if sum(os.fspath(path) == STDIN for path in paths) > 1:
        raise FormatError(STDIN, None, "standard input can be read only once, but - was given twice")
    with ExitStack() as stack:
        sources: list[ByteSource] = []
        for path in paths:
            sources.append(open_source(path, stdin))
            stack.callback(sources[-1].close)
        stack.pop_all()
        return tuple(sources)


def is_folder(path: str) -> bool:
    """Whether a path is a folder; not one that is too long to be a path, as that of a member of an archive may be."""
    try:
        return Path(path).is_dir()
    except OSError:
        return False


def list_inputs(path: str, *, n_levels: int = 4) -> list[str]:
    """The files that a path means, sorted: those in a folder, the members of an archive that may hold data, or itself.

    Args:
        path: As given.
        n_levels: Levels of a folder that are searched; at most 1,000 entries of each.

    Raises:
        FormatError: If an archive is damaged, or has too many members.
    """
    if path != STDIN and is_folder(path):
        levels = (islice(Path(path).glob("/".join("*" * (n + 1))), _MAX_ENTRIES) for n in range(n_levels))
        files = (child for level in levels for child in level if not child.name.startswith(".") and child.is_file())
        return sorted(map(str, files))
    return [f"{path}{SEPARATOR}{member}" for member in sorted(list_members(path))] if is_zip(path) else [path]
