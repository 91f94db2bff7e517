"""The files of UMLS: every form of a release, damage, and what is not a release. Nothing in them is from UMLS.
The UMLS reader: names, types and definitions. Nothing in these releases is from UMLS.
"""

from __future__ import annotations

import gzip
import random
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from umls_release import (
    CONSO,
    DRUG,
    FORMS,
    HEART,
    PLACE,
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

from ingest.base import reader
from ingest.base.format import ReadOptions
from ingest.base.type_map import TypeMap
from ingest.formats import detect_format
from ingest.io.limits import MAX_LINE_BYTES
from ingest.io.report import ReadReport
from ingest.readers.umls import COLUMNS, UmlsReader, semantic_types, shipped_types
from pearl_qdrant.errors import FormatError, InputError, SettingsError, TooManyErrorsError
from pearl_qdrant.phrase_types import ENTITY_TYPES
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
        {"Heart scare": "en", "Heart fright": "en"},
    )
    assert entities[DRUG].kb_types[:3] == ("T109", "Organic Chemical", "A1.4.1.2.1")
    assert entities[DRUG].kb_types.count("CHEM") == entities[DRUG].kb_types.count("A1") == 1
    assert entities[DRUG].types == ("OTHER", "PRODUCT")
    assert detect_format(paths[-1:]) == "umls"


def test_a_lone_mrconso_has_names_without_types(tmp_path: Path) -> None:
    """The names alone are a base; the report notes that there are no types, by which nothing can be chosen then."""
    report = ReadReport()
    (heart, _) = read(write(tmp_path, {"MRCONSO.RRF": CONSO.encode()}), report=report)

    assert heart.kb_types == heart.types == ()
    assert any("no MRSTY.RRF" in note for note in report.notes)
    with pytest.raises(FormatError, match=r"no MRSTY\.RRF"):
        read(tmp_path, semantic_types=("T047",))


def test_a_full_disk_is_no_bad_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the temporary database does not fit, the message says what to do."""
    meta = write(tmp_path, RELEASE | {"MRDEF.RRF": definition(HEART, "A10", "X", "long " * 5000).encode()})

    def connect(*given: Any, **named: Any) -> sqlite3.Connection:
        opened = sqlite3.connect(*given, **named)
        opened.execute("PRAGMA max_page_count = 2")
        return opened

    monkeypatch.setattr(reader, "sqlite3", SimpleNamespace(connect=connect, Error=sqlite3.Error))
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
    (write(tmp_path / "base" / "META", RELEASE) / "up").symlink_to(tmp_path / "base")

    for name in ("loop", "dir", "file", "missing", "META"):
        with pytest.raises(FormatError):
            read(tmp_path / name)
    with pytest.raises(FormatError):
        read(Path("-"))
    with pytest.raises(ValueError, match="no path"):
        UmlsReader([], ReadOptions())
    assert len(read(tmp_path / "base")) == 2, "a link to the folder above is not followed for ever"


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


def test_what_options_leave_out_is_counted_by_reason(tmp_path: Path) -> None:
    """Good rows that the options exclude are not errors, but they are counted."""
    meta = write(tmp_path, RELEASE)

    def count(**options: object) -> tuple[dict[str, int], list[str]]:
        report = ReadReport(max_errors=0)
        ids = [entity.entity_id for entity in read(meta, report=report, **options)]
        assert report.rows == 7
        return report.filtered, ids

    assert count() == ({"other_language": 2, "suppressed": 1}, [HEART, DRUG])
    assert count(languages=("en", "fi", "es")) == ({"suppressed": 1}, [HEART, DRUG, PLACE])
    assert count(sabs=("other",))[0] == {"other_language": 2, "suppressed": 1, "other_source": 2}
    assert count(srl_max=0)[0] == {"other_language": 2, "suppressed": 1, "restricted": 2}
    assert count(semantic_types=("DISO",)) == ({"other_language": 2, "suppressed": 1, "semantic_type": 2}, [HEART])


@pytest.mark.parametrize(
    "wanted, expected",
    [
        ("T047", [HEART]),
        ("disease or syndrome", [HEART]),
        ("B2.2.1", [HEART]),
        ("Disorders", [HEART]),
        ("chem", [DRUG]),
        ("A1.4.1", [DRUG]),
        ("A", [DRUG, PLACE]),
    ],
)
def test_semantic_types_are_chosen_in_any_spelling(tmp_path: Path, wanted: str, expected: list[str]) -> None:
    """TUI, name, tree number (whole branches), group, in upper or lower case."""
    found = read(write(tmp_path, RELEASE), languages=("en", "fi", "es"), semantic_types=(wanted,))

    assert [entity.entity_id for entity in found] == expected


@pytest.mark.parametrize(
    "wanted, near", [("Diseases", "Disease or Syndrome"), ("T999", "T099"), ("B2.2.1.9", "B2.2.1")]
)
def test_an_unknown_semantic_type_lists_those_near_it(tmp_path: Path, wanted: str, near: str) -> None:
    """A typing error is an error, and does not give an empty collection."""
    with pytest.raises(SettingsError, match=f"'{wanted}' is not a semantic type.*{near}"):
        read(write(tmp_path, RELEASE), semantic_types=(wanted,))


@pytest.mark.parametrize(
    "given, code", [("en", "ENG"), ("EN-us", "ENG"), ("eng", "ENG"), ("hr", "SCR"), ("deu", "GER"), ("nob", "NOR")]
)
def test_languages_are_given_as_one_likes(tmp_path: Path, given: str, code: str) -> None:
    """ISO 639-1, 639-2 and UMLS's own codes are understood."""
    assert len(read_rows(tmp_path, [atom(HEART, "x", LAT=code), atom(DRUG, "y", LAT="LAT")], languages=(given,))) == 1


def test_a_name_has_the_language_of_its_atom(tmp_path: Path) -> None:
    """As ISO 639-1 has it where it has a code; of several languages the first requested one."""
    rows = [
        atom(HEART, "Sydän", "A1", LAT="FIN"),
        atom(HEART, "Cor", "A2", LAT="LAT"),
        atom(HEART, "Cor", "A3", LAT="SPA"),
    ]
    (first,) = read_rows(tmp_path, rows, languages=("fi", "LAT", "es"))
    (second,) = read_rows(tmp_path, rows, languages=("es", "LAT", "fi"))

    assert first.languages == {"Sydän": "fi", "Cor": "lat"}
    assert second.languages == {"Sydän": "fi", "Cor": "es"}


@pytest.mark.parametrize("options", [{"languages": ("english",)}, {"srl_max": -1}])
def test_options_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    """A wrong option is named before anything is read."""
    with pytest.raises(SettingsError):
        UmlsReader(["x"], ReadOptions(**options))  # type: ignore[arg-type]


def test_the_order_of_preference(tmp_path: Path) -> None:
    """Requested language, then TS, STT, ISPREF, then rank, then string, then AUI."""
    best_first = [
        atom(HEART, "z1", LAT="FIN"),
        atom(HEART, "z2"),
        atom(HEART, "z3", ISPREF="N"),
        atom(HEART, "z4", STT="VO"),
        atom(HEART, "z6", TS="S", TTY="SY"),
        atom(HEART, "z5", TS="S", TTY="PT"),
        atom(HEART, "a7", TS="S", TTY="XX", ISPREF="N"),
        atom(HEART, "b8", TS="S", TTY="XX", ISPREF="N"),
    ]
    write(tmp_path, {"MRRANK.RRF": b"0002|MADEUP|SY|N|\n0001|MADEUP|PT|N|\n"})
    for n in range(len(best_first)):
        rows = list(reversed(best_first[n:]))
        (tmp_path / "MRCONSO.RRF").write_text("".join(rows))
        (entity,) = read(tmp_path, languages=("fi", "en"))
        assert f"|{entity.canonical_name}|" in best_first[n]


def test_definitions_come_from_atoms_that_are_read(tmp_path: Path) -> None:
    """A description must come from an allowed source and language, like the names; MSH is preferred."""
    rows = "".join(
        (
            definition(HEART, "A10", "ZZZ", "By ZZZ."),
            definition(HEART, "A11", "MSH", "By MSH."),
            definition(HEART, "A11", "NCI", "By NCI."),
            definition(HEART, "A13", "MSH", "Suomeksi."),
            definition(HEART, "A10", "MSH", "Old.", "O"),
            definition(DRUG, "", "OWN", "No atom."),
            definition("C9777777", "A1", "MSH", "Of nobody."),
        )
    )
    meta = write(tmp_path, RELEASE | {"MRDEF.RRF": rows.encode()})

    def describe(**options: object) -> list[str | None]:
        return [entity.description for entity in read(meta, report=None, **options)]

    assert describe() == ["By MSH.", "No atom."]
    assert describe(srl_max=0) == ["By ZZZ.", "No atom."]
    assert describe(sabs=("NCI", "MADEUP", "OTHER")) == ["By NCI.", None]
    assert describe(languages=("FIN",)) == ["Suomeksi."]
    (meta / "MRDEF.RRF").write_text("".join(reversed(rows.splitlines(keepends=True))))
    assert describe() == ["By MSH.", "No atom."]


def test_a_type_that_no_table_has_is_taken_from_the_row(tmp_path: Path) -> None:
    """A semantic type that is newer than the table still has its name and tree number."""
    rows = sty(HEART, "T555", "A9.1", "Newest Type") + sty(HEART, "odd", "", "") + sty(HEART, "", "A", "x")

    assert read(write(tmp_path, RELEASE | {"MRSTY.RRF": rows.encode()}))[0].kb_types == (
        "T555", "Newest Type", "A9.1", "A9", "A", "odd",
    )  # fmt: skip


def test_types_are_found_whatever_the_order(tmp_path: Path) -> None:
    """MRSTY.RRF need not be sorted, ids need not have eight characters, rows of an id need not be adjacent."""
    ids = [f"C9{i:06}" for i in range(300)] + [f"CN{i:05}" for i in range(300)] + ["ä", "C" * 30]
    types = shipped_types()
    rng = random.Random(1)
    pairs = [(id_, rng.choice(types)) for id_ in ids for _ in range(3)]
    rng.shuffle(pairs)
    rng.shuffle(ids)
    rows = "".join(sty(id_, tui, number, name) for id_, (tui, name, number, *_) in pairs)
    found = read(
        write(
            tmp_path, {"MRCONSO.RRF": "".join(atom(i, f"name {i}") for i in ids).encode(), "MRSTY.RRF": rows.encode()}
        )
    )

    assert [entity.entity_id for entity in found] == ids
    for entity in found:
        expected = {one for id_, t in pairs if id_ == entity.entity_id for one in semantic_types()[t[0]]}
        assert set(entity.kb_types) == expected
        assert len(entity.kb_types) == len(expected)


def test_the_table_of_types_is_whole() -> None:
    """127 types in 15 groups, a tree without gaps, and each of them mapped to a coarse type."""
    types, rows = semantic_types(), shipped_types()
    numbers = {number for _, _, number, *_ in rows}

    assert len(types) == len(numbers) == 127
    assert len({group for *_, group, _ in rows}) == len({group_name for *_, group_name in rows}) == 15
    known = numbers | {"A", "B"}
    # The tree has holes among chemicals alone, where types were retired.
    gaps = {n.rpartition(".")[0] for n in numbers if n.rpartition(".")[0] and n.rpartition(".")[0] not in known}
    assert gaps == set()
    coarse = {tui: TypeMap.load().map_types(found) for tui, found in types.items()}
    assert all(found and set(found) <= set(ENTITY_TYPES) for found in coarse.values())
    assert coarse["T083"] == ("GPE", "LOC")
    assert (coarse["T016"], coarse["T171"], coarse["T047"]) == (("PERSON",), ("LANGUAGE",), ("OTHER",))


def naive(rows: list[list[str]], languages: Sequence[str]) -> dict[str, tuple[str, set[str]]]:
    """The expected result for rows of MRCONSO.RRF in any order, with no other option: preferred name, all names."""
    found: dict[str, list[tuple[object, ...]]] = {}
    place = {column: i for i, column in enumerate(COLUMNS["MRCONSO"])}
    for cells in rows:
        get = {column: cells[i] for column, i in place.items()}
        if get["LAT"] in languages and get["SUPPRESS"] == "N":
            key = (get["TS"] != "P", get["STT"] != "PF", get["ISPREF"] != "Y", get["STR"].encode(), get["AUI"].encode())
            name = get["STR"].strip(" \t\v\f\r")
            found.setdefault(get["CUI"], []).append((languages.index(get["LAT"]), *key, name))
    return {id_: (str(min(keys)[-1]), {str(key[-1]) for key in keys}) for id_, keys in found.items()}


CELL = st.text(st.characters(exclude_characters="|\n\r\0", exclude_categories=["Cs"]), max_size=6)
ROW = st.builds(
    lambda cui, name, **fields: atom(f"C9{cui:06}", "x" + name, **fields),
    st.integers(0, 3), CELL, LAT=st.sampled_from(["ENG", "FIN", "E", ""]), TS=st.sampled_from(["P", "S", "PP", ""]),
    STT=st.sampled_from(["PF", "VO", ""]), ISPREF=st.sampled_from(["Y", "N"]), aui=CELL,
    SUPPRESS=st.sampled_from("NNO"), SAB=CELL, SRL=st.sampled_from(["0", "9", "", "10", "x"]),
)  # fmt: skip


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(ROW, min_size=1, max_size=25), languages=st.sampled_from([(), ("FIN", "ENG")]))
def test_the_reader_agrees_with_a_naive_one(tmp_path: Path, rows: list[str], languages: tuple[str, ...]) -> None:
    """Reading by blocks gives what reading row by row would give, in whatever order the rows of an entity are."""
    rows.sort(key=lambda row: row[:8])
    entities = read_rows(tmp_path, rows, ReadReport(max_errors=0), languages=languages)

    assert {entity.entity_id: (entity.canonical_name, set(entity.names())) for entity in entities} == naive(
        [row.split("|") for row in rows], languages or ("ENG",)
    )
