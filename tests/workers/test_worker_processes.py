"""Worker processes that die, parents that die, Ctrl-C, errors; and workers see the state of the linker that they work
for.
"""

from __future__ import annotations

import logging
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from edge_cases import is_running
from linker_base import ENTITIES, fill
from worker_cases import assert_same, wait_for_end

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.errors import (
    CollectionNotFoundError,
    InvalidEntityError,
    ModelMismatchError,
    OptionError,
    PearlQdrantError,
    UnknownTypeError,
    WorkerError,
)
from pearl_qdrant.linking import workers as pool
from pearl_qdrant.linking.workers import Workers

ROOT = Path(__file__).resolve().parents[2]
MENTIONS = [f"New York {number}" for number in range(40)]


@pytest.mark.slow
def test_there_is_at_most_one_process_a_mention(base_store: Path) -> None:
    """For three mentions there are three processes at most, however many are requested."""
    mentions = ["NYC", "New York", "NYTimes"]
    with EntityLinker.open("base", store=str(base_store), threshold=0.0, read_only=True) as linker:
        found = list(linker.link_batch(mentions * 2, workers=10**9))
        n_started = len(linker.worker_pids())
        assert_same(found, linker.link_batch(mentions * 2, workers=1))

    assert 1 <= n_started <= 3


@pytest.fixture
def deadly(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Workers are killed as soon as they have a task; the pids of those that were."""
    killed: list[int] = []
    submit: Callable[..., object] = Workers.submit

    def submit_and_kill(self: Workers, *task: object) -> object:
        answer = submit(self, *task)
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            killed.append(pid)
        return answer

    monkeypatch.setattr(Workers, "submit", submit_and_kill)
    return killed


@pytest.mark.slow
def test_workers_that_die_twice_are_an_error(base_store: Path, deadly: list[int]) -> None:
    """Who asked for workers gets an error that says what happened, and not a hang."""
    text = r"A worker process ended.*SIGKILL.*Perhaps memory ran out.*workers=1"
    with (
        EntityLinker.open("base", store=str(base_store), read_only=True) as linker,
        pytest.raises(WorkerError, match=text),
    ):
        list(linker.link_batch(MENTIONS[:4], workers=2))
    assert len(deadly) >= 2


@pytest.mark.usefixtures("deadly")
def test_a_batch_goes_on_without_its_workers(
    base_store: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where workers started by themselves, a batch goes on in one process if they die."""
    monkeypatch.setattr(pool, "count_workers", lambda wanted=None: wanted or 2)
    monkeypatch.setattr(pool, "START_MENTIONS", 8)
    with EntityLinker.open("base", store=str(base_store), read_only=True) as linker, caplog.at_level(logging.WARNING):
        assert_same(linker.link_batch(MENTIONS), linker.link_batch(MENTIONS, workers=1))

    assert [one.message.partition(":")[0] for one in caplog.records] == ["Linking goes on in one process"]


@pytest.mark.slow
def test_an_error_of_the_setup_is_that_of_the_worker(tmp_path: Path, model: Path) -> None:
    """If a worker cannot open what the linker has open, its error is raised as it is; once that is mended, it works."""
    own_model = tmp_path / "model"
    shutil.copytree(model, own_model)
    fill(tmp_path / "store", "base", str(own_model), ENTITIES, is_loaded=True)
    with EntityLinker.open("base", store=str(tmp_path / "store"), read_only=True) as linker:
        own_model.rename(tmp_path / "elsewhere")
        with pytest.raises(PearlQdrantError, match="No model") as caught:
            next(linker.link_batch(["NYC", "New York"], workers=2))
        assert "Traceback" in str(caught.value.__cause__), "of the worker"
        (tmp_path / "elsewhere").rename(own_model)
        assert next(linker.link_batch(["NYC", "New York"], workers=2, threshold=0.0)).entity_id == "nyc"


@pytest.mark.parametrize(
    "error",
    [
        CollectionNotFoundError("a", ["b"]),
        ModelMismatchError("a", expected="b", actual="c", expected_name="d"),
        UnknownTypeError("citty", ["base"], ["city"]),
        InvalidEntityError("no name"),
        OptionError("workers", "Not so many."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_arrives_as_it_was_raised(error: Exception) -> None:
    """The class, the message and the attributes of an error of ours are the same in another process."""
    found = pickle.loads(pickle.dumps(error))

    assert type(found) is type(error)
    assert str(found) == str(error)
    assert found.__dict__ == error.__dict__


SCRIPT = """
import os, sys, time
from pearl_qdrant import EntityLinker

linker = EntityLinker.open("base", store=sys.argv[1], read_only=True, threshold=0.0)
links = linker.link_batch((f"New York {n}" for n in range(int(sys.argv[2]))), workers=2)
first = next(links)
print(*linker.worker_pids(), flush=True)
for link in links:
    pass
"""


def start(base_store: Path, n_mentions: int) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a program that links; returns it with its workers once it has the first link."""
    program = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(base_store), str(n_mentions)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    assert program.stdout is not None
    pids = [int(pid) for pid in program.stdout.readline().split()]
    assert len(pids) == 2, program.stderr and program.stderr.read()
    return program, pids


def views(base_store: Path) -> list[Path]:
    """Folders of views in a store."""
    return list(base_store.glob(".view-*"))


@pytest.fixture
def own_base(tmp_path: Path, model: Path) -> Path:
    """A store that no other linker reads."""
    fill(tmp_path / "own", "base", str(model), ENTITIES, is_loaded=True)
    return tmp_path / "own"


@pytest.mark.slow
def test_workers_go_when_their_parent_is_killed(own_base: Path) -> None:
    """A killed program leaves no process, and its workers remove their views."""
    program, pids = start(own_base, 10**9)
    assert all(map(is_running, pids))
    program.kill()
    program.communicate()

    wait_for_end(pids)
    assert len(views(own_base)) <= 1, "that of the program itself, which the next opening removes"


@pytest.mark.slow
def test_ctrl_c_ends_all_without_a_word_of_the_workers(own_base: Path) -> None:
    """Ctrl-C reaches all processes of the terminal; there is one traceback, that of the program."""
    program, pids = start(own_base, 10**9)
    os.killpg(program.pid, signal.SIGINT)
    _, errors = program.communicate()

    wait_for_end(pids)
    assert errors.count("Traceback") == 1
    assert "KeyboardInterrupt" in errors
    assert "loky" not in errors
    assert views(own_base) == []


@pytest.mark.slow
def test_a_program_that_forgets_to_close_ends_as_it_should(own_base: Path) -> None:
    """Workers end with a program that closes nothing and has no main guard."""
    program, pids = start(own_base, 30)
    _, errors = program.communicate()

    wait_for_end(pids)
    assert (program.returncode, errors) == (0, "")
    assert views(own_base) == []


FLU = Entity("flu", "influenza", ("grippe",), ("disease",), ("OTHER",))
SOME_NAMES = ["grippe", "NYC", "influenza", "New York", "heart attack", "NYTimes", "Big Apple", "nypost.com", "nys"]


def ids(linker: EntityLinker, *mentions: str, workers: int = 2) -> list[str | None]:
    """The entities of mentions."""
    return [link.entity_id for link in linker.link_batch(mentions or SOME_NAMES, workers=workers, threshold=0.6)]


def test_the_next_batch_has_every_edit(writer: EntityLinker) -> None:
    """What I add, delete, accept and learn counts for workers as it does for this process."""
    assert ids(writer, "grippe", "NYC") == [None, "nyc"]
    pids = writer._workers.pids()

    writer.add([FLU])
    assert ids(writer, "grippe", "NYC") == ["flu", "nyc"]
    writer.accept("la grippe", "flu")
    writer.learn([("NYC", "nys")] * 60)
    assert_same(writer.link_batch(["la grippe", "NYC"], workers=2), writer.link_batch(["la grippe", "NYC"], workers=1))
    assert ids(writer, "la grippe", "NYC") == ["flu", "nys"]
    assert next(writer.link_batch(["NYC"], workers=2)).learned[0].as_written == 60
    writer.delete(["flu"])
    assert ids(writer, "grippe", "NYC") == [None, "nys"]
    assert writer._workers.pids() == pids, "the same processes saw it all"


def test_a_running_batch_has_an_edit_from_its_next_window_on(
    writer: EntityLinker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was linked ahead of an edit is linked again."""
    monkeypatch.setattr(pool, "SLOW_SOURCE_S", 1e9)
    links = writer.link_batch(iter(["grippe"] * 40), workers=2, threshold=0.6)

    assert next(links).entity_id is None
    writer.add([FLU])

    assert [link.entity_id for link in links] == [None] * 3 + ["flu"] * 36


def test_a_reader_keeps_its_state_until_it_reloads(tmp_path: Path, model: Path) -> None:
    """Beside a writer, workers answer from the state that their reader opened, though they start later."""
    fill(tmp_path, "base", str(model), ENTITIES, is_loaded=True)
    with (
        EntityLinker.open("base", store=str(tmp_path), read_only=True) as reader,
        EntityLinker.open("base", store=str(tmp_path)) as writer,
    ):
        writer.add([FLU])
        assert ids(reader, "grippe", "NYC") == [None, "nyc"]
        assert reader.reload()
        assert ids(reader, "grippe", "NYC") == ["flu", "nyc"]
        pids = reader._workers.pids()
        writer.delete(["flu"])
        assert ids(reader, "grippe", "NYC") == ["flu", "nyc"], "the views of the workers are older too"
        assert reader._workers.pids() == pids


def test_what_is_not_committed_is_linked_here(writer: EntityLinker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within an edit that readers do not see yet, this process links alone."""
    (collection,) = writer.collections
    with collection.editing():
        collection.write_manifest(collection.manifest.model_copy(update={"entities": 8}))
        assert collection.state_token is None
        monkeypatch.setattr(writer._workers, "submit", None)
        assert ids(writer) == ids(writer, workers=1)
    assert collection.state_token is not None


@pytest.mark.slow
def test_several_collections_have_workers_too(tmp_path: Path, model: Path) -> None:
    """Workers open all collections of the linker."""
    fill(tmp_path, "base", str(model), ENTITIES, is_loaded=True)
    fill(tmp_path, "other", str(model), [FLU], is_loaded=True)
    with EntityLinker.open("base", "other", store=str(tmp_path), read_only=True) as linker:
        found = list(linker.link_batch(SOME_NAMES, workers=2))
        assert_same(found, linker.link_batch(SOME_NAMES, workers=1))

    assert {link.kb for link in found} >= {"base", "other"}
