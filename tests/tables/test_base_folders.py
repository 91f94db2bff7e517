"""Files as they are published, a folder of `tests/bases` each: what is read of them, or why they are refused.

A folder has the file, ``input`` with any ending; if options are given, ``options.json``, fields of `ReadOptions`; the
entities, ``expected.jsonl``; and ``report.json``, what is said. ``python tests/tables/test_base_folders.py`` writes the
two anew, for review.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ingest.base.format import ReadOptions, TableColumns
from ingest.formats import open_reader
from ingest.io.report import ReadReport
from pearl_qdrant.errors import InputError

CASES = sorted(path.parent for path in (Path(__file__).parents[1] / "bases").glob("*/report.json"))


def read(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The entities of the file in a folder, and what is said of it; a message names no path."""
    (path,) = folder.glob("input*")
    given = folder / "options.json"
    options = json.loads(given.read_text()) if given.is_file() else {}
    columns = TableColumns(**options.pop("columns")) if "columns" in options else None
    options = {name: tuple(value) for name, value in options.items()}
    report, entities, said = ReadReport(max_errors=None), list[dict[str, Any]](), dict[str, Any]()
    try:
        with open_reader([path], options=ReadOptions(columns=columns, **options)) as reader:
            for one in reader.read(report):
                row = {
                    "id": one.entity_id,
                    "names": [*one.names()],
                    "types": [*one.kb_types],
                    "description": one.description,
                }
                entities.append({key: value for key, value in row.items() if value})
    except InputError as error:
        said = {"error": str(error), "option": getattr(error, "option", None)}
    said["notes"] = report.notes
    said["warnings"] = [one.message for one in report.warnings]
    said["skipped"], said["filtered"] = dict(report.skipped), dict(report.filtered)
    text = json.dumps({key: value for key, value in said.items() if value}, ensure_ascii=False)
    found: dict[str, Any] = json.loads(text.replace(str(path), path.name))
    return entities, found


@pytest.mark.parametrize("folder", CASES, ids=[folder.name for folder in CASES])
def test_a_published_file_is_read_or_refused_in_words(folder: Path) -> None:
    """Its entities, its columns and what is said are those that were reviewed."""
    entities, said = read(folder)

    assert said == json.loads((folder / "report.json").read_text(encoding="utf-8"))
    expected = (folder / "expected.jsonl").read_text(encoding="utf-8") if (folder / "expected.jsonl").is_file() else ""
    assert entities == list(map(json.loads, expected.splitlines()))


def write(folder: Path) -> None:
    """Write what a file gives now as the expectation."""
    entities, said = read(folder)
    (folder / "report.json").write_text(json.dumps(said, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    rows = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in entities)
    if rows:
        (folder / "expected.jsonl").write_text(rows, encoding="utf-8")


if __name__ == "__main__":
    for case in CASES:
        write(case)
