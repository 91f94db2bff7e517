"""Loads in processes of their own that are killed, interrupted or left without a store, and then go on.

`make soak` kills a hundred loads at random: each chain is a load with up to three kills at moments drawn by `SEED` and
its number, which is resumed and compared with a load that nobody killed. The failed test of a chain shows its kills;
the scheduler has an influence on them, too.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from qdrant_double import QdrantDouble
from soak_chains import Chain, EdgePlace, Ended, Lab, Place, ServerPlace, check_fault
from soak_child import FULL_FLAG

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

N_CHAINS, SEED = int(os.environ.get("SOAK_CHAINS", "0")), os.environ.get("SOAK_SEED", "1")
N_ENTITIES = 700 if N_CHAINS else 220


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    """A folder, and the double of a server."""
    with QdrantDouble() as double:
        yield {"edge": EdgePlace(tmp_path_factory.mktemp("edge")), "server": ServerPlace(double)}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Lab:
    """A small base, and what a load of it leaves that nobody kills."""
    return Lab.make(tmp_path_factory.mktemp("lab"), model, N_ENTITIES)


@pytest.fixture
def chain(request: pytest.FixtureRequest, tmp_path: Path, lab: Lab, places: dict[str, Place]) -> Chain:
    """A load that has not started, into the store that the test names."""
    places[request.param].reset()
    return Chain(lab, places[request.param], tmp_path, random.Random(1))


on_edge = pytest.mark.parametrize("chain", ["edge"], indirect=True)
on_server = pytest.mark.parametrize("chain", ["server"], indirect=True)


@pytest.mark.slow
@on_edge
def test_a_killed_load_ends_as_one_that_was_not_killed(chain: Chain) -> None:
    """After kill -9 in two compactions, the same command leaves the same points.

    The process that writes does not outlive the load; it is killed next, which the load tells in a message.
    """
    assert chain.kill("build", "parent", nth=1)
    assert chain.kill("build", "child", nth=1)
    chain.resume()

    assert [kill.victim for kill in chain.kills] == ["parent", "child"]
    assert chain.kills[-1].resumed_at, "it did not begin anew"
    chain.check()


@pytest.mark.slow
@on_server
def test_a_killed_load_to_a_server_ends_as_one_that_was_not_killed(chain: Chain) -> None:
    """After kill -9 in the middle, and again while the server builds its graph, the same command leaves the same."""
    assert chain.kill("write", "parent", nth=5)
    assert chain.kill("build", "group", nth=1)
    chain.resume()

    assert chain.kills[-1].resumed_at, "it did not begin anew"
    chain.check()


@pytest.mark.slow
@on_edge
def test_ctrl_c_ends_a_load_cleanly(chain: Chain) -> None:
    """Ctrl-C ends a load with status 130; the message says that it can resume, and it does."""

    def interrupt() -> Ended:
        run = chain.begin("checkpoint", nth=1)
        run.signal_group(signal.SIGINT)
        return run.wait()

    # Python ends itself by the signal, which is 130 to a shell, where it came while an extension was being imported.
    check_fault(chain, interrupt, statuses=(130, -signal.SIGINT), message="interrupted; what was stored is kept")


@pytest.mark.slow
@on_server
def test_a_store_that_goes_away_is_told_of(chain: Chain) -> None:
    """If the server stays away, the error tells me to start it; when it is back, the same command resumes."""
    place = chain.place
    assert isinstance(place, ServerPlace)

    def lose_store() -> Ended:
        run = chain.begin("checkpoint", "--wait", "2", nth=2)  # not the ten minutes of a restart
        place.double.stop()
        ended = run.wait()
        place.double.start()
        return ended

    check_fault(chain, lose_store, statuses=(1,), message="Start it with: docker compose up -d")


@pytest.mark.slow
@on_edge
def test_a_full_disk_is_told_of(chain: Chain) -> None:
    """If the disk fills up, the error tells me to free some space; then the same command resumes."""
    flag = chain.folder / "disk-is-full"

    def fill_disk() -> Ended:
        run = chain.begin("checkpoint", nth=1, **{FULL_FLAG: str(flag)})
        flag.touch()
        ended = run.wait()
        flag.unlink()
        return ended

    check_fault(chain, fill_disk, statuses=(1,), message="free some space and run the same command again")


@pytest.mark.slow
@pytest.mark.parametrize("number", range(N_CHAINS), ids=lambda number: f"seed {SEED}, chain {number}")
def test_loads_that_are_killed_at_random_end_the_same(
    number: int, tmp_path: Path, lab: Lab, places: dict[str, Place]
) -> None:
    """Whenever and however often a load is killed, nothing is lost, doubled or different in the end."""
    place = places["server" if number % 2 else "edge"]
    Chain(lab, place, tmp_path, random.Random(f"{SEED}:{number}")).run()
