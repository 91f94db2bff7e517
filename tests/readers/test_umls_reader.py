"""The UMLS reader, on releases that are made up here in the true format; nothing in them is of UMLS."""

from __future__ import annotations

import bz2
import gzip
import io
import random
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.base.scan import scan
from ingest.base.type_map import TypeMap
from ingest.io import decompress
from ingest.io.limits import MAX_LINE_BYTES
from ingest.io.report import ReadReport
from ingest.readers.umls import index as umls_index
from ingest.readers.umls import rows as umls_rows
from ingest.readers.umls.reader import COLUMNS, UmlsOptions, UmlsReader, is_umls
from ingest.readers.umls.types import SemanticTypes
from pearl_qdrant.errors import FormatError, InputError, SettingsError, TooManyErrorsError
from pearl_qdrant.phrase_types import ENTITY_TYPES
from pearl_qdrant.records import Entity

HEART, DRUG, PLACE = "C9000001", "C9000002", "C9000003"


def atom(cui: str, name: str, aui: str = "A1", **fields: str) -> str:
    """A row of MRCONSO.RRF; preferred, English and not suppressed unless it is said otherwise."""
    row = dict.fromkeys(COLUMNS["MRCONSO"], "")
    row |= {"CUI": cui, "LAT": "ENG", "TS": "P", "STT": "PF", "ISPREF": "Y", "AUI": aui, "SAB": "MADEUP", "TTY": "PT"}
    row |= {"STR": name, "SRL": "0", "SUPPRESS": "N"} | fields
    assert list(row) == COLUMNS["MRCONSO"]
    return "".join(f"{cell}|" for cell in row.values()) + "\n"


def sty(cui: str, tui: str, number: str, name: str) -> str:
    """A row of MRSTY.RRF."""
    return f"{cui}|{tui}|{number}|{name}|AT1|256|\n"


def definition(cui: str, aui: str, sab: str, text: str, suppress: str = "N") -> str:
    """A row of MRDEF.RRF."""
    return f"{cui}|{aui}|AT2||{sab}|{text}|{suppress}||\n"


CONSO = "".join(
    (
        atom(HEART, "Heart scare", "A10", SAB="MADEUP", SRL="0"),
        atom(HEART, "Heart fright", "A11", STT="VO", SAB="OTHER", SRL="3"),
        atom(HEART, "scare of heart", "A12", TS="S", SUPPRESS="O"),
        atom(HEART, "Sydänsäikähdys", "A13", LAT="FIN"),
        atom(DRUG, "Placebine", "A20", SRL="2"),
        atom(DRUG, "Placebine", "A21", SAB="OTHER", TS="S"),
        atom(PLACE, "Nowhere", "A30", LAT="SPA"),
    )
)
STY = "".join(
    (
        sty(HEART, "T047", "B2.2.1.2.1", "Disease or Syndrome"),
        sty(DRUG, "T109", "A1.4.1.2.1", "Organic Chemical"),
        sty(DRUG, "T200", "A1.3.3", "Clinical Drug"),
        sty(PLACE, "T083", "A2.1.5.4", "Geographic Area"),
        sty("C9999999", "T047", "B2.2.1.2.1", "Disease or Syndrome"),
    )
)
RELEASE = {"MRCONSO.RRF": CONSO.encode(), "MRSTY.RRF": STY.encode()}


def write(folder: Path, files: Mapping[str, bytes]) -> Path:
    """A folder of files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def pack(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return buffer.getvalue()


def read(*paths: Path, report: ReadReport | None = None, **options: object) -> list[Entity]:
    """All entities."""
    with UmlsReader(paths, UmlsOptions(**options)) as reader:  # type: ignore[arg-type]
        return list(reader.read(report or ReadReport()))


def read_rows(tmp_path: Path, rows: Iterable[str], report: ReadReport | None = None, **options: object) -> list[Entity]:
    """Entities of a MRCONSO.RRF of these rows."""
    path = tmp_path / "MRCONSO.RRF"
    path.write_bytes("".join(rows).encode("utf-8", "surrogateescape"))
    return read(path, report=report, **options)


def split_in(n_parts: int, content: bytes) -> dict[str, bytes]:
    """The compressed parts of a MRCONSO.RRF, cut without regard to rows."""
    size = len(content) // n_parts + 1
    cut = [content[i * size : (i + 1) * size] for i in range(n_parts)]
    return {f"MRCONSO.RRF.a{'abc'[i]}.gz": gzip.compress(part) for i, part in enumerate(cut)}


PARTS = split_in(3, CONSO.encode())
NLM = {
    "2099aa-1-meta.nlm": pack({"2099AA/META/" + name: part for name, part in list(PARTS.items())[:2]}),
    "2099aa-2-meta.nlm": pack(
        {
            "2099AA/META/MRCONSO.RRF.ac.gz": PARTS["MRCONSO.RRF.ac.gz"],
            "2099AA/META/MRSTY.RRF.gz": gzip.compress(STY.encode()),
        }
    ),
}
FORMS: dict[str, Callable[[Path], list[Path]]] = {
    "META folder": lambda p: [write(p / "META", RELEASE)],
    "parent folder": lambda p: [write(p / "2099AA" / "META", RELEASE).parent],
    "zip": lambda p: [write(p, {"b.zip": pack({f"2099AA/META/{n}": c for n, c in RELEASE.items()})}) / "b.zip"],
    "folder with a zip": lambda p: [write(p, {"b.zip": pack({f"META/{n}": c for n, c in RELEASE.items()})})],
    "zip of nlm": lambda p: [write(p, {"b.zip": pack({"2099AA/" + n: c for n, c in NLM.items()})}) / "b.zip"],
    "zip of stored nlm": lambda p: [write(p, {"b.zip": pack(NLM, zipfile.ZIP_STORED)}) / "b.zip"],
    "folder of nlm": lambda p: [write(p / "2099AA", NLM)],
    "split parts": lambda p: [write(p, PARTS | {"MRSTY.RRF": STY.encode()})],
    "two files": lambda p: [write(p, RELEASE) / "MRCONSO.RRF", p / "MRSTY.RRF"],
    "two compressed files": lambda p: [
        write(p, {"c.bin": bz2.compress(CONSO.encode()), "s": gzip.compress(STY.encode())}) / "s",
        p / "c.bin",
    ],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_release_gives_the_same_entities(tmp_path: Path, form: str) -> None:
    """A folder, an archive, archives in it, split files and single files are one base."""
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
    )
    assert entities[DRUG].kb_types[:3] == ("T109", "Organic Chemical", "A1.4.1.2.1")
    assert entities[DRUG].kb_types.count("CHEM") == entities[DRUG].kb_types.count("A1") == 1
    assert entities[DRUG].types == ("OTHER", "PRODUCT")
    assert is_umls(paths[-1])


def test_a_lone_mrconso_has_names_without_types(tmp_path: Path) -> None:
    """The names are a base by themselves; the report says that there are no types."""
    report = ReadReport()
    (heart, _) = read(write(tmp_path, {"MRCONSO.RRF": CONSO.encode()}), report=report)

    assert heart.kb_types == heart.types == ()
    assert any("no MRSTY.RRF" in note for note in report.notes)


def test_what_options_leave_out_is_counted_by_reason(tmp_path: Path) -> None:
    """Good rows that are not wanted are no errors, and are not lost in silence."""
    meta = write(tmp_path, RELEASE)

    def count(**options: object) -> tuple[dict[str, int], list[str]]:
        report = ReadReport(max_errors=0)
        ids = [entity.entity_id for entity in read(meta, report=report, **options)]
        assert report.rows == 7
        return report.filtered, ids

    assert count() == ({"other_language": 2, "suppressed": 1}, [HEART, DRUG])
    assert count(languages=()) == ({"suppressed": 1}, [HEART, DRUG, PLACE])
    assert count(languages=(), suppress=("N", "O"))[0] == {}
    assert count(sabs=("other",))[0] == {"other_language": 2, "suppressed": 1, "other_source": 2}
    assert count(srl_max=0)[0] == {"other_language": 2, "suppressed": 1, "restricted": 2}
    assert count(semantic_types=("DISO",)) == ({"other_language": 2, "suppressed": 1, "semantic_type": 2}, [HEART])


@pytest.mark.parametrize(
    "wanted, expected",
    [
        ("T047", [HEART]),
        ("disease or syndrome", [HEART]),
        ("B2.2.1", [HEART]),
        ("B", [HEART]),
        ("Disorders", [HEART]),
        ("chem", [DRUG]),
        ("A1", [DRUG]),
        ("A1.4.1", [DRUG]),
        ("A", [DRUG, PLACE]),
        ("T191", []),
    ],
)
def test_semantic_types_are_chosen_in_any_spelling(tmp_path: Path, wanted: str, expected: list[str]) -> None:
    """TUI, name, tree number (whole branches), group, in upper or lower case."""
    found = read(write(tmp_path, RELEASE), languages=(), semantic_types=(wanted,))

    assert [entity.entity_id for entity in found] == expected


@pytest.mark.parametrize(
    "wanted, near", [("Diseases", "Disease or Syndrome"), ("T999", "T099"), ("B2.2.1.9", "B2.2.1")]
)
def test_an_unknown_semantic_type_lists_those_near_it(tmp_path: Path, wanted: str, near: str) -> None:
    """A typing error is no empty collection."""
    with pytest.raises(SettingsError, match=f"'{wanted}' is no semantic type.*{near}"):
        read(write(tmp_path, RELEASE), semantic_types=(wanted,))


def test_semantic_types_need_their_file(tmp_path: Path) -> None:
    """Without MRSTY.RRF nothing can be chosen by type."""
    with pytest.raises(FormatError, match=r"no MRSTY\.RRF"):
        read(write(tmp_path, {"MRCONSO.RRF": CONSO.encode()}), semantic_types=("T047",))


@pytest.mark.parametrize(
    "given, code", [("en", "ENG"), ("EN-us", "ENG"), ("eng", "ENG"), ("hr", "SCR"), ("deu", "GER")]
)
def test_languages_are_given_as_one_likes(given: str, code: str) -> None:
    """ISO 639-1, 639-2 and UMLS's own codes are understood."""
    assert UmlsOptions(languages=(given,)).languages == (code,)


@pytest.mark.parametrize("options", [{"languages": ("english",)}, {"suppress": ("X",)}, {"srl_max": -1}])
def test_options_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    """A wrong option is named before anything is read."""
    with pytest.raises(SettingsError):
        UmlsOptions(**options)  # type: ignore[arg-type]


def test_the_preferred_name_does_not_depend_on_the_order_of_rows(tmp_path: Path) -> None:
    """However the rows of an entity are shuffled, its canonical name is the same."""
    rng = random.Random(0)
    for _ in range(25):
        rows = [
            atom(
                HEART, rng.choice("abcdef") * 2, f"A{i}", LAT=rng.choice(["ENG", "FIN"]), TS=rng.choice("PS"),
                STT=rng.choice(["PF", "VO"]), ISPREF=rng.choice("YN"), TTY=rng.choice(["PT", "SY"]),
            )
            for i in range(rng.randint(1, 9))
        ]  # fmt: skip
        found = set()
        for _ in range(4):
            rng.shuffle(rows)
            (entity,) = read_rows(tmp_path, rows, languages=("FIN", "ENG"))
            found.add((entity.canonical_name, frozenset(entity.names())))
        assert len(found) == 1


def test_the_order_of_preference(tmp_path: Path) -> None:
    """Language as asked for, then TS, STT, ISPREF, then rank, then string, then AUI."""
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
    """A description needs to be licensed and in the language like the names; MSH goes before others."""
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


def test_columns_are_those_of_mrfiles(tmp_path: Path) -> None:
    """A release that lists other columns, in another order, is read by them."""
    order = ["STR", *[column for column in COLUMNS["MRCONSO"] if column not in ("STR", "LUI")], "NEW"]
    rows = []
    for line in CONSO.splitlines():
        cells = dict(zip(COLUMNS["MRCONSO"], line.split("|"), strict=False)) | {"NEW": "new"}
        rows.append("".join(cells[column] + "|" for column in order) + "\n")
    mrfiles = f"MRCONSO.RRF|Names|{','.join(order)}|{len(order)}|7|1|\nOTHER.RRF|Other|X|1|1|1|\n"
    plain = read(write(tmp_path / "1", RELEASE))

    changed = RELEASE | {"MRCONSO.RRF": "".join(rows).encode(), "MRFILES.RRF": mrfiles.encode()}
    assert read(write(tmp_path / "2", changed)) == plain
    with pytest.raises(FormatError, match=r"MRFILES\.RRF:1: lists no column LAT"):
        read(write(tmp_path / "3", changed | {"MRFILES.RRF": mrfiles.replace(",LAT,", ",").encode()}))


def test_missing_rows_are_noted(tmp_path: Path) -> None:
    """A MRCONSO.RRF that was cut between two rows is told by the number of rows that MRFILES.RRF lists."""
    mrfiles = f"MRCONSO.RRF|Names|{','.join(COLUMNS['MRCONSO'])}|18|7|999|\n".encode()
    meta = write(tmp_path, RELEASE | {"MRFILES.RRF": mrfiles})
    whole, cut = ReadReport(), ReadReport()
    read(meta, report=whole)
    (meta / "MRCONSO.RRF").write_text("".join(CONSO.splitlines(keepends=True)[:5]))
    read(meta, report=cut)

    assert not any("promises" in note for note in whole.notes)
    assert any("MRFILES.RRF promises 7 rows, but there are 5" in note for note in cut.notes)


def test_groups_beside_the_base_win(tmp_path: Path) -> None:
    """A SemGroups.txt and an SRDEF of the release go before the table that ships."""
    extra = {
        "SemGroups.txt": b"MINE|My group|T047|Disease or Syndrome\nMINE|My group|T998|New type\n",
        "SRDEF": b"STY|T047|Renamed|B9.9|x|||||\nRL|T999|isa|H|x|||||\n",
    }
    meta = write(tmp_path, RELEASE | extra)

    assert read(meta)[0].kb_types == ("T047", "Renamed", "B9.9", "B9", "B", "MINE")
    assert [entity.entity_id for entity in read(meta, semantic_types=("my group",))] == [HEART]


def test_a_type_that_no_table_has_is_taken_from_the_row(tmp_path: Path) -> None:
    """A semantic type that is newer than the table still has its name and tree number."""
    rows = sty(HEART, "T555", "A9.1", "Newest Type") + sty(HEART, "odd", "", "") + sty(HEART, "", "A", "x")

    assert read(write(tmp_path, RELEASE | {"MRSTY.RRF": rows.encode()}))[0].kb_types == (
        "T555", "Newest Type", "A9.1", "A9", "A", "odd",
    )  # fmt: skip


def test_types_are_found_whatever_the_order(tmp_path: Path) -> None:
    """MRSTY.RRF need not be sorted, ids need not have eight characters, rows need not stand together."""
    ids = [f"C9{i:06}" for i in range(300)] + [f"CN{i:05}" for i in range(300)] + ["ä", "C" * 30]
    types = list(SemanticTypes.load()._types.values())
    rng = random.Random(1)
    pairs = [(id_, rng.choice(types)) for id_ in ids for _ in range(3)]
    rng.shuffle(pairs)
    rng.shuffle(ids)
    rows = "".join(sty(id_, t.tui, t.tree_number, t.name) for id_, t in pairs)
    found = read(
        write(
            tmp_path, {"MRCONSO.RRF": "".join(atom(i, f"name {i}") for i in ids).encode(), "MRSTY.RRF": rows.encode()}
        )
    )

    assert [entity.entity_id for entity in found] == ids
    for entity in found:
        expected = {one for id_, t in pairs if id_ == entity.entity_id for one in t.kb_types()}
        assert set(entity.kb_types) == expected
        assert len(entity.kb_types) == len(expected)


def test_a_file_of_endless_types_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A MRSTY.RRF in which every row has a type of its own does not fill the memory."""
    monkeypatch.setattr(umls_index, "MAX_COMBINATIONS", 100)
    rows = "".join(sty(f"C9{i:06}", f"X{i}", "A", "x") for i in range(200))

    with pytest.raises(FormatError, match="combinations of semantic types"):
        read(write(tmp_path, RELEASE | {"MRSTY.RRF": rows.encode()}))


def test_a_full_disk_is_no_bad_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the temporary files do not fit, the message says where."""
    meta = write(tmp_path, RELEASE)

    def open_full(**_: str) -> BinaryIO:
        return Path("/dev/full").open("r+b")

    monkeypatch.setattr("tempfile.TemporaryFile", open_full)
    with pytest.raises(InputError, match="Point TMPDIR"):
        read(meta)


def test_scattered_rows_make_one_entity(tmp_path: Path) -> None:
    """Rows of one CUI that do not stand together are brought together."""
    rows = [atom(HEART, "a"), atom(DRUG, "b"), atom(HEART, "c")]

    assert [(e.entity_id, e.aliases) for e in read_rows(tmp_path, rows)] == [(DRUG, ()), (HEART, ("c",))]


def test_a_scan_counts_what_a_read_gives(tmp_path: Path) -> None:
    """The pass before the load and the load agree."""
    meta = write(tmp_path, RELEASE | {"MRSTY.RRF": STY.encode() + b"bad\n"})
    with UmlsReader([meta], UmlsOptions()) as reader:
        result, report = scan(reader), ReadReport()
        entities = list(reader.read(report, scattered=result.scattered))

    assert (result.entities, result.names) == (len(entities), sum(1 + len(e.aliases) for e in entities))
    assert result.report == report
    assert report.skipped == {"too_few_columns": 1}
    assert report.rows == 8


def test_limit_ends_the_reading(tmp_path: Path) -> None:
    """A first look at a base reads some entities."""
    with UmlsReader([write(tmp_path, RELEASE)], limit=1) as reader:
        assert len(list(reader.read(ReadReport()))) == 1


@pytest.mark.parametrize("size", [200, 1000, 100_000])
def test_blocks_do_not_show(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the file is cut into blocks makes no difference, with long runs, wrong rows and odd ids in it."""
    rng = random.Random(size)
    rows = []
    for i in range(300):
        id_ = f"C9{i:06}" if i % 7 else f"CN{i}"
        rows += [
            atom(id_, f"näme {rng.randint(0, 30)}", f"A{i}", TS=rng.choice("PS")) for _ in range(rng.randint(1, 40))
        ]
        if not i % 50:
            rows += ["wrong|row|\n", "\n", atom(id_, ""), atom("", "x"), atom(id_, "a\0b"), atom(id_, "\udcff")]
    reports = [ReadReport(), ReadReport()]
    plain = read_rows(tmp_path, rows, reports[0])
    monkeypatch.setattr(umls_rows, "BLOCK", size)
    small = read_rows(tmp_path, rows, reports[1])

    assert small == plain
    assert reports[0] == reports[1]
    assert reports[0].skipped == {
        "too_few_columns": 6, "no_name": 6, "no_id": 6, "nul_character": 6, "invalid_utf8": 6,
    }  # fmt: skip


def test_a_run_longer_than_a_block_is_one_entity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a file of one CUI alone is read, and gives one entity."""
    monkeypatch.setattr(umls_rows, "BLOCK", 1 << 12)
    (entity,) = read_rows(tmp_path, (atom(HEART, f"name {i}") for i in range(10_000)))

    assert len(list(entity.names())) == 10_000


def test_a_bad_row_is_skipped_with_its_line(tmp_path: Path) -> None:
    """Rows of the wrong width, broken text and over-long lines are counted where they stand; the rest is read."""
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
        ({}, "holds no MRCONSO.RRF, and no other file of UMLS"),
        ({"notes.txt": b"x"}, "holds no MRCONSO.RRF"),
        ({"MRSTY.RRF": STY.encode()}, "there is no MRCONSO.RRF"),
        ({"MRCONSO.RRF": b""}, "is empty"),
        ({"MRCONSO.RRF": b"\n\n \n"}, "no sound row"),
        ({"MRCONSO.RRF": b"id\tname\nC1\tx\n"}, r"MRCONSO.RRF:1: expected 18 fields, found 0\. Is this"),
        ({"MRCONSO.RRF": STY.encode()}, "expected 18 fields, found 6"),
        ({"MRCONSO.RRF": CONSO.replace("A1", "\0").encode("utf-16")}, "UTF-16"),
        ({"MRCONSO.RRF": bytes(1000)}, "NUL bytes"),
        ({"MRCONSO.RRF": CONSO.encode(), "MRSTY.RRF": b""}, "MRSTY.RRF: is empty"),
        ({"MRCONSO.RRF": CONSO.encode(), "MRRANK.RRF": b"x|y|\n"}, "Is this MRRANK.RRF"),
        ({"MRCONSO.RRF": CONSO.encode(), "SemGroups.txt": b"x\n"}, "SemGroups.txt:1: expected 4 fields"),
        ({"MRCONSO.RRF": CONSO.encode(), "MRCONSO.RRF.gz": CONSO.encode()}, "twice"),
        ({"MRCONSO.RRF.aa.gz": CONSO.encode(), "MRCONSO.RRF.ac.gz": CONSO.encode()}, "part .ab before it"),
        ({"MRCONSO.RRF.ab.gz": CONSO.encode()}, "part .aa before it"),
    ],
)  # fmt: skip
def test_what_is_no_release_says_so(tmp_path: Path, files: dict[str, bytes], message: str) -> None:
    """Each thing that can be given by mistake has words of its own."""
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
        assert is_umls(tmp_path / name) == (name == "META")
    with pytest.raises(FormatError):
        read(Path("-"))
    with pytest.raises(ValueError, match="no path"):
        UmlsReader([])


def test_a_loop_of_folders_does_not_hide_the_base(tmp_path: Path) -> None:
    """A link to the folder above is not followed for ever; the nearest files are taken."""
    meta = write(tmp_path / "META", RELEASE)
    (meta / "up").symlink_to(tmp_path)

    assert len(read(tmp_path)) == 2


@pytest.mark.parametrize("cut", [30, -30, -5])
def test_a_truncated_part_is_noticed(tmp_path: Path, cut: int) -> None:
    """A part of a split file whose download broke off is named; nothing is lost in silence."""
    parts = dict(PARTS)
    parts["MRCONSO.RRF.ab.gz"] = parts["MRCONSO.RRF.ab.gz"][:cut]

    with pytest.raises(FormatError, match=r"MRCONSO\.RRF.*ends early"):
        read(write(tmp_path, parts))


def test_damage_within_a_large_file_tells_the_line(tmp_path: Path) -> None:
    """Of a long file it is said how far it is sound."""
    content = gzip.compress(
        "".join(atom(f"C9{i:06}", f"name {random.Random(i).random()}") for i in range(30_000)).encode()
    )

    with pytest.raises(FormatError, match=r"MRCONSO\.RRF\.gz:\d{4,5}: after this line, its gzip data ends early"):
        read(write(tmp_path, {"MRCONSO.RRF.gz": content[: len(content) // 2]}))


def test_a_bomb_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes that would become gigabytes are refused."""
    monkeypatch.setattr(decompress, "RATIO_GRACE", 1 << 20)
    bomb = gzip.compress(b"C9000001|" * (1 << 19))

    with pytest.raises(FormatError, match="expands"):
        read(write(tmp_path, {"MRCONSO.RRF": bomb}))


def test_a_file_is_recognised_by_its_rows(tmp_path: Path) -> None:
    """Any name will do for a file with 18 columns and a CUI; other tables are no UMLS."""
    files = {
        "yes.txt": CONSO.encode(), "yes.gz": gzip.compress(CONSO.encode()), "no.tsv": b"C9000001\tname\n",
        "no.psv": b"a|b|c|\n", "no.txt": atom("Q1", "x").encode(), "empty": b"", "no.zip": pack({"a.ttl": b""}),
        "bad.zip": b"PK\x03\x04", "bad.gz": gzip.compress(CONSO.encode())[:-20],
    }  # fmt: skip
    write(tmp_path / "x", files)

    found = {name for name in files if is_umls(tmp_path / "x" / name)}
    assert found == {"yes.txt", "yes.gz"}
    assert not is_umls("-")
    assert not is_umls(tmp_path / "x")


def test_the_table_of_types_is_whole() -> None:
    """127 types in 15 groups, a tree without gaps, and each of them mapped to a coarse type."""
    types = SemanticTypes.load()._types
    numbers = {found.tree_number for found in types.values()}

    assert len(types) == len(numbers) == 127
    assert len({found.group for found in types.values()}) == len({found.group_name for found in types.values()}) == 15
    known = numbers | {"A", "B"}
    # The tree has holes among chemicals alone, where types were retired.
    gaps = {n.rpartition(".")[0] for n in numbers if n.rpartition(".")[0] and n.rpartition(".")[0] not in known}
    assert gaps == set()
    coarse = {tui: TypeMap.load().map_types(found.kb_types()) for tui, found in types.items()}
    assert all(found and set(found) <= set(ENTITY_TYPES) for found in coarse.values())
    assert coarse["T083"] == ("GPE", "LOC")
    assert (coarse["T016"], coarse["T171"], coarse["T047"]) == (("PERSON",), ("LANGUAGE",), ("OTHER",))


def naive(rows: list[list[str]]) -> dict[str, tuple[str, set[str]]]:
    """What should come out of rows of MRCONSO.RRF with default options: preferred name, and all names."""
    found: dict[str, list[tuple[object, ...]]] = {}
    place = {column: i for i, column in enumerate(COLUMNS["MRCONSO"])}
    for cells in rows:
        get = {column: cells[i] for column, i in place.items()}
        if get["LAT"] == "ENG" and get["SUPPRESS"] == "N":
            key = (get["TS"] != "P", get["STT"] != "PF", get["ISPREF"] != "Y", get["STR"].encode(), get["AUI"].encode())
            found.setdefault(get["CUI"], []).append((*key, get["STR"].strip(" \t\v\f\r")))
    return {id_: (str(min(keys)[-1]), {str(key[-1]) for key in keys}) for id_, keys in found.items()}


CELL = st.text(st.characters(exclude_characters="|\n\r\0", exclude_categories=["Cs"]), max_size=6)
ROW = st.builds(
    lambda cui, name, **fields: atom(f"C9{cui:06}", "x" + name, **fields),
    st.integers(0, 3), CELL, LAT=st.sampled_from(["ENG", "FIN", "E", ""]), TS=st.sampled_from(["P", "S", "PP", ""]),
    STT=st.sampled_from(["PF", "VO", ""]), ISPREF=st.sampled_from(["Y", "N"]), aui=CELL,
    SUPPRESS=st.sampled_from("NNO"), SAB=CELL, SRL=st.sampled_from(["0", "9", "", "10", "x"]),
)  # fmt: skip


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(ROW, min_size=1, max_size=25))
def test_the_reader_agrees_with_a_naive_one(tmp_path: Path, rows: list[str]) -> None:
    """Reading by blocks gives what reading row by row would give."""
    rows.sort(key=lambda row: row[:8])
    found = {entity.entity_id: entity for entity in read_rows(tmp_path, rows, ReadReport(max_errors=0))}

    assert {id_: (e.canonical_name, set(e.names())) for id_, e in found.items()} == naive(
        [row.split("|") for row in rows]
    )


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), table=st.sampled_from(["MRCONSO.RRF", "MRSTY.RRF", "MRDEF.RRF", "MRFILES.RRF", "MRRANK.RRF"]))
def test_any_bytes_are_a_typed_error_or_counted(tmp_path: Path, data: st.DataObject, table: str) -> None:
    """Noise in any of the files ends in an error of ours, or in rows that are counted; never in a traceback."""
    noise = st.one_of(
        st.binary(max_size=60),
        st.lists(st.sampled_from([b"|", b"\n", b"C9000001", b"\0", b"\xff", b"T047", b"x", b"|\r\n"])).map(b"".join),
    )
    original = RELEASE | {
        "MRDEF.RRF": definition(HEART, "A10", "MSH", "x").encode(),
        "MRFILES.RRF": f"MRCONSO.RRF|x|{','.join(COLUMNS['MRCONSO'])}|18|7|1|\n".encode(),
        "MRRANK.RRF": b"0002|MADEUP|SY|N|\n",
    }
    content = original[table]
    at = data.draw(st.integers(0, len(content)))
    content = content[:at] + data.draw(noise) + content[data.draw(st.integers(at, len(content))) :]
    meta = write(tmp_path / "META", original | {table: content})
    report = ReadReport(max_errors=None)

    try:
        entities = read(meta, report=report, languages=())
    except InputError:
        return
    assert all(entity.entity_id and entity.canonical_name for entity in entities)
    if table == "MRCONSO.RRF":
        n_lines = sum(1 for line in content.split(b"\n") if line.strip())
        assert report.rows == n_lines
