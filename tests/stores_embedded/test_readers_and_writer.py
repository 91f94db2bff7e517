"""Several processes with one embedded collection: readers, and a writer that is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from edge_cases import ROOT, manifest_of, many, python

from pearl_qdrant.store.edge.store import EdgeStore

READER = """
import sys
from pathlib import Path
from pearl_qdrant.store.edge.store import EdgeStore
store = EdgeStore(Path(sys.argv[1]))
for line in sys.stdin:
    collection = store.open("toy", read_only=True)
    counts = {}
    for point in collection.scroll():
        counts[point.entity_id] = counts.get(point.entity_id, 0) + 1
    print(sorted(set(counts.values())), collection.count(), flush=True)
    collection.close()
"""

WRITER = """
import itertools, sys
from pathlib import Path
from pearl_qdrant.store.edge.store import EdgeStore
from edge_cases import many
collection = EdgeStore(Path(sys.argv[1])).open("toy")
print(collection.count(), flush=True)
for start in itertools.count(collection.count(), 2):
    points, vectors, encodable = many(2, start=start)
    with collection.editing():  # both names of an entity, or none
        collection.upsert(points[:1], vectors[:1], encodable[:1])
        collection.upsert(points[1:], vectors[1:], encodable[1:])
"""


def test_readers_see_whole_entities_while_a_writer_is_killed(tmp_path: Path) -> None:
    """Two processes read beside one that writes and is killed: never half an entity, never fewer than before."""
    store = EdgeStore(tmp_path / "store")
    store.create(manifest_of()).upsert(*many(20))
    store.close()
    seen = 20
    with python(READER, store.location) as first, python(READER, store.location) as second:
        for _ in range(2):
            with python(WRITER, store.location) as writer:
                assert writer.stdout is not None
                assert int(writer.stdout.readline()) >= seen
                for reader in (first, second):
                    assert reader.stdin is not None
                    assert reader.stdout is not None
                    reader.stdin.write("look\n")
                    reader.stdin.flush()
                    sizes, _, count = reader.stdout.readline().rpartition(" ")
                    assert sizes == "[2]"
                    assert int(count) >= seen
                    seen = int(count)
                writer.kill()
        first.communicate("")
        second.communicate("")

    assert store.open("toy").count() >= seen
    store.close()
    assert sorted(path.name for path in Path(store.location).iterdir()) == ["toy"]


@pytest.mark.slow
def test_the_run_with_many_kills_finds_nothing() -> None:
    """Half a minute of readers, edits, updates and kills ends without an error or a half-written state."""
    script = ROOT / "benchmarks" / "stores" / "readers_and_writer.py"
    arguments = ["--minutes", "0.6", "--readers", "3", "--kills", "6"]
    done = subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)

    assert [report[key] for key in ("half-written", "lost", "errors", "left")] == [[], [], [], []]
    assert report["checks"] > 0
