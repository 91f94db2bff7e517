"""Zip archives: one file in them is read, several are listed, and hostile ones do no harm.
Text in other encodings than UTF-8 is found, converted and said.
A member of an archive may have a name that no file could have.
"""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
from pathlib import Path

import pytest
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.base.format import ReadOptions
from ingest.formats import open_reader
from ingest.io import streams
from ingest.io.report import ReadReport
from ingest.io.streams import Member, list_members, open_source
from pearl_qdrant import scan_base
from pearl_qdrant.errors import FormatError, InputError, OptionError

TSV = b"id\tname\nQ1\tParis\n"


def pack(path: Path, files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    """An archive."""
    with zipfile.ZipFile(path, "w", method) as opened:
        for name, content in files.items():
            opened.writestr(name, content)
    return path


def names(path: Path | str) -> list[str]:
    """The names in a base."""
    with open_reader([path]) as reader:
        return [entity.canonical_name for entity in reader.read(ReadReport())]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_the_one_file_of_an_archive_is_read(tmp_path: Path, method: int) -> None:
    """Read-me and hidden files beside it do not count; it may be compressed itself."""
    files = {"README.txt": b"x", "__MACOSX/._b.tsv": b"x", "a/": b"", "a/b.tsv.gz": gzip.compress(TSV)}

    assert names(pack(tmp_path / "base.zip", files, method)) == ["Paris"]


def test_several_files_are_listed_and_one_can_be_named(tmp_path: Path) -> None:
    """The error has the names, and a path with ! names one of them."""
    path = pack(tmp_path / "base.zip", {"a.tsv": TSV, "folder/b.tsv": TSV.replace(b"Paris", b"Rome")})

    with pytest.raises(FormatError, match=r"holds 2 files. Name one of them as .*base.zip!MEMBER: a.tsv, folder/b.tsv"):
        names(path)
    assert names(f"{path}!folder/b.tsv") == ["Rome"]
    with pytest.raises(FormatError, match=r"has no member .c\.tsv"):
        names(f"{path}!c.tsv")


def test_a_name_that_leads_out_of_the_archive_does_no_harm(tmp_path: Path) -> None:
    """Members are read in place: no name in an archive is ever a path."""
    path = pack(tmp_path / "base.zip", {"../../etc/base.tsv": TSV})

    assert names(path) == ["Paris"]
    assert [one.name for one in tmp_path.iterdir()] == ["base.zip"]


def test_an_encrypted_member_says_what_to_do(tmp_path: Path) -> None:
    """A password is not asked for; the error says to unpack."""
    content = bytearray(pack(tmp_path / "base.zip", {"b.tsv": TSV}).read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(signature) + offset] |= 1
    (tmp_path / "base.zip").write_bytes(content)

    with pytest.raises(FormatError, match=r"is encrypted\. Unpack it with its password"):
        names(tmp_path / "base.zip")


def test_damage_is_named(tmp_path: Path) -> None:
    """A flipped bit and a cut end are told from a sound archive."""
    content = pack(tmp_path / "base.zip", {"b.tsv": TSV * 1000}, zipfile.ZIP_STORED).read_bytes()
    (tmp_path / "flipped.zip").write_bytes(content.replace(b"Paris", b"Pariz", 1))
    (tmp_path / "cut.zip").write_bytes(content[: len(content) // 2])

    for name in ("flipped.zip", "cut.zip"):
        with pytest.raises(FormatError, match="damaged or truncated"):
            names(tmp_path / name)


@pytest.mark.parametrize("wrap", ["plain", "gzip inside", "false size"])
def test_a_bomb_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrap: str) -> None:
    """What expands more than any base of names is refused, whatever its directory claims."""
    monkeypatch.setattr(streams, "RATIO_GRACE", 1 << 16)
    bomb = b"Q1\tParis\n" + bytes(1 << 21)
    path = pack(tmp_path / "base.zip", {"b.tsv": gzip.compress(bomb) if wrap == "gzip inside" else bomb})
    if wrap == "false size":
        content = path.read_bytes()
        path.write_bytes(content.replace(struct.pack("<I", len(bomb)), struct.pack("<I", 1000)))

    with pytest.raises(FormatError, match=r"expands|damaged"):
        sum(map(len, open_source(path).chunks()))


def test_an_archive_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    """What is held of an archive belongs to the file as it was."""
    path = pack(tmp_path / "base.zip", {"a.tsv": TSV})
    assert list_members(str(path)) == ["a.tsv"]
    pack(tmp_path / "new.zip", {"b.tsv": TSV * 2}).replace(path)
    assert b"".join(open_source(path).chunks()) == TSV * 2


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_any_damage_is_a_typed_error_or_harmless(tmp_path: Path, data: st.DataObject) -> None:
    """Bytes changed or cut anywhere end in an error about the input, or in what was there."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", data.draw(st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))) as opened:
        opened.writestr("b.tsv", TSV * 3)
    content = bytearray(buffer.getvalue())
    for at, byte in data.draw(st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=4)):
        content[at] = byte
    path = tmp_path / "base.zip"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])

    try:
        for member in list_members(str(path)):
            b"".join(Member(str(path), member).chunks())
    except InputError:
        return


NAMES = {
    "cp1252": ["Café du Jouet", "Müller & Söhne", "Señor Niño", "“Zürich”"],
    "cp1250": ["Łódź", "Częstochowa", "Żywiec", "Wrocław"],
    "cp1251": ["Москва", "Новосибирск", "Санкт-Петербург", "Екатеринбург"],
    "cp932": ["東京都", "大阪府", "京都府", "カタカナ"],
    "gb18030": ["北京市", "上海市", "广州市", "深圳市"],
    "utf-16": ["Café", "東京都", "Москва", "x"],
    "utf-16-le": ["Cafe", "Zurich", "Bern", "Oslo"],
    "utf-32": ["Café", "東京都", "Москва", "x"],
    "utf-32-be": ["Cafe", "Zurich", "Bern", "Oslo"],
    "utf-8-sig": ["Café", "東京都", "Москва", "x"],
}


def read(path: Path, report: ReadReport | None = None, encoding: str | None = None) -> list[str]:
    """The names of a table."""
    with open_reader([path], options=ReadOptions(encoding=encoding)) as reader:
        return [entity.canonical_name for entity in reader.read(report or ReadReport())]


@pytest.mark.parametrize("encoding", NAMES)
@pytest.mark.parametrize("separator", ["\t", ";"])
def test_an_encoding_is_found_and_said(tmp_path: Path, encoding: str, separator: str) -> None:
    """The names come out right, and a note names the encoding."""
    path, report = tmp_path / "base", ReadReport()
    rows = "".join(f"{i}{separator}{name}\r\n" for i, name in enumerate(NAMES[encoding]))
    path.write_bytes(f"id{separator}name\r\n{rows}".encode(encoding))

    assert read(path, report) == NAMES[encoding]
    said = [note for note in report.notes if "its text is in" in note]
    assert len(said) == (not encoding.startswith("utf-8"))
    assert report.skipped == {}


def test_letters_that_come_late_show_the_encoding_too(tmp_path: Path) -> None:
    """The first letters beyond ASCII may stand far behind the beginning; no row is lost."""
    path = tmp_path / "base.csv"
    path.write_bytes(("id,name\n" + "".join(f"{i},plain {i}\n" for i in range(30_000)) + "x,Zürich\n").encode("cp1252"))

    assert read(path)[-1] == "Zürich"


def test_a_damaged_line_does_not_change_the_encoding(tmp_path: Path) -> None:
    """In a file with letters in UTF-8, a line of other bytes is bad and counted."""
    path, report = tmp_path / "base.csv", ReadReport()
    path.write_bytes("id,name\n1,Zürich\n2,Genève\n".encode() + b"3,K\xf6ln\n4,Bern\n")

    assert read(path, report) == ["Zürich", "Genève", "Bern"]
    assert report.skipped == {"invalid_utf8": 1}


def test_an_encoding_can_be_given(tmp_path: Path) -> None:
    """It is used as it is; one that makes no text of the file, and one that does not exist, are refused."""
    path = tmp_path / "base.csv"
    path.write_bytes("id,name\n1,Łódź\n".encode("cp852"))

    assert read(path, encoding="cp852") == ["Łódź"]
    with pytest.raises(OptionError, match="'klingon' is not an encoding"):
        read(path, encoding="klingon")
    path.write_bytes("id,name\n1,Łódź\n".encode())
    with pytest.raises(FormatError, match="is not text in utf-16"):
        read(path, encoding="utf-16")


def test_members_with_names_longer_than_any_path_are_read(tmp_path: Path) -> None:
    """They are never opened as paths."""
    path = tmp_path / "base.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(3):
            label = "<http://www.w3.org/2000/01/rdf-schema#label>"
            line = f'<http://example.org/{number}> {label} "name {number}"@en .\n'
            archive.writestr(f"{number}{'long-' * 1000}/x.nt", line)

    assert scan_base(str(path)).entities == 3
