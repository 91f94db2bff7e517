"""A base is cut by entity while it is scanned."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from spread_cases import write_base

from ingest.base.reader import Reader
from ingest.base.scan import scan
from ingest.formats import open_reader
from ingest.io.report import ReadReport
from ingest.spread.cutting import BUCKETS, BucketReader, bucket_of, buckets_of, cut_and_scan
from ingest.spread.driver import LEAST_NAMES, NAMES_PER_PART, count_parts
from pearl_qdrant.errors import InputError
from pearl_qdrant.records import Entity


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A small base with scattered rows."""
    return write_base(tmp_path / "base.tsv")


def read(reader: Reader) -> dict[str, Entity]:
    """All entities by id; each comes once."""
    entities = list(reader.read(ReadReport()))
    assert len({one.entity_id for one in entities}) == len(entities)
    return {one.entity_id: one for one in entities}


@pytest.mark.parametrize("n_parts", [1, 3, 8])
def test_parts_have_the_entities_of_the_base(base: Path, tmp_path: Path, n_parts: int) -> None:
    """Each entity is in one part, merged of its rows as in the base as a whole."""
    with open_reader([base]) as reader:
        cut_and_scan(reader, ReadReport(), tmp_path / "cut")
        whole = read(reader)
    parts = [read(BucketReader(tmp_path / "cut", buckets_of(part, n_parts))) for part in range(n_parts)]

    assert sum(map(len, parts)) == len(whole)
    assert {id_: one for part in parts for id_, one in part.items()} == whole


def test_a_cut_counts_as_a_scan_does(base: Path, tmp_path: Path) -> None:
    """Counts, merges and digest are those of a scan without a cut."""
    with open_reader([base]) as reader:
        cut, plain = cut_and_scan(reader, ReadReport(), tmp_path / "cut"), scan(reader, ReadReport())

    assert (cut.digest, cut.entities, cut.names) == (plain.digest, plain.entities, plain.names)
    assert cut.distinct_names == plain.distinct_names
    assert cut.report == plain.report
    assert cut.report.merged_rows == 13


class OneEntity(BucketReader):
    """A reader of one entity."""

    def __init__(self, entity: Entity) -> None:
        super().__init__(Path(), range(0))
        self._entity = entity

    def read_runs(self, report: ReadReport) -> Iterator[Entity]:
        yield self._entity


def test_buckets_hold_any_text(tmp_path: Path) -> None:
    """Lone surrogates, line ends and NUL in names come back as they were."""
    odd = Entity("a\u2028b", "x\ud800y", ("one\ntwo", "z\x85", "\0"), extra={"k": "\r"}, popularity=0.1)
    cut_and_scan(OneEntity(odd), ReadReport(), tmp_path / "cut")

    assert read(BucketReader(tmp_path / "cut", range(BUCKETS))) == {odd.entity_id: odd}


def test_a_bucket_is_the_same_everywhere() -> None:
    """The bucket of an id never changes: a cut of another version is read as this one."""
    assert [bucket_of(one) for one in ("E1", "Q42", "C0027051", "é")] == [165, 146, 26, 203]


def test_a_damaged_bucket_is_reported(base: Path, tmp_path: Path) -> None:
    """A bucket that is gone or cut off is an error, with its path."""
    with open_reader([base]) as reader:
        cut_and_scan(reader, ReadReport(), tmp_path / "cut")
    (tmp_path / "cut" / "003.jsonl").unlink()
    torn = tmp_path / "cut" / f"{bucket_of('E1'):03d}.jsonl"
    torn.write_bytes(torn.read_bytes()[:-9])

    with pytest.raises(InputError, match=r"003\.jsonl: a part of the base cannot be read"):
        read(BucketReader(tmp_path / "cut", range(3, 4)))
    with pytest.raises(InputError, match="a part of the base cannot be read"):
        read(BucketReader(tmp_path / "cut", range(bucket_of("E1"), bucket_of("E1") + 1)))


def test_a_folder_that_cannot_be_written_is_reported(base: Path, tmp_path: Path) -> None:
    """The error names the folder and what to do."""
    (tmp_path / "cut").write_text("a file")

    with open_reader([base]) as reader, pytest.raises(InputError, match="parts of the base cannot be written") as found:
        cut_and_scan(reader, ReadReport(), tmp_path / "cut")

    assert found.value.option == "work"


@pytest.mark.parametrize(
    "names, workers, expected",
    [
        (1, 2, 1),
        (LEAST_NAMES * 2, 16, 2),
        (500_000, 2, 2),
        (NAMES_PER_PART * 2, 2, 2),
        (NAMES_PER_PART * 2 + 1, 2, 4),
        (150_000_000, 16, 80),
        (10**9, 16, BUCKETS),
    ],
)
def test_parts_are_a_multiple_of_the_workers(names: int, workers: int, expected: int) -> None:
    """A part has two million names at most and 25,000 at least; all workers get as many parts."""
    assert count_parts(names, workers) == expected
