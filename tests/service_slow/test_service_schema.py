"""Schemathesis on the OpenAPI schema: no failure of the service, and nothing that the schema does not declare."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from linker_base import ENTITIES, fill
from service_process import serving

KEY = "0123456789abcdef"

OTHERS = "^/(reconcile|v1/map)"
"""Paths with their own tests."""

# Types that no entity has and places behind the end of a text are refused, which no schema can say. Numbers as text
# ("0.5", or any number as a type in a query) are taken.
NOT_CHECKED = "positive_data_acceptance,negative_data_rejection"

EXAMPLES = 8
"""Examples of each operation in each phase."""

MAX_S = 240
"""Seconds after which fuzzing stops, on a busy machine."""


@pytest.mark.slow
def test_the_schema_is_kept(tmp_path: Path, model: Path) -> None:
    """Bodies, parameters and headers within and outside of the schema get what it declares."""
    fill(tmp_path / "store", "base", str(model), ENTITIES, is_loaded=True)
    keys = tmp_path / "keys.txt"
    keys.write_text(KEY)
    with serving(tmp_path / "store", tmp_path, "--allow-writing", "--api-keys", str(keys)) as service:
        url = f"http://127.0.0.1:{service.port}/openapi.json"
        service.wait_for("/v1/search?q=n", {"X-API-Key": KEY})  # before, it is a 503
        command = [sys.executable, "-m", "schemathesis.cli", "run", url, "--checks", "all", "--seed", "1"]
        command += ["--exclude-checks", NOT_CHECKED, "--exclude-path-regex", OTHERS]
        command += [
            "--max-examples",
            str(EXAMPLES),
            "--max-time",
            str(MAX_S),
            "--header",
            f"X-API-Key: {KEY}",
            "--no-color",
        ]
        service.ask("GET", "/openapi.json")  # made now, since the program waits ten seconds for it at most
        found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        errors = [line for line in service.lines() if line["level"] == "error"]

    assert found.returncode == 0, found.stdout[-8000:]
    assert errors == []
