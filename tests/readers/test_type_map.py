"""From a base's own types to coarse types."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ingest.base import type_map
from ingest.base.type_map import TypeMap
from pearl_qdrant.errors import FormatError
from pearl_qdrant.phrase_types import ENTITY_TYPES


def test_coarse_types_map_to_themselves() -> None:
    """A base that has OntoNotes types already keeps them, in any spelling."""
    type_map = TypeMap.load()

    assert [type_map.map_types([name]) for name in ENTITY_TYPES] == [(name,) for name in ENTITY_TYPES]
    assert type_map.map_types(["person", "Work of Art", "work-of-art"]) == ("PERSON", "WORK_OF_ART")


def test_common_spellings_are_known() -> None:
    """PER, LOCATION, organisation and their like have a coarse type; an unknown type has none."""
    assert TypeMap.load().map_types(["PER", "Location", "organisation", "City", "country", "zorgon"]) == (
        "PERSON",
        "LOC",
        "ORG",
        "GPE",
    )


def test_own_rows_win_over_the_shipped_ones(tmp_path: Path) -> None:
    """A table of one's own adds types, changes and removes them, and changes the version."""
    path = tmp_path / "map.tsv"
    path.write_text("# version: mine\nzorgon\tPRODUCT\nCITY\tloc\nCountry\t\n")
    type_map = TypeMap.load(path)

    assert type_map.map_types(["Zorgon", "city", "COUNTRY", "town"]) == ("PRODUCT", "LOC", "GPE")
    assert type_map.version.startswith(f"{TypeMap.load().version}+mine-")
    path.write_text(path.read_text() + "x\tORG\n")
    assert TypeMap.load(path).version != type_map.version


@pytest.mark.parametrize(
    "content, message",
    [
        (b"A\tB\n", "map.tsv:1: 'B' is not a coarse type"),
        (b"# x\nA\n", "map.tsv:2: expected"),
        (b"a\tORG\nA\tGPE\n", "map.tsv:2: 'A' is mapped to both"),
        (b"\xff", "UTF-8"),
    ],
)
def test_a_faulty_table_says_where(tmp_path: Path, content: bytes, message: str) -> None:
    """A row that makes no sense is an error with its line."""
    (tmp_path / "map.tsv").write_bytes(content)

    with pytest.raises(FormatError, match=message):
        TypeMap.load(tmp_path / "map.tsv")


def test_what_is_no_table_is_not_read_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device is refused, and of a file that is too large only so much is read as a table may have."""
    with pytest.raises(FormatError, match="/dev/zero: the type map is a device"):
        TypeMap.load("/dev/zero")
    monkeypatch.setattr(type_map, "MAX_BYTES", 1000)
    path = tmp_path / "map.tsv"
    path.write_text("x\tORG\n" * 160)
    assert TypeMap.load(path).map_types(["x"]) == ("ORG",)
    path.write_text("x\tORG\n" * 170)

    with pytest.raises(FormatError, match=r"map\.tsv: has over 1,000 bytes"):
        TypeMap.load(path)


def test_a_table_may_come_through_a_pipe(tmp_path: Path) -> None:
    """Process substitution, as in <(grep ORG types.tsv), works."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_text("zorgon\tORG\n"))
    writer.start()

    assert TypeMap.load(path).map_types(["zorgon"]) == ("ORG",)
    writer.join()


def test_a_missing_table_says_so(tmp_path: Path) -> None:
    """The error contains the given path."""
    with pytest.raises(FormatError, match=r"nowhere\.tsv"):
        TypeMap.load(tmp_path / "nowhere.tsv")
