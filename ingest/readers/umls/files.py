"""Find the files of a UMLS release: in a folder, in an archive, in archives inside it, or named one by one.

Files are searched by name (``MRCONSO.RRF``, ``MRSTY.RRF``, ...; upper or lower case; also with ``.gz`` and similar
endings), up to three folders deep, and also in zip archives there (``.zip``, ``.nlm``). A file that was split
(``MRCONSO.RRF.aa.gz``, ``.ab.gz``, ...) is joined again, wherever its parts are. A file that is given itself may have
any name: then its rows show what it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from pathlib import Path

from ingest.io.archive import Archive, is_zip
from ingest.io.streams import STDIN, ByteSource, Source
from pearl_qdrant.errors import FormatError, InputError

MAX_FOLDERS = 3
"""Levels below a folder that are searched: the folder of the release, its version, META."""

MAX_ARCHIVES = 100
"""Archives inside the given ones; a release has three."""

TABLES = ("MRCONSO", "MRSTY", "MRDEF", "MRRANK", "MRFILES", "SEMGROUPS", "SRDEF")

_NAME = re.compile(
    r"(?:(?P<table>MRCONSO|MRSTY|MRDEF|MRRANK|MRFILES)\.RRF|(?P<groups>SemGroups)\.txt|(?P<srdef>SRDEF))"
    r"(?:\.(?P<part>(?!gz|xz)[a-z]{2}))?(?:\.(?:gz|bz2|xz|zst))?",
    re.IGNORECASE,
)
_ARCHIVE = re.compile(r".*\.(?:zip|nlm)", re.IGNORECASE)
_HEAD = 1 << 16
# Entries of each folder: a release has some 50 files, and the search must not list a whole disk.
_MAX_ENTRIES = 1000
_CUI = re.compile(rb"C[0-9N][0-9]{5,}")
_TUI = re.compile(rb"T[0-9]{3}")
_TABLE_OF_WIDTH = {18: "MRCONSO", 6: "MRSTY", 8: "MRDEF"}


class JoinedSource(ByteSource):
    """A file that was split into parts: their bytes one after the other, so a row may continue in the next part."""

    def __init__(self, path: str, parts: Sequence[ByteSource]) -> None:
        self.path = path
        self.size = sum(part.size for part in parts)
        self._parts = tuple(parts)

    def chunks(self) -> Iterator[bytes]:
        return chain.from_iterable(part.chunks() for part in self._parts)

    def close(self) -> None:
        for part in self._parts:
            part.close()


@dataclass(frozen=True, slots=True)
class _Found:
    """A file, or a part of one. `archive` is None for a file on disk."""

    table: str
    part: str
    depth: int
    path: str
    archive: Archive | None

    def open(self) -> ByteSource:
        return Source(self.path) if self.archive is None else self.archive.source(self.path)

    def __str__(self) -> str:
        return self.path if self.archive is None else f"{self.archive.path}!{self.path}"


class UmlsFiles:
    """The files of a release, open for reading.

    Attributes:
        sources: The files that exist, by table, such as ``MRCONSO``, which always exists.
    """

    def __init__(self, paths: Sequence[str | os.PathLike[str]]) -> None:
        """Find the files and open them.

        Raises:
            FormatError: If a path cannot be read or has no file of UMLS, there is no MRCONSO.RRF, a part of a file
                is missing, or one file is found twice.
            ValueError: If there is no path.
        """
        if not paths:
            raise ValueError("nothing to read: no path was given")
        self.sources: dict[str, ByteSource] = {}
        self._stack = ExitStack()
        self._n_archives = 0
        try:
            parts: list[_Found] = []
            for path in [os.fspath(path) for path in paths]:
                found = list(self._find(path))
                if not found:
                    message = "has no MRCONSO.RRF, and no other file of UMLS. Name the META folder of the release"
                    raise FormatError(path, None, message)
                if len(found) == 1 and found[0].part and found[0].archive is None and not Path(path).is_dir():
                    parts.append(found[0])  # parts of a file may be named one by one
                else:
                    self._open(found)
            _check_parts_are_whole(parts)
            self._open(parts)
            if "MRCONSO" not in self.sources:
                raise FormatError(os.fspath(paths[0]), None, "there is no MRCONSO.RRF, which has the names. Add it")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all files, and remove temporary ones."""
        self._stack.close()

    def _find(self, path: str) -> Iterator[_Found]:
        if path == STDIN:
            raise FormatError(path, None, "UMLS is read from files: name the META folder, an archive, or MRCONSO.RRF")
        if Path(path).is_dir():
            yield from self._find_in_folder(Path(path))
        elif is_zip(path):
            yield from self._find_in_archive(self._stack.enter_context(Archive(path)), 0)
        else:
            source = Source(path)
            self._stack.callback(source.close)
            match = _NAME.fullmatch(Path(path).name)
            table = _table_of(match) if match else recognise_table(source)
            if table is None:
                message = "is not a file of UMLS: expected rows as in MRCONSO.RRF, 18 fields, each followed by a bar"
                raise FormatError(path, 1, message)
            yield _Found(table, (match["part"] or "").lower() if match else "", 0, path, None)

    def _find_in_folder(self, folder: Path) -> Iterator[_Found]:
        archives = []
        has_names = False
        for entry, depth in _walk(folder):
            if match := _NAME.fullmatch(entry.name):
                found = _Found(_table_of(match), (match["part"] or "").lower(), depth, str(entry), None)
                has_names = has_names or found.table == "MRCONSO"
                yield found
            elif _ARCHIVE.fullmatch(entry.name) and is_zip(entry):
                archives.append((entry, depth))
        # Archives are not opened if their unpacked files are beside them.
        if not has_names:
            for entry, depth in archives:
                yield from self._find_in_archive(self._stack.enter_context(Archive(entry)), depth + 1)

    def _find_in_archive(self, archive: Archive, depth: int) -> Iterator[_Found]:
        for member in archive.members():
            folder, _, name = member.rpartition("/")
            below = depth + folder.count("/") + bool(folder)
            if match := _NAME.fullmatch(name):
                yield _Found(_table_of(match), (match["part"] or "").lower(), below, member, archive)
            elif _ARCHIVE.fullmatch(name):
                self._n_archives += 1
                if self._n_archives > MAX_ARCHIVES:
                    message = f"contains over {MAX_ARCHIVES} archives. Unpack it, and name the META folder"
                    raise FormatError(archive.path, None, message)
                if archive.source(member).head(4) == b"PK\x03\x04":
                    yield from self._find_in_archive(self._stack.enter_context(archive.archive(member)), below + 1)

    def _open(self, found: list[_Found]) -> None:
        """Choose the least deep file found for each table, and open it."""
        for table in TABLES:
            candidates = [one for one in found if one.table == table]
            if not candidates:
                continue
            whole = [one for one in candidates if not one.part]
            nearest = min(one.depth for one in whole or candidates)
            # The parts of one file are in several archives of a release, at the same depth.
            chosen = [one for one in whole or candidates if one.depth == nearest]
            chosen.sort(key=lambda one: one.part)
            if table in self.sources:
                raise _twice(table, self.sources[table].path, str(chosen[0]))
            for one, other in pairwise(chosen):
                if one.part == other.part:
                    raise _twice(table, str(one), str(other))
            self.sources[table] = self._join(chosen)

    def _join(self, chosen: list[_Found]) -> ByteSource:
        first = chosen[0]
        sources = []
        for one in chosen:
            sources.append(one.open())
            self._stack.callback(sources[-1].close)
        if not first.part:
            return sources[0]
        for expected, one in zip(_part_names(), chosen, strict=False):
            if one.part != expected:
                raise FormatError(str(one), None, f"the part .{expected} before it is missing. Fetch all parts")
        at = str(first).lower().rindex(f".{first.part}")
        names = ",".join(one.part for one in chosen)
        path = f"{str(first)[:at]}.{{{names}}}{str(first)[at + 3 :]}"
        return JoinedSource(path, sources)


def _check_parts_are_whole(parts: list[_Found]) -> None:
    """Refuse parts of a file if another part beside them was not named: the base would be incomplete.

    Raises:
        FormatError: If there is such a part.
    """
    named = {Path(one.path).resolve() for one in parts}
    for one in parts:
        for beside in Path(one.path).resolve().parent.glob("*"):
            match = _NAME.fullmatch(beside.name)
            if match and match["part"] and _table_of(match) == one.table and beside not in named:
                raise FormatError(one.path, None, f"is one part of a file, and {beside.name} beside it was not named")


def _twice(table: str, one: str, other: str) -> FormatError:
    return FormatError(one, None, f"{table} was found twice: also {other}. Name the files of one release")


def is_umls(path: str | os.PathLike[str]) -> bool:
    """Whether a path is UMLS, by names in a folder or archive, or by the first rows of a file. Never raises."""
    path = os.fspath(path)
    try:
        if path == STDIN:
            return False
        if Path(path).is_dir():
            return any(
                _shows_umls(entry.name) or (_ARCHIVE.fullmatch(entry.name) and _archive_shows_umls(entry))
                for entry, _ in _walk(Path(path))
            )
        if is_zip(path):
            return _archive_shows_umls(Path(path))
        if not Path(path).is_file():
            return False
        if _NAME.fullmatch(Path(path).name):
            return True
        source = Source(path)
        try:
            return recognise_table(source) == "MRCONSO"
        finally:
            source.close()
    except (InputError, OSError, ValueError):
        return False


def _shows_umls(name: str) -> bool:
    match = _NAME.fullmatch(name)
    return (match is not None and _table_of(match) == "MRCONSO") or name.lower().endswith(".nlm")


def _archive_shows_umls(path: Path) -> bool:
    """By the names in it alone; archives inside it are not unpacked."""
    if not is_zip(path):
        return False
    with Archive(path) as archive:
        return any(_shows_umls(member.rpartition("/")[2]) for member in archive.members())


def _walk(folder: Path, depth: int = 0) -> Iterator[tuple[Path, int]]:
    """Entries of a folder and its folders with their depth, at most `MAX_FOLDERS`, which also ends loops of links."""
    try:
        entries = sorted(islice(folder.iterdir(), _MAX_ENTRIES))
    except OSError as error:
        raise FormatError(str(folder), None, f"cannot be listed: {error.strerror or error}") from error
    for entry in entries:
        if depth < MAX_FOLDERS and not _NAME.fullmatch(entry.name) and entry.is_dir():
            yield from _walk(entry, depth + 1)
        else:
            yield entry, depth


def recognise_table(source: ByteSource) -> str | None:
    """Which file of UMLS this is, by its first sound row: MRCONSO, MRSTY, MRDEF or None.

    Raises:
        InputError: If it cannot be read.
    """
    for line in source.head(_HEAD).removeprefix(b"\xef\xbb\xbf").split(b"\n")[:100]:
        cells = line.rstrip(b"\r").split(b"|")
        table = _TABLE_OF_WIDTH.get(len(cells) - 1)
        if table and not cells[-1] and _CUI.fullmatch(cells[0]):
            return table if table != "MRSTY" or _TUI.fullmatch(cells[1]) else None
    return None


def _table_of(match: re.Match[str]) -> str:
    name: str = match["table"] or match["groups"] or match["srdef"]
    return name.upper()


def _part_names() -> Iterator[str]:
    """Suffixes of the command `split`: aa, ab, ..., zz."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    return (first + second for first in letters for second in letters)
