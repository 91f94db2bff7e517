"""Shard snapshots of a Qdrant server, made of an embedded shard and opened as one.

A server packs a shard into a tar:

    shard_config.json, replica_state.json, newest_clocks.json, oldest_clocks.json
    segments_manifest.json       {"ID": "active"} for each segment
    segments/ID.tar              one tar a segment, whose entries lie under snapshot/files/
    wal/closed-N                 an empty log, whose next entry has the number N

To make one of an embedded shard, the snapshot of an empty collection on that server is the frame: all its members stay
as they are, except for the segments, which are replaced, and the name of the log. Where only some of the shard's
segments are packed, the frame's empty ones stay beside them. Like the engine here, a server takes an operation with a
smaller number than a segment has seen for one that is done already, so the log must go on after the segments.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import tarfile
import tempfile
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from qdrant_edge import EdgeShard

from pearl_qdrant.errors import StoreError
from pearl_qdrant.store.edge import shard as edge_shard

SEGMENTS_FOLDER = "segments"
VERSION_FILE = "version.info"

_INNER = "snapshot/files"
_FRAME = ("shard_config.json", "replica_state.json", "newest_clocks.json", "oldest_clocks.json")
_MANIFEST = "segments_manifest.json"
_LOG = re.compile(r"wal/closed-(\d+)")
_SEGMENT = re.compile(r"segments/([^/]+)\.tar")
_MAX_FRAME_BYTES = 1 << 20  # of a member other than a segment: a few hundred bytes, and an empty log of 32
_COPY_BYTES = 1 << 20


class FrameError(StoreError):
    """A server's snapshot does not have the expected form; the message says why, as a part of a sentence."""


def segment_versions(shard: Path) -> set[str]:
    """Return the versions of the segments in a shard's folder."""
    return {file.read_text("utf-8").strip() for file in (shard / SEGMENTS_FOLDER).glob(f"*/{VERSION_FILE}")}


def engine_version() -> str:
    """Return the version of the segments that the engine here writes."""
    with tempfile.TemporaryDirectory(prefix="pearl-qdrant-") as folder:
        edge_shard.create_shard(Path(folder) / "shard", 1, has_lexical=False)
        (version,) = segment_versions(Path(folder) / "shard")
    return version


def snapshot_versions(snapshot: Path) -> set[str]:
    """Return the versions of the segments in a server's snapshot.

    Raises:
        FrameError: If it is no shard snapshot.
    """
    versions = set()
    with _open(snapshot) as tar:
        for member in tar:
            if _SEGMENT.fullmatch(_name(member)):
                inner = tar.extractfile(member)
                assert inner is not None
                with tarfile.open(fileobj=inner, mode="r:") as segment:
                    versions |= {
                        cast("IO[bytes]", segment.extractfile(one)).read(100).decode().strip()
                        for one in segment
                        if _name(one) == f"{_INNER}/{VERSION_FILE}"
                    }
    if not versions:
        raise FrameError("the server's snapshot has no segments of the expected form")
    return versions


def write_snapshot(frame: Path, shard: Path, target: Path, *, only: Collection[str] | None = None) -> None:
    """Write a server's snapshot of an embedded shard.

    Args:
        frame: The snapshot of an empty collection on the server.
        shard: Folder of the shard; all of it is on the disk, and nobody changes it meanwhile.
        target: The file to write.
        only: Names of the segments that it gets, beside the empty ones of the frame, of which one can grow. None: all
            of the shard's, and none of the frame's.

    Raises:
        FrameError: If the frame has another form than expected.
        OSError: If a file cannot be read or written.
    """
    members = _frame_members(frame)
    segments = sorted(path for path in (shard / SEGMENTS_FOLDER).iterdir() if (path / VERSION_FILE).is_file())
    segments = [path for path in segments if only is None or path.name in only]
    (log,) = (name for name in members if _LOG.fullmatch(name))
    number = max(_last_operation(segments) + 1, int(log.rpartition("-")[2]))
    with target.open("xb") as file:
        for name in _FRAME:
            _add(file, name, members[name])
        names = [path.name for path in segments]
        kept = {} if only is None else _frame_segments(frame, names)
        active = [*names, *kept.values()]
        _add(file, _MANIFEST, json.dumps(dict.fromkeys(active, "active")).encode())
        _add(file, f"wal/closed-{number}", members[log])
        for segment in segments:
            entries = list(_entries(segment))
            info = _info(f"{SEGMENTS_FOLDER}/{segment.name}.tar", _tar_bytes(entries))
            file.write(info.tobuf(tarfile.GNU_FORMAT))
            for entry, path in entries:
                file.write(entry.tobuf(tarfile.GNU_FORMAT))
                if path is not None:
                    with path.open("rb") as read:
                        _copy(read, file, entry.size)
            file.write(_end(_sum(entries)))
            file.write(_padding(info.size))
        _add_segments(file, frame, kept)
        file.write(_end(file.tell()))


def _frame_segments(frame: Path, taken: Collection[str]) -> dict[str, str]:
    """The names of a frame's segments, and those that they get: another one where a segment has it already."""
    with _open(frame) as tar:
        found = [match[1] for member in tar if (match := _SEGMENT.fullmatch(_name(member)))]
    return {name: str(uuid.uuid4()) if name in taken else name for name in found}


def _add_segments(file: IO[bytes], frame: Path, segments: Mapping[str, str]) -> None:
    """Add segments of a frame as they are, under other names."""
    with _open(frame) as tar:
        for member in tar:
            match = _SEGMENT.fullmatch(_name(member))
            if match and match[1] in segments:
                info = _info(f"{SEGMENTS_FOLDER}/{segments[match[1]]}.tar", member.size)
                file.write(info.tobuf(tarfile.GNU_FORMAT))
                _copy(cast("IO[bytes]", tar.extractfile(member)), file, member.size)


def unpack_snapshot(snapshot: Path, shard: Path) -> None:
    """Unpack a server's snapshot to a folder that the engine can load as a shard.

    Raises:
        StoreError: If the engine cannot read it.
    """
    with edge_shard.edge_errors(shard.parent.name, "unpacking a snapshot"):
        EdgeShard.unpack_snapshot(str(snapshot), str(shard))
    for name in (*_FRAME, _MANIFEST):
        (shard / name).unlink(missing_ok=True)
    for path in shard.iterdir():
        if path.name not in (SEGMENTS_FOLDER, "wal", "edge_config.json"):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _frame_members(frame: Path) -> dict[str, bytes]:
    """The members of a frame without its segments, by name."""
    members: dict[str, bytes] = {}
    with _open(frame) as tar:
        for member in tar:
            name = _name(member)
            if member.isdir() or _SEGMENT.fullmatch(name) or name == _MANIFEST:
                continue
            if member.size > _MAX_FRAME_BYTES or not member.isreg() or not (name in _FRAME or _LOG.fullmatch(name)):
                raise FrameError(f"the server's snapshot has a member that is not known: {name}")
            members[name] = cast("IO[bytes]", tar.extractfile(member)).read()
    if missing := [name for name in _FRAME if name not in members]:
        raise FrameError(f"the server's snapshot has no {missing[0]}")
    if sum(bool(_LOG.fullmatch(name)) for name in members) != 1:
        raise FrameError("the server's snapshot has no empty log")
    return members


@contextmanager
def _open(snapshot: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(snapshot, mode="r:") as tar:
            yield tar
    except (tarfile.TarError, UnicodeDecodeError) as error:
        raise FrameError(f"the server's snapshot is no tar of the expected form ({error})") from error


def _name(member: tarfile.TarInfo) -> str:
    return member.name.removeprefix("./")


def _last_operation(segments: list[Path]) -> int:
    """The number of the last operation that one of the segments has."""
    return max((json.loads((path / "segment.json").read_bytes()).get("version") or 0 for path in segments), default=0)


def _entries(segment: Path) -> Iterator[tuple[tarfile.TarInfo, Path | None]]:
    """The entries of a segment's tar, with the file that each regular one has; links are followed."""
    yield _info(_INNER, 0, is_folder=True), None
    for path in sorted(segment.rglob("*")):
        name = f"{_INNER}/{path.relative_to(segment).as_posix()}"
        if path.is_dir():
            yield _info(name, 0, is_folder=True), None
        elif path.is_file():
            yield _info(name, path.stat().st_size), path


def _info(name: str, size: int, *, is_folder: bool = False) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = size
    info.type = tarfile.DIRTYPE if is_folder else tarfile.REGTYPE
    info.mode = 0o755 if is_folder else 0o644
    return info


def _sum(entries: list[tuple[tarfile.TarInfo, Path | None]]) -> int:
    """Bytes of some entries with their headers."""
    return sum(len(info.tobuf(tarfile.GNU_FORMAT)) + info.size + len(_padding(info.size)) for info, _ in entries)


def _tar_bytes(entries: list[tuple[tarfile.TarInfo, Path | None]]) -> int:
    """Bytes of a tar of some entries."""
    n_bytes = _sum(entries)
    return n_bytes + len(_end(n_bytes))


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)


def _end(n_bytes: int) -> bytes:
    """What ends a tar of so many bytes: two empty blocks, and zeros up to a whole record."""
    return bytes(2 * tarfile.BLOCKSIZE + -(n_bytes + 2 * tarfile.BLOCKSIZE) % tarfile.RECORDSIZE)


def _add(file: IO[bytes], name: str, content: bytes) -> None:
    file.write(_info(name, len(content)).tobuf(tarfile.GNU_FORMAT))
    _copy(io.BytesIO(content), file, len(content))


def _copy(read: IO[Any], written: IO[bytes], size: int) -> None:
    """Copy a file of so many bytes, and fill its last block."""
    left = size
    while left and (block := read.read(min(left, _COPY_BYTES))):
        written.write(block)
        left -= len(block)
    if left:
        raise OSError(f"a file became shorter while it was packed, by {left:,} bytes")
    written.write(_padding(size))
