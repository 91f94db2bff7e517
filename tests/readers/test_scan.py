"""The pass before anything is encoded: counts, repeated names, scattered ids."""

from __future__ import annotations

import gc
import gzip
import io
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.base.scan import ScanResult, hash_texts, name_hash, scan
from ingest.formats import ReadOptions, open_reader
from ingest.io.report import ReadReport
from ingest.readers.columns import TableColumns
from ingest.readers.table import TableReader
from pearl_qdrant.errors import TooManyErrorsError
from pearl_qdrant.records import Entity


def scan_text(text: str, report: ReadReport | None = None) -> tuple[ScanResult, list[Entity], ReadReport]:
    """A scan, and the reading after it."""
    with TableReader(["-"], ReadOptions(), kind="tsv", stdin=io.BytesIO(text.encode())) as reader:
        result = scan(reader, report)
        read_report = ReadReport()
        return result, list(reader.read(read_report, scattered=result.scattered)), read_report


def test_counts_are_those_of_the_entities() -> None:
    """Entities, names, distinct names and names of several entities are counted before anything is encoded."""
    result, entities, _ = scan_text("Q1\tParis\t\tPaname\nQ2\tParis\nQ3\tRome\t\tParis|Roma\nQ1\tLutetia\t\tParis\n")

    assert (result.entities, result.names, result.distinct_names) == (3, 7, 5)
    assert result.repeated_name_hashes.tolist() == [name_hash("Paris")]
    assert result.scattered.tolist() == [name_hash("Q1")]
    assert [entity.entity_id for entity in entities] == ["Q2", "Q3", "Q1"]


def test_the_digest_is_that_of_what_is_read(tmp_path: Path) -> None:
    """A resumed run notices any change of what is read; the same rows packed otherwise are the same input."""

    def digest(text: str, *, limit: int | None = None, types: str | None = None, name: str = "a.tsv") -> str:
        path = tmp_path / name
        data = text.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        columns = TableColumns(id="1", name="2", types=(types,)) if types else None
        with open_reader([path], "tsv", ReadOptions(columns=columns, limit=limit)) as reader:
            return scan(reader).digest

    text = "".join(f"Q{i}\tname {i}\tORG\n" for i in range(1000))
    changed = {
        text.replace("name 999", "name 998"),
        text.replace("name 0\tORG", "name 0\tGPE"),
        text + "Q1000\tname\n",
        "".join(reversed(text.splitlines(keepends=True))),
    }
    digests = {digest(one) for one in changed} | {digest(text, limit=10), digest(text, types="2")}

    assert len(digests) == 6
    assert digest(text) not in digests
    assert digest(text) == digest(text, name="b.tsv.gz")


small_ids = st.sampled_from(["a", "b", "c", "d"])
small_names = st.sampled_from(["x", "y", "z", "w", "v"])


@settings(max_examples=examples(80), deadline=None)
@given(rows=st.lists(st.tuples(small_ids, small_names, st.lists(small_names, max_size=3)), min_size=1, max_size=12))
def test_scanning_agrees_with_reading(rows: list[tuple[str, str, list[str]]]) -> None:
    """The counts of a scan equal those of reading, for any scattering of rows."""
    text = "".join(f"{id_}\t{name}\tT\t{'|'.join(aliases)}\n" for id_, name, aliases in rows)
    result, entities, report = scan_text(text)
    counts = Counter(name for entity in entities for name in entity.names())

    assert (result.entities, result.names, result.distinct_names) == (len(entities), counts.total(), len(counts))
    repeated = sorted(name_hash(name) for name, count in counts.items() if count > 1)
    assert result.repeated_name_hashes.tolist() == repeated
    assert result.report == report
    assert {entity.entity_id for entity in entities} == {id_ for id_, _, _ in rows}
    for entity in entities:
        mine = [(name, aliases) for id_, name, aliases in rows if id_ == entity.entity_id]
        everything = dict.fromkeys(n for name, aliases in mine for n in (name, *aliases))
        assert list(entity.names()) == list(everything)


def test_reading_without_a_scan_gives_the_same() -> None:
    """A reader finds scattered ids without a scan, and can be read again."""
    rows = [f"Q{random.Random(i).randrange(40)}\tname {i}\n" for i in range(2000)]
    text = "".join(rows)
    with TableReader(["-"], ReadOptions(), kind="tsv", stdin=io.BytesIO(text.encode())) as reader:
        first, second = list(reader.read(ReadReport())), list(reader.read(ReadReport()))

    assert first == second == scan_text(text)[1]
    assert [entity.entity_id for entity in first] == list(dict.fromkeys(row.split("\t")[0] for row in rows))


def test_hashes_are_the_same_in_every_process() -> None:
    """A reader in another process agrees about which names repeat."""
    code = "from ingest.base.scan import name_hash; print(name_hash('Paris é'))"
    root = Path(__file__).resolve().parents[2]
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)

    assert int(other.stdout) == name_hash("Paris é") == hash_texts(["x", "Paris é"]).tolist()[1]


def test_bad_rows_stop_the_scan() -> None:
    """More bad rows than allowed end the run before anything is encoded."""
    with pytest.raises(TooManyErrorsError):
        scan_text("Q1\tParis\nQ2\nQ3\n", ReadReport(max_errors=1))


def test_scattered_rows_do_not_wait_in_memory() -> None:
    """A base whose ids are all scattered is merged on disk, in batches."""
    text = "".join(f"Q{i % 10_000}\tname {i}\n" for i in range(20_000))
    n_others = sum(type(thing) is Entity for thing in gc.get_objects())  # of other tests of this process
    with TableReader(["-"], ReadOptions(), kind="tsv", stdin=io.BytesIO(text.encode())) as reader:
        entities = reader.read(ReadReport())
        next(entities)
        n_alive = sum(type(thing) is Entity for thing in gc.get_objects()) - n_others
        assert sum(1 for _ in entities) == 9_999

    assert n_alive < 3_000
