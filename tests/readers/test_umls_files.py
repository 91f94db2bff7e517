"""The files of UMLS: every form of a release, damage, and what is not a release. Nothing in them is from UMLS."""

from __future__ import annotations

import gzip
import random
import sqlite3
from pathlib import Path

import pytest
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from umls_release import (
    CONSO,
    DRUG,
    FORMS,
    HEART,
    RELEASE,
    STY,
    atom,
    definition,
    pack,
    read,
    read_rows,
    sty,
    write,
)

from ingest.formats import ReadOptions, detect_format
from ingest.io import source
from ingest.io.limits import MAX_LINE_BYTES
from ingest.io.report import ReadReport
from ingest.readers.umls import UmlsReader
from pearl_qdrant.errors import FormatError, InputError, TooManyErrorsError
from pearl_qdrant.records import Entity


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_release_gives_the_same_entities(tmp_path: Path, form: str) -> None:
    """A folder, an archive and single files are one base."""
    paths = FORMS[form](tmp_path / "x")
    entities = {entity.entity_id: entity for entity in read(*paths)}

    assert list(entities) == [HEART, DRUG]
    assert entities[HEART] == Entity(
        HEART,
        "Heart scare",
        ("Heart fright",),
        ("T047", "Disease or Syndrome", "B2.2.1.2.1", "B2.2.1.2", "B2.2.1", "B2.2", "B2", "B", "DISO"),
        ("OTHER",),
        None,
        {"sab": "MADEUP,OTHER", "srl": "0"},
        2.0,  # as many sources
    )
    assert entities[DRUG].kb_types[:3] == ("T109", "Organic Chemical", "A1.4.1.2.1")
    assert entities[DRUG].kb_types.count("CHEM") == entities[DRUG].kb_types.count("A1") == 1
    assert entities[DRUG].types == ("OTHER", "PRODUCT")
    assert detect_format(paths[-1:]) == "umls"


def test_a_lone_mrconso_has_names_without_types(tmp_path: Path) -> None:
    """The names alone are a base; the report notes that there are no types."""
    report = ReadReport()
    (heart, _) = read(write(tmp_path, {"MRCONSO.RRF": CONSO.encode()}), report=report)

    assert heart.kb_types == heart.types == ()
    assert any("no MRSTY.RRF" in note for note in report.notes)


def test_a_full_disk_is_no_bad_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the temporary database does not fit, the message says what to do."""
    meta = write(tmp_path, RELEASE)

    class Full:
        """A database on a full disk."""

        def execute(self, statement: str, *_: object) -> object:
            if statement.startswith(("PRAGMA", "CREATE TABLE", "BEGIN")):
                return self
            raise sqlite3.OperationalError("database or disk is full")

        executemany = execute

        def close(self) -> None:
            """Nothing to close."""

    monkeypatch.setattr("ingest.base.merge.sqlite3.connect", lambda *_, **__: Full())
    with pytest.raises(InputError, match=r"disk is full.*Point TMPDIR"):
        read(meta)


def test_a_packed_release_says_how_it_is_unpacked(tmp_path: Path) -> None:
    """Older releases hold archives in archives, with MRCONSO in parts; the error has the command that joins them."""
    folder = write(tmp_path / "2099AA", {"2099aa-1-meta.nlm": pack({"x": b""})})
    parts = write(tmp_path / "META", {"MRCONSO.RRF.aa.gz": b"x", "MRCONSO.RRF.ab.gz": b"y"})

    for path in (folder, parts):
        assert detect_format([path]) == "umls"
        with pytest.raises(FormatError, match=r"packed release.*cat MRCONSO.RRF.a\?.gz"):
            read(path)


def test_rxnorm_is_read_as_it_ships(tmp_path: Path) -> None:
    """RXNCONSO.RRF and RXNSTY.RRF are a release too; the name of RXNORM itself is preferred."""
    rows = atom("900044", "TOYACILLIN", "A2", TS="", STT="", ISPREF="", SAB="MTHSPL", SRL="")
    rows += atom("900044", "toyacillin", "A1", TS="", STT="", ISPREF="", SAB="RXNORM", SRL="")
    rows += atom("900045", "Toycin", "A3", TS="", STT="", ISPREF="", SAB="RXNORM", SRL="", SUPPRESS="O")
    folder = write(tmp_path, {"RXNCONSO.RRF": rows.encode(), "RXNSTY.RRF": sty("900044", "T200", "A", "x").encode()})

    (entity,) = read(folder)

    assert detect_format([folder / "RXNCONSO.RRF"]) == "umls"
    assert (entity.entity_id, *entity.names()) == ("900044", "toyacillin", "TOYACILLIN")
    assert entity.kb_types[0] == "T200"


def test_a_bad_row_is_skipped_with_its_line(tmp_path: Path) -> None:
    """Rows of the wrong width, broken text and over-long lines are counted with their line; the rest is read."""
    report = ReadReport()
    rows = [
        atom(HEART, "a"),
        atom(HEART, "b|c"),
        atom(HEART, "d")[:30] + "\n",
        atom(HEART, "e", "A\0"),
        atom(DRUG, " "),
    ]
    rows += [atom(HEART, "f" * (MAX_LINE_BYTES + 10)), atom(HEART, "g\udcff"), "  \r\n", atom(HEART, "h")]
    (entity,) = read_rows(tmp_path, rows, report)

    assert list(entity.names()) == ["a", "h"]
    assert [(str(skip.reason), skip.line) for skip in report.examples] == [
        ("too_many_columns", 2), ("too_few_columns", 3), ("nul_character", 4), ("no_name", 5), ("line_too_long", 6),
    ]  # fmt: skip
    assert report.skipped["invalid_utf8"] == 1
    assert report.rows == 8
    with pytest.raises(TooManyErrorsError, match=r"MRCONSO\.RRF:2: "):
        read_rows(tmp_path, rows, ReadReport(max_errors=0))


def test_line_ends_and_marks_of_windows_do_not_matter(tmp_path: Path) -> None:
    """A file that went through Windows is the same base; a name is cut off nothing but spaces."""
    rows = [atom(HEART, "  a\x85b\u2028c "), atom(DRUG, '"quoted'), atom("C9000009", "NULL")]
    plain = read_rows(tmp_path, rows)
    windows = read_rows(tmp_path, ["\ufeff", *(row.replace("\n", "\r\n") for row in rows)])
    cut_off = read_rows(tmp_path, [*rows[:-1], rows[-1].rstrip("\n")])

    assert [entity.canonical_name for entity in plain] == ["a\x85b\u2028c", '"quoted', "NULL"]
    assert windows == cut_off == plain


@pytest.mark.parametrize(
    "files, message",
    [
        ({}, "has no MRCONSO.RRF, and no other file of UMLS"),
        ({"notes.txt": b"x"}, "has no MRCONSO.RRF"),
        ({"MRSTY.RRF": STY.encode()}, "there is no MRCONSO.RRF"),
        ({"MRCONSO.RRF": b""}, "is empty"),
        ({"MRCONSO.RRF": b"\n\n \n"}, "no sound row"),
        ({"MRCONSO.RRF": b"id\tname\nC1\tx\n"}, "no sound row .expected 18 fields"),
        ({"MRCONSO.RRF": STY.encode()}, "no sound row .expected 18 fields"),
        ({"MRCONSO.RRF": bytes(1000)}, "NUL bytes"),
        ({"MRCONSO.RRF": CONSO.encode(), "MRSTY.RRF": b""}, "MRSTY.RRF: is empty"),
        ({"MRCONSO.RRF": CONSO.encode(), "MRRANK.RRF": b"x|y|z|\n"}, "no sound row .expected 4 fields"),
        ({"MRCONSO.RRF": CONSO.encode(), "MRRANK.RRF": b"x|y|z|N|\n"}, "'x' is no rank"),
        ({"MRCONSO.RRF": CONSO.encode(), "MRCONSO.RRF.gz": CONSO.encode()}, "twice"),
    ],
)  # fmt: skip
def test_what_is_no_release_says_so(tmp_path: Path, files: dict[str, bytes], message: str) -> None:
    """Each wrong input has its own error message."""
    with pytest.raises(FormatError, match=message):
        read(write(tmp_path / "x", files))


def test_odd_paths_are_refused_in_words(tmp_path: Path) -> None:
    """Loops of links, missing files, standard input, and files of another kind."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "again").symlink_to(tmp_path / "dir")
    (tmp_path / "file").write_text("a\tb\n")
    (tmp_path / "META").mkdir()
    (tmp_path / "META" / "MRCONSO.RRF").symlink_to(tmp_path / "loop")

    for name in ("loop", "dir", "file", "missing", "META"):
        with pytest.raises(FormatError):
            read(tmp_path / name)
    with pytest.raises(FormatError):
        read(Path("-"))
    with pytest.raises(ValueError, match="no path"):
        UmlsReader([], ReadOptions())


def test_a_loop_of_folders_does_not_hide_the_base(tmp_path: Path) -> None:
    """A link to the parent folder is not followed forever; the nearest files are read."""
    meta = write(tmp_path / "META", RELEASE)
    (meta / "up").symlink_to(tmp_path)

    assert len(read(tmp_path)) == 2


def test_damage_within_a_large_file_tells_the_line(tmp_path: Path) -> None:
    """The error of a damaged file names the last sound line."""
    content = gzip.compress(
        "".join(atom(f"C9{i:06}", f"name {random.Random(i).random()}") for i in range(30_000)).encode()
    )

    with pytest.raises(FormatError, match=r"MRCONSO\.RRF\.gz:\d{4,5}: after this line, its gzip data ends early"):
        read(write(tmp_path, {"MRCONSO.RRF.gz": content[: len(content) // 2]}))


def test_a_bomb_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes that would become gigabytes are refused."""
    monkeypatch.setattr(source, "RATIO_GRACE", 1 << 20)
    bomb = gzip.compress(b"C9000001|" * (1 << 19))

    with pytest.raises(FormatError, match="expands"):
        read(write(tmp_path, {"MRCONSO.RRF": bomb}))


def test_a_file_is_recognised_by_its_rows(tmp_path: Path) -> None:
    """A file with 18 columns and a CUI may have any name; other tables are not UMLS."""
    files = {
        "yes.txt": CONSO.encode(), "yes.gz": gzip.compress(CONSO.encode()), "no.tsv": b"C9000001\tname\n",
        "no.psv": b"a|b|c|\n", "no.txt": atom("Q1", "x").encode(), "empty": b"", "no.zip": pack({"a.ttl": b""}),
        "bad.zip": b"PK\x03\x04", "bad.gz": gzip.compress(CONSO.encode())[:-20],
    }  # fmt: skip
    write(tmp_path / "x", files)

    found = {name for name in files if _kind(tmp_path / "x" / name) == "umls"}
    assert found == {"yes.txt", "yes.gz"}
    assert _kind(Path("-")) == "tsv"
    assert _kind(tmp_path / "x") == ""


def _kind(path: Path) -> str:
    """The format of a path; "" if it cannot be told."""
    try:
        return detect_format([path])
    except InputError:
        return ""


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), table=st.sampled_from(["MRCONSO.RRF", "MRSTY.RRF", "MRDEF.RRF", "MRRANK.RRF"]))
def test_any_bytes_are_a_typed_error_or_counted(tmp_path: Path, data: st.DataObject, table: str) -> None:
    """Noise in any of the files ends in an error of ours, or in rows that are counted; never in a traceback."""
    noise = st.one_of(
        st.binary(max_size=60),
        st.lists(st.sampled_from([b"|", b"\n", b"C9000001", b"\0", b"\xff", b"T047", b"x", b"|\r\n"])).map(b"".join),
    )
    original = RELEASE | {
        "MRDEF.RRF": definition(HEART, "A10", "MSH", "x").encode(),
        "MRRANK.RRF": b"0002|MADEUP|SY|N|\n",
    }
    content = original[table]
    at = data.draw(st.integers(0, len(content)))
    content = content[:at] + data.draw(noise) + content[data.draw(st.integers(at, len(content))) :]
    meta = write(tmp_path / "META", original | {table: content})
    report = ReadReport(max_errors=None)

    try:
        entities = read(meta, report=report, languages=("en", "fi", "es"))
    except InputError:
        return
    assert all(entity.entity_id and entity.canonical_name for entity in entities)
    if table == "MRCONSO.RRF":
        n_lines = sum(1 for line in content.split(b"\n") if line.strip())
        assert report.rows == n_lines
