"""Zip archives from strangers: members as sources, zips within zips, and everything that can be wrong with one."""

from __future__ import annotations

import gzip
import io
import os
import random
import threading
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

import pytest
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.io import archive as archive_module
from ingest.io import decompress, zip_directory
from ingest.io.archive import Archive, is_zip
from ingest.io.lines import read_lines
from ingest.io.streams import Source
from pearl_qdrant.errors import FormatError, InputError

TEXT = "".join(f"C9{i:06}\tname {i} é\n" for i in range(20_000)).encode()
STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED


def pack(members: Mapping[str, bytes], method: int = DEFLATED) -> bytes:
    """A zip archive of these members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return buffer.getvalue()


def make(path: Path, members: Mapping[str, bytes], method: int = DEFLATED) -> Path:
    """A zip archive on disk."""
    path.write_bytes(pack(members, method))
    return path


def read(archive: Archive, member: str) -> bytes:
    """A member, whole."""
    return b"".join(archive.source(member).chunks())


@pytest.mark.parametrize("method", [STORED, DEFLATED])
def test_members_are_listed_and_read(tmp_path: Path, method: int) -> None:
    """Files in an archive read like files on disk; folders are not listed."""
    path = make(tmp_path / "b.zip", {"META/": b"", "META/A.RRF": TEXT, "META/sub/B.RRF": b"b"}, method)

    with Archive(path) as archive:
        assert archive.path == str(path)
        assert archive.members() == ("META/A.RRF", "META/sub/B.RRF")
        assert read(archive, "META/A.RRF") == TEXT
        assert archive.source("META/A.RRF").head(7) == TEXT[:7]
        assert archive.source("META/A.RRF").path == f"{path}!META/A.RRF"
        assert archive.source("META/A.RRF").size == len(TEXT)
        assert next(read_lines(archive.source("META/A.RRF"))) == (1, "C9000000\tname 0 é")


def test_a_compressed_member_comes_decompressed(tmp_path: Path) -> None:
    """A .gz in a zip is read as if it lay on disk."""
    with Archive(make(tmp_path / "b.zip", {"a.gz": gzip.compress(TEXT)}, STORED)) as archive:
        assert read(archive, "a.gz") == TEXT


@pytest.mark.parametrize("outer", [STORED, DEFLATED])
@pytest.mark.parametrize("inner", [STORED, DEFLATED])
def test_a_zip_within_a_zip_is_read(tmp_path: Path, outer: int, inner: int) -> None:
    """The .nlm files of UMLS are zips in a zip; their members are named by the whole way, and outlive the outer one."""
    path = make(
        tmp_path / "b.zip", {"x": b"-" * 999, "1-meta.nlm": pack({"m/A.gz": gzip.compress(TEXT)}, inner)}, outer
    )

    with Archive(path) as archive:
        nested = archive.archive("1-meta.nlm")
    with nested:
        assert nested.path == f"{path}!1-meta.nlm"
        assert nested.source("m/A.gz").path == f"{path}!1-meta.nlm!m/A.gz"
        assert read(nested, "m/A.gz") == TEXT


def test_a_zip_with_something_before_it_is_read(tmp_path: Path) -> None:
    """A self-extracting archive has a program in front; zips in it are found at their places all the same."""
    path = tmp_path / "b.exe"
    path.write_bytes(b"MZ" * 500 + pack({"i.nlm": pack({"a": TEXT}), "b": b"b"}, STORED))

    with Archive(path) as archive, archive.archive("i.nlm") as nested:
        assert read(archive, "b") == b"b"
        assert read(nested, "a") == TEXT


def test_several_threads_read_at_once(tmp_path: Path) -> None:
    """Members of one archive can be read side by side."""
    contents = {f"m{i}": random.Random(i).randbytes(900_000) for i in range(4)}
    found: dict[str, bytes] = {}
    with Archive(make(tmp_path / "b.zip", contents)) as archive:
        threads = [
            threading.Thread(target=lambda name=name: found.update({name: read(archive, name)})) for name in contents
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert found == contents


@pytest.mark.parametrize(
    "name", ["../up", "a/../../up", "/etc/passwd", "\\up", "C:\\up", "c:up", "..\\up", "a\\..\\..\\up", "//host/up"]
)
def test_a_name_that_leaves_the_archive_is_refused(tmp_path: Path, name: str) -> None:
    """A member with a path outside of its archive is refused."""
    path = tmp_path / "b.zip"
    with zipfile.ZipFile(path, "w") as file:
        info = zipfile.ZipInfo("x")
        info.filename = name
        file.writestr(info, b"x")

    with pytest.raises(FormatError, match=r"climbs out|absolute"):
        Archive(path)


def test_harmless_dots_and_backslashes_are_normalised(tmp_path: Path) -> None:
    """Archives made on Windows, or with ./ in front, have the names that one expects."""
    path = tmp_path / "b.zip"
    with zipfile.ZipFile(path, "w") as file:
        for name in ("./a", "d\\b", "d/x/../c", "e//f"):
            info = zipfile.ZipInfo("x")
            info.filename = name
            file.writestr(info, name.encode())

    with Archive(path) as archive:
        assert archive.members() == ("a", "d/b", "d/c", "e/f")
        assert read(archive, "d/c") == b"d/x/../c"


def test_a_member_that_stands_twice_is_refused(tmp_path: Path) -> None:
    """An archive with two members of the same name is refused."""
    path = make(tmp_path / "b.zip", {"a/b": b"1", "a//b": b"2"})

    with pytest.raises(FormatError, match="'a/b' twice"):
        Archive(path)


def test_an_encrypted_member_says_what_to_do(tmp_path: Path) -> None:
    """An archive with a password is named as such."""
    content = bytearray(pack({"a": TEXT}))
    content[6] |= 1
    content[content.rfind(b"PK\x01\x02") + 8] |= 1
    path = tmp_path / "b.zip"
    path.write_bytes(content)

    with Archive(path) as archive, pytest.raises(FormatError, match=r"b\.zip!a: is encrypted\. Unpack"):
        archive.source("a")


@pytest.mark.parametrize("method, name", [(9, "deflate64"), (12, "bzip2"), (14, "lzma"), (77, "number 77")])
def test_an_unknown_method_says_what_to_do(tmp_path: Path, method: int, name: str) -> None:
    """Methods that are not read are named, with the way out."""
    content = bytearray(pack({"a": TEXT}))
    content[8] = method
    content[content.rfind(b"PK\x01\x02") + 10] = method
    path = tmp_path / "b.zip"
    path.write_bytes(content)

    with Archive(path) as archive, pytest.raises(FormatError, match=f"method {name}; .*Unpack"):
        archive.source("a")


@pytest.mark.parametrize("method", [STORED, DEFLATED])
def test_a_flipped_bit_is_noticed(tmp_path: Path, method: int) -> None:
    """Damage shows by the checksum, at the latest at the member's end."""
    content = bytearray(pack({"a": TEXT}, method))
    content[len(content) // 2] ^= 4
    path = tmp_path / "b.zip"
    path.write_bytes(content)

    with Archive(path) as archive, pytest.raises(FormatError, match=r"b\.zip!a: the zip archive is damaged"):
        read(archive, "a")


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99, 0.9999])
def test_a_truncated_archive_is_noticed(tmp_path: Path, share: float) -> None:
    """A truncated download is refused immediately."""
    content = pack({"a": TEXT, "b": b"b"})
    path = tmp_path / "b.zip"
    path.write_bytes(content[: int(len(content) * share)])

    with pytest.raises(FormatError, match=r"truncated|not a zip archive|damaged"):
        Archive(path)


def test_a_size_that_lies_is_noticed(tmp_path: Path) -> None:
    """A directory that promises more or less than there is does not lose the rest in silence."""
    for delta in (-1000, 1000):
        content = bytearray(pack({"a": TEXT}))
        at = content.rfind(b"PK\x01\x02") + 24
        content[at : at + 4] = (len(TEXT) + delta).to_bytes(4, "little")
        path = tmp_path / "b.zip"
        path.write_bytes(content)
        with Archive(path) as archive, pytest.raises(FormatError):
            read(archive, "a")


@pytest.fixture
def low_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bombs go off at 64 KiB, so that a small one will do."""
    monkeypatch.setattr(decompress, "RATIO_GRACE", 1 << 16)


@pytest.mark.usefixtures("low_grace")
@pytest.mark.parametrize(
    "wrap",
    [
        lambda zeros: {"a": zeros},
        lambda zeros: {"a": gzip.compress(gzip.compress(zeros))},
    ],
)
def test_a_bomb_is_stopped(tmp_path: Path, wrap: Callable[[bytes], dict[str, bytes]]) -> None:
    """A member that expands beyond all measure is stopped on the way."""
    with Archive(make(tmp_path / "b.zip", wrap(bytes(1 << 25)))) as archive:
        n_read = 0
        try:
            for chunk in archive.source("a").chunks():
                n_read += len(chunk)
        except FormatError as error:
            assert "expands" in str(error)  # noqa: PT017
        assert n_read < 1 << 24


@pytest.mark.usefixtures("low_grace")
def test_a_bomb_of_several_layers_is_measured_against_the_file(tmp_path: Path) -> None:
    """Zip in zip, each harmless by itself: what counts are the bytes of the file on disk."""
    inner = pack({"a": b"".join(bytes([i]) * 300 for i in range(250)) * 400})
    path = make(tmp_path / "b.zip", {"i.nlm": inner})
    assert len(inner) * 400 > 30_000_000, "the inner layer alone would pass"
    assert path.stat().st_size * 500 < 30_000_000, "the file as a whole is a bomb"

    with Archive(path) as archive, archive.archive("i.nlm") as nested, pytest.raises(FormatError, match="expands"):
        read(nested, "a")


@pytest.mark.usefixtures("low_grace")
def test_a_nested_archive_that_is_a_bomb_is_stopped(tmp_path: Path) -> None:
    """A zip within the zip that would fill the disk is not copied to it."""
    path = make(tmp_path / "b.zip", {"i.nlm": bytes(1 << 25)})

    with Archive(path) as archive, pytest.raises(FormatError, match="expands"):
        archive.archive("i.nlm")


def test_archives_nest_to_a_depth(tmp_path: Path) -> None:
    """A zip in a zip in a zip ... has an end."""
    content = pack({"a": b"a"}, STORED)
    for _ in range(archive_module.MAX_DEPTH):
        content = pack({"i": content}, STORED)
    path = tmp_path / "b.zip"
    path.write_bytes(content)

    archive = Archive(path)
    for _ in range(archive_module.MAX_DEPTH - 1):
        archive = archive.archive("i")
    with pytest.raises(FormatError, match="is inside 4 nested archives"):
        archive.archive("i")


def test_a_huge_directory_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive of millions of empty members does not fill the memory."""
    monkeypatch.setattr(zip_directory, "MAX_DIRECTORY", 1000)
    path = make(tmp_path / "b.zip", {f"m{i}": b"" for i in range(100)})

    with pytest.raises(FormatError, match="its directory has"):
        Archive(path)


def test_what_is_no_archive_says_so(tmp_path: Path) -> None:
    """Folders, pipes, loops, text and nothing at all."""
    (tmp_path / "text").write_bytes(TEXT)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe")

    for name in ("text", "loop", "pipe", "missing", ".", "nul\0"):
        assert not is_zip(tmp_path / name)
        with pytest.raises(FormatError):
            Archive(tmp_path / name)
    assert is_zip(make(tmp_path / "b.zip", {}))
    assert Archive(tmp_path / "b.zip").members() == ()


def test_a_member_that_is_not_there_is_a_wrong_argument(tmp_path: Path) -> None:
    """Asking for a member that was not listed is the caller's mistake."""
    with Archive(make(tmp_path / "b.zip", {"a": b"a"})) as archive, pytest.raises(ValueError, match="no member 'b'"):
        archive.source("b")


def test_a_full_disk_is_no_damaged_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a zip inside a zip cannot be copied, the message names the folder."""
    path = make(tmp_path / "b.zip", {"i.nlm": pack({"a": TEXT})})

    def open_full(**_: str) -> BinaryIO:
        return Path("/dev/full").open("r+b", buffering=0)

    monkeypatch.setattr("tempfile.TemporaryFile", open_full)

    with Archive(path) as archive, pytest.raises(InputError, match="Point TMPDIR"):
        archive.archive("i.nlm")


def test_a_member_without_a_name_is_refused(tmp_path: Path) -> None:
    """A member whose name is a single NUL is refused."""
    content = pack({"q": b"xyz"}, zipfile.ZIP_STORED)
    # In the member's own header and in the directory; a time of day may hold the same byte.
    for before, after in ((b"qxyz", b"\0xyz"), (b"qPK\x05\x06", b"\0PK\x05\x06")):
        assert content.count(before) == 1
        content = content.replace(before, after)
    (tmp_path / "b.zip").write_bytes(content)

    with pytest.raises(FormatError, match="without a name"):
        Archive(tmp_path / "b.zip")


def count_descriptors() -> int:
    """Open files of this process; 0 if the system does not report them."""
    return len(list(Path("/proc/self/fd").glob("*")))


def test_opening_leaves_no_descriptor_behind(tmp_path: Path) -> None:
    """Archives that were closed, or could not be opened, hold nothing."""
    good = make(tmp_path / "b.zip", {"i.nlm": pack({"a": TEXT})})
    (tmp_path / "bad.zip").write_bytes(b"PK\x03\x04")
    before = count_descriptors()

    for _ in range(5):
        with Archive(good) as archive, archive.archive("i.nlm") as nested:
            read(nested, "a")
        with pytest.raises(FormatError):
            Archive(tmp_path / "bad.zip")

    assert count_descriptors() == before


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_any_damage_is_a_typed_error_or_harmless(tmp_path: Path, data: st.DataObject) -> None:
    """If any bytes of an archive are changed, reading gives its content or one of our errors."""
    content = bytearray(pack({"a": b"abc" * 50, "i.nlm": pack({"b": b"b" * 40})}, data.draw(st.sampled_from([0, 8]))))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "b.zip"
    path.write_bytes(content)

    try:
        with Archive(path) as archive:
            for member in archive.members():
                if member.endswith(".nlm"):
                    with archive.archive(member) as nested:
                        for inner in nested.members():
                            assert read(nested, inner) == b"b" * 40
                elif member == "a":
                    assert read(archive, member) == b"abc" * 50
    except InputError:
        pass


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(content=st.binary(max_size=200))
def test_any_bytes_are_an_archive_or_a_typed_error(tmp_path: Path, content: bytes) -> None:
    """Files of random bytes are refused with a clear message."""
    path = tmp_path / "b.zip"
    path.write_bytes(b"PK\x03\x04" + content)

    with pytest.raises(FormatError):
        Archive(path)
    assert Source(path).head(4) == b"PK\x03\x04"
