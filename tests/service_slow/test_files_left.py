"""Files that a demo, a service and a training leave: in their folders, and nowhere else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from service_process import WAIT_S, serving

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


def test_nothing_is_left_outside_the_folders_that_the_docs_name(
    tmp_path: Path, bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`docs/configuration.md` says where everything lies."""
    home, temp, work = (tmp_path / name for name in ("home", "temp", "work"))
    work.mkdir()
    for name, folder in {"HOME": home, "TMPDIR": temp}.items():
        folder.mkdir()
        monkeypatch.setenv(name, str(folder))
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "PEARL_QDRANT_STORE", "QDRANT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run(*command: str) -> None:
        subprocess.run([sys.executable, "-m", "pearl_qdrant", *command], cwd=work, check=True, timeout=WAIT_S)

    store, cache = home / ".local/share/pearl-qdrant", home / ".cache/pearl-qdrant"
    run("demo")
    with serving(store, work, cache=cache.parent) as service:
        assert service.link("Paris") is not None
    fitted = ["--out", str(work / "fitted"), "--steps", "1", "--set", "batch_size=8"]
    run("train", "fit", "--base-model", str(bert), "--aliases", str(ROOT / "examples/sample_base.tsv"), *fitted)

    files = [path for folder in (home, temp, work) for path in folder.rglob("*") if path.is_file()]
    allowed = (store, cache, work / "fitted")
    left = [str(path.relative_to(tmp_path)) for path in files if not any(path.is_relative_to(one) for one in allowed)]
    assert left == ["work/service.log"]
    assert any(path.is_relative_to(store) for path in files)
