"""The mentions of a list whose answers would tell a calibration most."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from cli_runner import Run

from pearl_qdrant import EntityLinker
from pearl_qdrant.linking.calibration import choose_to_label, read_pairs

STEMS = "Avar Belt Cado Dorn Elva Fint Gora Hast Iver Jund Kelp Lorm Mand Nars Orve Pelt Quil Rast Solv Tarn".split()
KINDS = ["Holding", "Trading House", "Shipping Lines", "Motor Works", "Paper Mills"]
NAMES = [f"{stem}{end} {kind}" for stem, end, kind in product(STEMS, ("ia", "ex", "mark"), KINDS)]
PRESENT = [f"{name.partition(' ')[0]} {name.partition(' ')[2].split()[0]} AG" for name in NAMES]
ABSENT = [f"{end}{stem.lower()} {kind} of {stem}" for stem, end, kind in product(STEMS, ("Zy", "Wu", "Ye"), KINDS)]


@pytest.fixture
def own_store(tmp_path: Path, model: Path) -> str:
    """The same encoded by a tiny model, which a test may change."""
    path, rows = str(tmp_path / "store"), [{"id": name, "name": name} for name in NAMES]
    EntityLinker.build(rows, collection="base", store=path, model=str(model)).close()
    return path


@pytest.mark.slow
def test_the_mentions_that_tell_most_are_asked(run: Run, own_store: str, tmp_path: Path) -> None:
    """`--ask` asks for the nearly decided ones, writes each answer at once, and asks no pair twice; `q` ends it."""
    names, pairs = tmp_path / "names.txt", tmp_path / "pairs.tsv"
    names.write_text("\n".join([*PRESENT, *ABSENT]) + "\n", "utf-8")
    asked = ("calibrate", "--collection", "base", "--store", own_store, "--ask", str(names))

    done = run(*asked, "--labelled", str(pairs), "--set", "questions=3", stdin=b"1\n0\n\n")

    first, second = (label.mention for label in read_pairs(pairs))
    assert [label.entity_id is None for label in read_pairs(pairs)] == [False, True]
    assert "3 of 3" in done.err
    assert "has 2 pairs; with 30 of them" in done.out
    again = run(*asked, "--labelled", str(pairs), "--set", "questions=3", stdin=b"q\n")
    assert f": {first}\n" not in again.err
    assert f": {second}\n" not in again.err
    assert len(read_pairs(pairs)) == 2
    assert "--ask needs" in run(*asked).err


@pytest.mark.slow
def test_exact_names_are_not_asked(own_store: str) -> None:
    """What a rule decides tells nothing, and neither does the order of the list count."""
    with EntityLinker.open("base", store=own_store) as linker:
        chosen = choose_to_label(linker, [*NAMES[:50], *PRESENT, *ABSENT], 10)
        turned = choose_to_label(linker, [*ABSENT, *PRESENT[::-1], *NAMES[:50]], 10)
        certain = [abs(one.candidates[0].probability - 0.5) for one in linker.link_batch([*PRESENT, *ABSENT])]

    assert len(chosen) == 10
    assert not {one.mention for one in chosen} & set(NAMES)
    assert [one.mention for one in chosen] == [one.mention for one in turned]
    assert abs(chosen[0].candidates[0].probability - 0.5) == min(certain)
