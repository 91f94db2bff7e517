"""Releases in the form of UMLS, made up for the tests; nothing in them is from UMLS."""

from __future__ import annotations

import bz2
import gzip
import io
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ingest.base.format import ReadOptions
from ingest.io.report import ReadReport
from ingest.readers.umls import COLUMNS, UmlsReader
from pearl_qdrant.records import Entity

HEART, DRUG, PLACE = "C9000001", "C9000002", "C9000003"


def atom(cui: str, name: str, aui: str = "A1", **fields: str) -> str:
    """A row of MRCONSO.RRF; by default preferred, English and not suppressed."""
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
    with UmlsReader(paths, ReadOptions(**options)) as reader:  # type: ignore[arg-type]
        return list(reader.read(report or ReadReport()))


def read_rows(tmp_path: Path, rows: Iterable[str], report: ReadReport | None = None, **options: object) -> list[Entity]:
    """Entities of a MRCONSO.RRF of these rows."""
    path = tmp_path / "MRCONSO.RRF"
    path.write_bytes("".join(rows).encode("utf-8", "surrogateescape"))
    return read(path, report=report, **options)


FORMS: dict[str, Callable[[Path], list[Path]]] = {
    "META folder": lambda p: [write(p / "META", RELEASE)],
    "parent folder": lambda p: [write(p / "2099AA" / "META", RELEASE).parent],
    "zip": lambda p: [write(p, {"b.zip": pack({f"2099AA/META/{n}": c for n, c in RELEASE.items()})}) / "b.zip"],
    "two files": lambda p: [write(p, RELEASE) / "MRCONSO.RRF", p / "MRSTY.RRF"],
    "two compressed files": lambda p: [
        write(p, {"c.bin": bz2.compress(CONSO.encode()), "s": gzip.compress(STY.encode())}) / "s",
        p / "c.bin",
    ],
}
