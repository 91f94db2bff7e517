"""Schemathesis on the OpenAPI schema: no failure of the service, and nothing that the schema does not declare."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from linker_base import ENTITIES, fill
from service_process import serving

EXAMPLES = 25
"""Examples of each operation in each phase."""


@pytest.mark.slow
def test_the_schema_is_kept(tmp_path: Path, model: Path) -> None:
    """Bodies, parameters and headers within and outside of the schema get what it declares."""
    fill(tmp_path / "store", "base", str(model), ENTITIES, is_loaded=True)
    keys = tmp_path / "keys.txt"
    keys.write_text("0123456789abcdef")
    with serving(tmp_path / "store", tmp_path, "--allow-writing", "--api-keys", str(keys)) as service:
        url = f"http://127.0.0.1:{service.port}/openapi.json"
        command = [sys.executable, "-m", "schemathesis.cli", "run", url, "--checks", "all", "--seed", "1"]
        command += ["--max-examples", str(EXAMPLES), "--header", "X-API-Key: 0123456789abcdef", "--no-color"]
        service.ask("GET", "/openapi.json")  # made now, since the program waits ten seconds for it at most
        found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        errors = [line for line in service.lines() if line["level"] == "error"]

    assert found.returncode == 0, found.stdout[-8000:]
    assert errors == []
