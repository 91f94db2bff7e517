"""What ONNX Runtime writes beside our work: nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pearl_qdrant.settings import DEFAULT_MODEL

ROOT = Path(__file__).resolve().parents[2]
ENCODE = f"""
from pearl_qdrant.encoder.loading import load_encoder
load_encoder({DEFAULT_MODEL!r}, device="cpu").encode(["Paris"])
"""


def written(home: Path, script: str, **environment: str) -> list[str]:
    """The files that a script leaves in an empty home."""
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "ORT_"))}
    env = {**kept, "HOME": str(home), "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), **environment}
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=env, check=True)
    return [str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()]


def test_encoding_leaves_no_file_in_the_home(tmp_path: Path) -> None:
    """ONNX Runtime makes no id of the device and keeps no events for its maker."""
    assert written(tmp_path / "home", ENCODE) == []


@pytest.mark.parametrize("given", ["", "0"])
def test_a_user_who_sets_the_variable_has_it_as_set(tmp_path: Path, given: str) -> None:
    """Whoever wants that telemetry, or has set the variable to anything, decides."""
    script = "import os, pathlib, pearl_qdrant; name = repr(os.environ['ORT_DISABLE_TELEMETRY'])\n"
    script += "(pathlib.Path.home() / name).touch()"

    assert written(tmp_path / "home", script, ORT_DISABLE_TELEMETRY=given) == [repr(given)]
