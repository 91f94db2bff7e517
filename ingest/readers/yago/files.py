"""Find the files of a YAGO download by their names: in a folder, in a zip, or given one by one.

YAGO 4 (``yago-wd-labels.nt.gz``, ...) has labels and types in separate files; YAGO 4.5 (``yago-facts.ttl``, ...) has
them together. A file with an unknown name, and ``yago-tiny.ttl``, may contain everything.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePosixPath

from ingest.io.archive import Archive, is_zip
from ingest.io.streams import STDIN, ByteSource, Source
from pearl_qdrant.errors import FormatError, InputError

RESOURCES = "http://yago-knowledge.org/resource/"

_HEAD_BYTES = 1 << 16
_SUFFIX = re.compile(r"\.(?:(nt|ntx|ttl|tsv)(?:\.(?:gz|bz2|xz|zst))?)$")
_NAME = re.compile(r"yago-?\d*[-._]", re.IGNORECASE)
# YAGO 4 has "wd" in all names; 4.5 has these.
_RELEASE = re.compile(r"yago-(?:(wd)-|facts|taxonomy|labels|beyond|tiny|schema|meta)", re.IGNORECASE)


class Role(str, Enum):
    """What a file is read for."""

    WHOLE = "names, types and classes"
    FACTS = "names and types"
    LABELS = "names"
    FULL_TYPES = "types"
    SIMPLE_TYPES = "coarser types"
    SAME_AS = "Wikidata ids"
    CLASSES = "classes"
    NOTHING = "nothing"


_BEYOND = "beyond-wikipedia"
# By the end of the name without its suffix; the first match counts.
_ROLES = (
    ("beyond-wikipedia-labels", Role.LABELS),
    ("beyond-wikipedia", Role.FACTS),
    ("labels", Role.LABELS),
    ("simple-types", Role.SIMPLE_TYPES),
    ("types", Role.FULL_TYPES),
    ("sameas", Role.SAME_AS),
    ("taxonomy", Role.CLASSES),
    ("class", Role.CLASSES),
    ("annotated-facts", Role.NOTHING),
    ("wd-facts", Role.NOTHING),
    ("facts", Role.FACTS),
    ("tiny", Role.WHOLE),
    ("meta", Role.NOTHING),
    ("shapes", Role.NOTHING),
    ("statistics", Role.NOTHING),
    ("log", Role.NOTHING),
)


@dataclass(frozen=True, slots=True)
class YagoFile:
    """A file of the base.

    Attributes:
        source: The file.
        role: What it is read for.
        is_beyond: It is about entities without a Wikipedia page.
    """

    source: ByteSource
    role: Role
    is_beyond: bool


def find_role(name: str) -> Role | None:
    """What a file of this name is read for; None if it is not an RDF file."""
    suffix = _SUFFIX.search(name.lower())
    if suffix is None:
        return None
    stem = PurePosixPath(name.lower()).name[: suffix.start() - len(name)]
    if stem.endswith("schema"):
        # In Turtle the schema is nested shapes, and the taxonomy has its classes too; in N-Triples it is rows.
        return Role.CLASSES if suffix[1].startswith("nt") else Role.NOTHING
    return next((role for end, role in _ROLES if stem.endswith(end)), Role.WHOLE)


def is_yago(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a YAGO download: a folder or zip with such file names, or a file that mentions its resources.

    Only the first 64 KiB of a file are read. Never raises; standard input and pipes are not read.
    """
    path = Path(path)
    try:
        if path.is_dir():
            return any(_NAME.match(child.name) and (find_role(child.name) or is_zip(child)) for child in path.iterdir())
        if os.fspath(path) == STDIN or not stat.S_ISREG(path.stat().st_mode):
            return False
        if is_zip(path):
            with Archive(path) as archive:
                return any(_NAME.match(PurePosixPath(name).name) and find_role(name) for name in archive.members())
        head = Source(path).head(_HEAD_BYTES)
    except (OSError, ValueError, InputError):
        return False
    return RESOURCES.encode() in head


def open_files(paths: Sequence[str | os.PathLike[str]], *, include_beyond: bool, held: ExitStack) -> list[YagoFile]:
    """The files to read, in the order of the paths; those of a folder by name.

    Args:
        paths: Folders, zips and files.
        include_beyond: Include files about entities without a Wikipedia page.
        held: Closes the files that are opened here.

    Raises:
        FormatError: If a path cannot be opened, no file has names, or there are files of YAGO 4 and YAGO 4.5.
        ValueError: If there is no path.
    """
    if not paths:
        raise ValueError("nothing to read: no path was given")
    found = [file for path in paths for file in _open(os.fspath(path), held)]
    _check_is_one_release(os.fspath(paths[0]), found)
    files = [file for file in found if file.role is not Role.NOTHING and (include_beyond or not file.is_beyond)]
    if not any(file.role in (Role.WHOLE, Role.FACTS, Role.LABELS) for file in files):
        seen = ", ".join(f"{file.source.path} ({file.role.value})" for file in found) or "no .nt or .ttl file"
        message = "no file of YAGO with names: yago-facts.ttl (4.5) or yago-wd-labels.nt.gz (4) is needed. There is: "
        raise FormatError(os.fspath(paths[0]), None, message + seen)
    return files


def _check_is_one_release(path: str, files: Iterable[YagoFile]) -> None:
    """Refuse files of YAGO 4 beside files of 4.5: names of one would be combined with types of the other."""
    of: dict[str, str] = {}
    for file in files:
        release = _RELEASE.search(re.split(r"[!/\\]", file.source.path)[-1])
        if release:
            of.setdefault("4" if release[1] else "4.5", file.source.path)
    if len(of) > 1:
        message = f"holds two releases of YAGO: 4 ({of['4']}) and 4.5 ({of['4.5']}). Name the files of one of them"
        raise FormatError(path, None, message)


def _open(path: str, held: ExitStack, *, is_named: bool = True) -> Iterable[YagoFile]:
    """The files under one path; a file that was given itself may have any suffix."""
    if path != STDIN and Path(path).is_dir():
        for child in _list(path):
            yield from _open(child, held, is_named=False)
    elif path != STDIN and is_zip(path):
        archive = held.enter_context(Archive(path))
        for member in sorted(archive.members()):
            role = find_role(member)
            if role is not None and not PurePosixPath(member).name.startswith("."):
                yield YagoFile(archive.source(member), role, _BEYOND in member.lower())
    else:
        role = find_role(path)
        if is_named or role is not None:
            source = Source(path)
            held.callback(source.close)
            yield YagoFile(source, role or Role.WHOLE, _BEYOND in Path(path).name.lower())


def _list(folder: str) -> list[str]:
    """The RDF files and zips in a folder, by name; its folders are not searched."""
    try:
        children = sorted(Path(folder).iterdir())
    except OSError as error:
        raise FormatError(folder, None, f"cannot be listed: {error.strerror or error}") from error
    visible = (child for child in children if not child.name.startswith("."))
    return [os.fspath(child) for child in visible if (find_role(child.name) or is_zip(child)) and child.is_file()]
