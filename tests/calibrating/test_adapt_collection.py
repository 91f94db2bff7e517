"""`calibrate --mentions`: a collection remembers what a list without labels says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runner import Run
from test_adaptation import ABSENT, NAMES, PRESENT

from pearl_qdrant import EntityLinker
from pearl_qdrant.linking.calibration import choose_to_label, read_pairs


@pytest.fixture
def store(tmp_path: Path, model: Path) -> str:
    """A store with 300 companies."""
    path = str(tmp_path / "store")
    EntityLinker.build(
        [{"id": name, "name": name} for name in NAMES], collection="base", store=path, model=str(model)
    ).close()
    return path


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_mentions_that_tell_most_are_asked(run: Run, store: str, tmp_path: Path) -> None:
    """`--ask` asks for the nearly decided ones, writes each answer at once, and asks no pair twice; `q` ends it."""
    names, pairs = tmp_path / "names.txt", tmp_path / "pairs.tsv"
    names.write_text("\n".join([*PRESENT, *ABSENT]) + "\n", "utf-8")
    asked = ("calibrate", "--collection", "base", "--store", store, "--mentions", str(names), "--ask", "3")

    done = run(*asked, "--pairs", str(pairs), stdin=b"1\n0\n\n")

    first, second = (label.mention for label in read_pairs(pairs))
    assert [label.entity_id is None for label in read_pairs(pairs)] == [False, True]
    assert "3 of 3" in done.err
    assert "has 2 pairs; with 30 of them" in done.out
    again = run(*asked, "--pairs", str(pairs), stdin=b"q\n")
    assert f": {first}\n" not in again.err
    assert f": {second}\n" not in again.err
    assert len(read_pairs(pairs)) == 2
    assert "--ask needs" in run(*asked).err


@pytest.mark.slow
def test_exact_names_are_not_asked(store: str) -> None:
    """What a rule decides tells nothing, and neither does the order of the list count."""
    with EntityLinker.open("base", store=store) as linker:
        chosen = choose_to_label(linker, [*NAMES[:50], *PRESENT, *ABSENT], 10)
        turned = choose_to_label(linker, [*ABSENT, *PRESENT[::-1], *NAMES[:50]], 10)
        certain = [abs(one.candidates[0].probability - 0.5) for one in linker.link_batch([*PRESENT, *ABSENT])]

    assert len(chosen) == 10
    assert not {one.mention for one in chosen} & set(NAMES)
    assert [one.mention for one in chosen] == [one.mention for one in turned]
    assert abs(chosen[0].candidates[0].probability - 0.5) == min(certain)
