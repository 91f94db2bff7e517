"""A reader or a writer of an embedded collection is killed: what others see, and what is left."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from edge_cases import add, check_files, copy_files, left, python, stored_files
from store_cases import manifest_of, many

from pearl_qdrant.errors import StoreError
from pearl_qdrant.store import Store, open_store
from pearl_qdrant.store.edge import view as edge_places

SCRIPT = """
import sys
from pathlib import Path
from pearl_qdrant.store import Store, open_store
collection = open_store(Path(sys.argv[1])).open("toy", read_only=True)
print(collection.count(), flush=True)
sys.stdin.read()
"""


def kill_after(said: str, script: str, *words: str) -> None:
    """Kill a program as soon as it has said something."""
    with python(script, *words) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == f"{said}\n"
        killed.kill()


HALF = """
import sys
from pathlib import Path
from pearl_qdrant.store import Store, open_store
from store_cases import many
collection = open_store(Path(sys.argv[1])).open("toy")
collection.append_ledger([b"one"])
collection.upsert(*many(10, start=60))
with collection.editing():
    collection.upsert(*many(10, start=70))
    collection.append_ledger([b"two"])
    collection.write_manifest(collection.manifest.model_copy(update={"names": 80}))
    with collection.writer() as writer:
        writer.write(*many(10, start=80))
        writer.flush()
    print("half", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def killed_load(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which a load of 20 more names that are stored, of 70, was killed; no test changes it."""
    folder = Path(shutil.copytree(written, tmp_path_factory.mktemp("killed") / "store"))
    kill_after("half", HALF, str(folder))
    return folder


@pytest.fixture
def half(store: Store, killed_load: Path) -> Store:
    """A copy of it."""
    copy_files(killed_load, Path(store.location))
    return store


def test_a_killed_load_keeps_what_it_stored(filled: Store) -> None:
    """A load that was killed is not undone: it resumes. Until then readers see the state before it."""
    kill_after("half", HALF, filled.location)
    assert filled.open("toy", read_only=True).count() == 70
    writer = filled.open("toy")
    assert writer.count() == 90
    assert filled.open("toy", read_only=True).count() == 70
    add(writer, 90)
    assert filled.open("toy", read_only=True).count() == 100


def test_a_load_that_was_committed_is_not_resumed(filled: Store) -> None:
    """A work folder that is older than what is current, as after a crash of the machine, is not taken for newer."""
    folder = Path(filled.location) / "toy"
    writer = filled.open("toy")
    add(writer, 60)
    writer._folder._keep()
    copy_files(folder / "work", folder / "older")
    add(writer, 70)
    writer.close()
    (folder / "older").rename(folder / "work")

    assert filled.open("toy").count() == 80


def test_a_killed_load_does_not_take_the_place_of_a_version_switched_to(half: Store) -> None:
    """What `pull --replace` brings stays, though the replaced collection had a load that was killed."""
    with half.moving("toy", wait_s=60):
        with half.create(manifest_of(), version="abc", made_by="pull").writer() as writer:
            writer.write(*many(5, start=500))
        half.open("toy", version="abc").close()
        for opened in half._opened[1:]:
            opened.close()
        half.switch("toy", "abc")
    half.close()
    again = open_store(Path(half.location))
    assert again.open("toy", read_only=True).count() == 5
    writer = again.open("toy")
    assert writer.count() == 5
    add(writer, 600)
    assert again.open("toy", read_only=True).count() == 15
    again.close()


def test_what_the_engine_left_of_a_replaced_file_is_not_stored(half: Store) -> None:
    """Edge replaces a file by one in a hidden folder beside it; killed in between, it leaves that."""
    segment = next((Path(half.location) / "toy" / "work" / "shard" / "segments").iterdir())
    (segment / ".atomicwriteXYZ").mkdir()
    (segment / ".atomicwriteXYZ" / "tmpfile.tmp").write_text("{")
    half.open("toy").close()

    assert half.open("toy", read_only=True).count() == 90
    assert not [name for name in stored_files(half.location) if "atomicwrite" in name]


@pytest.mark.parametrize("name", ["manifest.json", "shard/edge_config.json"])
def test_damage_to_a_killed_load_leads_back_to_what_was_committed(half: Store, name: str) -> None:
    """The error names the folder to remove; without it, the collection is as it was before the load."""
    work = Path(half.location) / "toy" / "work"
    (work / name).write_text("{")
    with pytest.raises(StoreError, match=rf"to go back to it, remove {work}"):
        half.open("toy")
    assert half.open("toy", read_only=True).count() == 70
    shutil.rmtree(work)
    assert half.open("toy").count() == 70


COMMIT = """
import os, signal, sys
from pathlib import Path
from store_cases import many
from pearl_qdrant.store import open_store
from pearl_qdrant.store.edge import content

collection = open_store(Path(sys.argv[1])).open("toy")
collection.upsert(*many(10, start=60))
print(collection.count(), flush=True)
sys.stdin.readline()
content.write_content = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
collection.upsert(*many(10, start=70))
"""


def test_a_kill_in_a_commit_leaves_the_state_before(filled: Store) -> None:
    """Readers and writers find nothing of a change whose writer was killed in its commit, and all before it."""
    with python(COMMIT, filled.location) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "70\n"
        reader = filled.open("toy", read_only=True)
        killed.communicate("\n")
        assert killed.returncode == -signal.SIGKILL
    writer = filled.open("toy")
    assert (reader.count(), writer.count(), reader.is_outdated) == (70, 70, False)
    add(writer, 70)
    assert reader.is_outdated
    assert filled.open("toy", read_only=True).count() == 80
    filled.close()
    check_files(filled.location)


def test_the_view_of_a_killed_reader_is_removed_by_the_next(filled: Store) -> None:
    """A folder that a killed process left goes with the next opening; that of a living one stays."""
    with python(SCRIPT, filled.location) as living, python(SCRIPT, filled.location) as killed:
        assert living.stdout is not None
        assert killed.stdout is not None
        assert (living.stdout.readline(), killed.stdout.readline()) == ("60\n", "60\n")
        assert len(left(filled)) == 2
        killed.kill()
        killed.wait()
        filled.open("toy", read_only=True).close()
        assert len(left(filled)) == 1
        living.communicate("")
    assert left(filled) == []


def test_a_view_that_is_being_made_is_not_taken_for_one_that_was_left(
    filled: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another reader that opens just before a view has its lock leaves its folder alone."""
    lock = edge_places.portalocker.lock

    def late(*given: Any) -> None:
        monkeypatch.setattr(edge_places.portalocker, "lock", lock)
        edge_places._remove_stale(Path(filled.location), ".view-")
        lock(*given)

    monkeypatch.setattr(edge_places.portalocker, "lock", late)
    reader = filled.open("toy", read_only=True)
    assert (reader._folder.path / ".lock").is_file()
    reader.close()
    assert left(filled) == []
