"""Schemathesis on the OpenAPI schema: no failure of the service, and nothing that the schema does not declare."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from linker_base import ENTITIES, fill
from service_process import KEY, serving

CONFIGURATION = """
[parameters]
collection = "base"

[checks]
positive_data_acceptance.enabled = false # no schema can say which types entities have, and where a text ends

[[operations]]
include-name = "GET /v1/search"
checks.negative_data_rejection.enabled = false # a number as a type is the same query as its text

[[operations]]
include-method = "POST"
include-path-regex = "^/reconcile"
checks.negative_data_rejection.enabled = false # an error of one query of a batch is its answer, with status 200
"""

EXAMPLES = 8
"""Examples of each operation in each phase."""

MAX_S = 45
"""Seconds after which fuzzing stops, on a busy machine."""


@pytest.mark.slow
def test_the_schema_is_kept(tmp_path: Path, model: Path) -> None:
    """Bodies, parameters and headers within and outside of the schema get what it declares."""
    fill(tmp_path / "store", "base", str(model), ENTITIES, is_loaded=True)
    with serving(tmp_path / "store", tmp_path, "--allow-writing") as service:
        url = f"http://127.0.0.1:{service.port}/openapi.json"
        for made in ("/v1/search?q=n", "/v1/map", "/v1/map?size=2000"):  # before, they are a 503
            service.wait_for(made)
        command = [sys.executable, "-m", "schemathesis.cli", "run", url, "--seed", "1"]
        (tmp_path / "schemathesis.toml").write_text(CONFIGURATION)
        command += ["--max-examples", str(EXAMPLES), "--max-time", str(MAX_S)]
        command += ["--header", f"X-API-Key: {KEY}", "--no-color"]
        service.ask("GET", "/openapi.json")  # made now, since the program waits ten seconds for it at most
        found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        errors = [line for line in service.lines() if line["level"] == "error"]

    assert found.returncode == 0, found.stdout[-8000:]
    assert errors == []
