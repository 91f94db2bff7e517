"""Loads by the workers of a real Ray cluster on this machine, in processes of their own."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
from spread_cases import assert_equal, write_base

from pearl_qdrant import load_base
from pearl_qdrant.encoder.loading import load_encoder

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")]

HANG_S = 900
KILLS = int(os.environ.get("PEARL_QDRANT_RAY_KILLS", "1"))
"""Kills of workers and of the driver, each; 10 in a thorough run by hand."""


def command(base: Path, store: Path, model: Path, *more: str) -> list[str]:
    """The command that loads a base by two workers of Ray."""
    words = [sys.executable, "-m", "pearl_qdrant", "ingest", str(base), "--collection", "parts"]
    return [*words, "--store", str(store), "--model", str(model), "--ray", "auto", "--json", *more]


def run(words: list[str]) -> dict[str, object]:
    """The counts that a command prints."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    counts: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return counts


def workers_of(pid: int) -> list[psutil.Process]:
    """Processes of the cluster that a command started which build parts."""
    found = []
    for process in psutil.process_iter():
        try:
            if "_Worker" in " ".join(process.cmdline()) and pid in {one.pid for one in process.parents()}:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base that takes a while."""
    return write_base(tmp_path_factory.mktemp("base") / "base.tsv", 1500)


@pytest.fixture(scope="module")
def store(base: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the base, loaded in one piece."""
    folder = tmp_path_factory.mktemp("store")
    load_base(base, "whole", kb="parts", store=str(folder), model=load_encoder(str(model), device="cpu"))
    return folder


def test_workers_of_ray_build_the_collection_of_one_process(base: Path, store: Path, model: Path) -> None:
    """Two workers build four parts; whatever is killed meanwhile, the same command goes on to the same collection."""
    rng = random.Random(0)
    words = command(base, store, model, "--parts", "4")
    killed_workers = killed_drivers = 0
    for _ in range(20 * KILLS):
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
            while driver.poll() is None and (killed_workers < KILLS or killed_drivers < KILLS):
                time.sleep(rng.uniform(0.2, 1.2))
                workers = workers_of(driver.pid)
                if workers and killed_workers < KILLS and rng.random() < 0.6:
                    rng.choice(workers).kill()
                    killed_workers += 1
                elif workers and killed_drivers < KILLS:
                    driver.send_signal(signal.SIGKILL)
                    killed_drivers += 1
                    break
            if driver.wait(HANG_S) == 0:
                break
    else:
        pytest.fail("it was never complete")

    assert killed_workers
    assert killed_drivers
    assert_equal(store, "whole", "parts")
    assert run(words)["is_unchanged"]
    assert not (store / ".parts-parts").exists()


def test_a_model_that_is_not_there_is_one_line(base: Path, tmp_path: Path) -> None:
    """An error of ours is shown without a trace, and the cluster ends."""
    done = subprocess.run(
        command(base, tmp_path / "store", tmp_path / "no-model"),
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )

    assert done.returncode == 1
    assert "no-model" in done.stderr
    assert "Traceback" not in done.stderr
