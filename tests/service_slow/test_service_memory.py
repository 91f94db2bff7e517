"""The memory of a service with the shipped model: at its start, and under large bodies."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from service_process import WAIT_S, Running, serving

pytestmark = pytest.mark.slow

START_MB, PEAK_MB = 450, 600
"""A service whose encoder and judge each open the model starts with 540, and had 960 when links waited as objects."""


def peak_mb(service: Running) -> int:
    """The most memory that the process ever had."""
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) // 1024


def test_a_service_stays_small_under_large_bodies(tmp_path: Path) -> None:
    """It starts with less than 450 MB, and four bodies of a thousand mentions with 20 candidates each add 150."""
    store = tmp_path / "store"
    demo = [sys.executable, "-m", "pearl_qdrant", "demo", "--store", str(store)]
    subprocess.run(demo, check=True, stdin=subprocess.DEVNULL, timeout=WAIT_S)
    names = ("New York Times", "heart attack", "Paper Mills", "Victoria")
    bodies = [{"mentions": [f"{name} {i}" for i in range(1000)], "limit": 20} for name in names]
    roomy = ("--set", "max_queued_mentions=4000", "--set", f"timeout_s={WAIT_S}")
    with serving(store, tmp_path, *roomy) as service, ThreadPoolExecutor(len(bodies)) as clients:
        assert service.link("NYTimes") == "the-new-york-times"
        at_start = peak_mb(service)
        answers = list(clients.map(lambda body: service.ask("POST", "/v1/link", body), bodies))
        at_most = peak_mb(service)

    assert [(status, len(answer["links"])) for status, answer in answers] == [(200, 1000)] * len(bodies)
    assert at_start < START_MB
    assert at_most < PEAK_MB
