"""Shard snapshots: what is written byte for byte, and what is refused."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
from qdrant_double_shards import EMPTY_LOG, FRAME, pack

from pearl_qdrant.store.edge.versions.snapshots import FrameError, snapshot_versions, write_snapshot

LONG = "a-folder-with-a-name-of-a-payload-index-that-is-quite-long/" * 2


def make_segments(folder: Path, *names: str, version: int = 7) -> Path:
    """Write folders that look like segments of the engine."""
    for name in names:
        segment = folder / "segments" / name
        (segment / LONG).mkdir(parents=True)
        (segment / "version.info").write_text("0.6.0")
        (segment / "segment.json").write_text(json.dumps({"version": version}))
        (segment / LONG / "page_0.dat").write_bytes(b"x" * 700)
        (segment / "empty.dat").write_bytes(b"")
    return folder


def frame_of(folder: Path, *, log: int = 3) -> Path:
    """Write the snapshot of an empty collection."""
    made = make_segments(folder / "server", "theirs", version=1)
    (folder / "frame").write_bytes(pack(made / "segments", log))
    return folder / "frame"


def tree(packed: bytes) -> dict[str, object]:
    """The members of a tar, with their content; those of segments are trees again."""
    found: dict[str, object] = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        for member in tar:
            content = tar.extractfile(member)
            read = None if content is None else content.read()
            found[member.name] = tree(read) if read is not None and member.name.endswith(".tar") else read
    return found


def test_the_golden_tree_of_a_snapshot(tmp_path: Path) -> None:
    """A snapshot is the server's frame with our segments; only the number of the log is another one."""
    ours = make_segments(tmp_path / "ours", "aa", "bb")
    write_snapshot(frame_of(tmp_path), ours, tmp_path / "made")
    files: dict[str, object] = {
        "snapshot/files": None,
        **{f"snapshot/files/{'/'.join(LONG.split('/')[:n])}": None for n in (1, 2)},
        f"snapshot/files/{LONG}page_0.dat": b"x" * 700,
        "snapshot/files/empty.dat": b"",
        "snapshot/files/segment.json": b'{"version": 7}',
        "snapshot/files/version.info": b"0.6.0",
    }

    assert tree((tmp_path / "made").read_bytes()) == {
        **FRAME,
        "segments_manifest.json": b'{"aa": "active", "bb": "active"}',
        "wal/closed-8": EMPTY_LOG,
        "segments/aa.tar": files,
        "segments/bb.tar": files,
    }
    assert (tmp_path / "made").stat().st_size % tarfile.RECORDSIZE == 0
    assert snapshot_versions(tmp_path / "made") == {"0.6.0"}


def test_some_segments_keep_those_of_the_frame(tmp_path: Path) -> None:
    """A part of a shard has the server's empty segments beside it, which can grow, under a name that is free."""
    ours = make_segments(tmp_path / "ours", "aa", "bb", "theirs")
    frame = frame_of(tmp_path)
    write_snapshot(frame, ours, tmp_path / "one", only=["bb"])
    write_snapshot(frame, ours, tmp_path / "other", only=["theirs"])
    one, other = (tree((tmp_path / name).read_bytes()) for name in ("one", "other"))
    active = json.loads(str(other["segments_manifest.json"], "ascii"))  # type: ignore[call-overload]

    assert one["segments_manifest.json"] == b'{"bb": "active", "theirs": "active"}'
    assert {name for name in one if name.startswith("segments/")} == {"segments/bb.tar", "segments/theirs.tar"}
    assert one["segments/theirs.tar"] == tree(frame.read_bytes())["segments/theirs.tar"]
    assert one["wal/closed-8"] == EMPTY_LOG
    assert len(active) == len({*active}) == 2
    assert {name for name in other if name.startswith("segments/")} == {f"segments/{name}.tar" for name in active}
    assert (tmp_path / "other").stat().st_size % tarfile.RECORDSIZE == 0


def test_the_log_never_goes_back(tmp_path: Path) -> None:
    """The log keeps the server's number where that is the higher one."""
    write_snapshot(frame_of(tmp_path, log=50), make_segments(tmp_path / "ours", "aa"), tmp_path / "made")

    assert "wal/closed-50" in tree((tmp_path / "made").read_bytes())


@pytest.mark.parametrize("member", ["shard_config.json", "wal/closed-3", "unknown.json", None])
def test_another_form_is_refused(tmp_path: Path, member: str | None) -> None:
    """A server whose snapshots have another form gets none of ours."""
    frame = frame_of(tmp_path)
    if member is None:
        frame.write_bytes(b"no tar" * 300)
    else:
        changed = io.BytesIO()
        with tarfile.open(frame) as tar, tarfile.open(fileobj=changed, mode="w") as new:
            for one in tar:
                if one.name != member:
                    new.addfile(one, tar.extractfile(one))
            if member == "unknown.json":
                new.addfile(tarfile.TarInfo(member), io.BytesIO())
        frame.write_bytes(changed.getvalue())

    with pytest.raises(FrameError):
        write_snapshot(frame, make_segments(tmp_path / "ours", "aa"), tmp_path / "made")
