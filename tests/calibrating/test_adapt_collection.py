"""`calibrate --mentions`: a collection remembers what a list without labels says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runner import Run
from test_adaptation import ABSENT, NAMES, PRESENT

from pearl_qdrant import EntityLinker


@pytest.fixture
def store(tmp_path: Path, model: Path) -> str:
    """A store with 300 companies."""
    path = str(tmp_path / "store")
    EntityLinker.build(
        [{"id": name, "name": name} for name in NAMES], collection="base", store=path, model=str(model)
    ).close()
    return path


def test_the_bias_is_stored_and_used(run: Run, store: str, tmp_path: Path) -> None:
    """On top of the calibration, unless it is a dry run; a reset removes it."""
    path = tmp_path / "names.txt"
    path.write_text("\n".join([*PRESENT, *ABSENT[:50]]) + "\n", "utf-8")
    asked = ("calibrate", "--collection", "base", "--store", store, "--mentions", str(path))

    tried, shown, stored = run(*asked, "--dry-run", "--json"), run(*asked, "--dry-run"), run(*asked, "--json")

    (before,), (after,) = tried.lines(), stored.lines()
    assert (before["stored"], after["stored"]) == (False, True)
    assert before["nil_bias"] == after["nil_bias"]
    assert "adapted to 350 distinct mentions" in shown.out
    with EntityLinker.open("base", store=store) as linker:
        assert linker.calibration.nil_bias == pytest.approx(after["nil_bias"])
    assert run("calibrate", "--collection", "base", "--store", store, "--reset").status == 0
    with EntityLinker.open("base", store=store) as linker:
        assert linker.calibration.nil_bias == 0.0


def test_it_takes_no_option_of_labels(run: Run, store: str, tmp_path: Path) -> None:
    """And says so; a short list is an error."""
    path = tmp_path / "names.txt"
    path.write_text("one\ntwo\n", "utf-8")
    asked = ("calibrate", "--collection", "base", "--store", store, "--mentions", str(path))

    assert "no option of a fit to labels" in run(*asked, "--precision", "0.9").err
    assert "at least 200" in run(*asked).err
