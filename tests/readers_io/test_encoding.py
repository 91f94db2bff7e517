"""Text in other encodings than UTF-8 is found, converted and said."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.formats import ReadOptions, open_reader
from ingest.io.encoding import Utf8Source
from ingest.io.report import ReadReport
from ingest.io.streams import Source
from pearl_qdrant.errors import FormatError, OptionError

NAMES = {
    "cp1252": ["Café du Jouet", "Müller & Söhne", "Señor Niño", "“Zürich”"],
    "cp1250": ["Łódź", "Częstochowa", "Żywiec", "Wrocław"],
    "cp1251": ["Москва", "Новосибирск", "Санкт-Петербург", "Екатеринбург"],
    "cp932": ["東京都", "大阪府", "京都府", "カタカナ"],
    "gb18030": ["北京市", "上海市", "广州市", "深圳市"],
    "utf-16": ["Café", "東京都", "Москва", "x"],
    "utf-16-le": ["Cafe", "Zurich", "Bern", "Oslo"],
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


def test_a_converted_source_reads_the_same_twice(tmp_path: Path) -> None:
    """A base is read in several passes."""
    path = tmp_path / "base"
    path.write_bytes("Zürich\n".encode("cp1252") * 100_000)
    source = Utf8Source(Source(path))

    assert b"".join(source.chunks()) == b"".join(source.chunks()) == "Zürich\n".encode() * 100_000
