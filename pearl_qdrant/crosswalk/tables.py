"""A crosswalk as a plain table: TSV with a header, UTF-8, one row for each entity of the one base."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from pearl_qdrant.crosswalk.records import EntityMatch

COLUMNS = ("subject_id", "subject_name", "object_id", "object_name", "object_kb", "probability", "reason")


def match_lines(matches: Iterable[EntityMatch]) -> Iterator[str]:
    """The lines of the table, without their ends; NIL has an empty object."""
    yield "\t".join(COLUMNS)
    for one in matches:
        cells = (one.subject_id, one.subject_name, one.object_id or "", one.object_name or "", one.object_kb or "")
        yield "\t".join(map(cell, (*cells, f"{one.probability:.4f}", one.reason)))


def write_matches(path: Path, matches: Iterable[EntityMatch]) -> None:
    """Write the table; the file is replaced when all is written."""
    write_lines(path, match_lines(matches))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines to a file that is replaced when all is written."""
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("w", encoding="utf-8", newline="") as file:
        file.writelines(f"{line}\n" for line in lines)
    temporary.replace(path)


def cell(text: str) -> str:
    """A text without what would end its cell or row."""
    return text if text.isprintable() else " ".join(text.replace("\0", " ").split())
