"""A list of mentions says how much of it is in the base, without labels; `calibrate --mentions` stores that."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from cli_runner import Run

from pearl_qdrant import EntityLinker
from pearl_qdrant.errors import CalibrationError
from pearl_qdrant.linking.adaptation import HIGHEST, LOWEST, Adaptation
from pearl_qdrant.linking.calibration import choose_to_label, read_pairs

STEMS = "Avar Belt Cado Dorn Elva Fint Gora Hast Iver Jund Kelp Lorm Mand Nars Orve Pelt Quil Rast Solv Tarn".split()
KINDS = ["Holding", "Trading House", "Shipping Lines", "Motor Works", "Paper Mills"]
NAMES = [f"{stem}{end} {kind}" for stem, end, kind in product(STEMS, ("ia", "ex", "mark"), KINDS)]
PRESENT = [f"{name.partition(' ')[0]} {name.partition(' ')[2].split()[0]} AG" for name in NAMES]
ABSENT = [f"{end}{stem.lower()} {kind} of {stem}" for stem, end, kind in product(STEMS, ("Zy", "Wu", "Ye"), KINDS)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with 300 companies, encoded by the shipped model."""
    path = str(tmp_path_factory.mktemp("store"))
    EntityLinker.build([{"id": name, "name": name} for name in NAMES], collection="base", store=path).close()
    return path


@pytest.fixture(scope="module")
def linker(store: str) -> Iterator[EntityLinker]:
    """A linker over it."""
    with EntityLinker.open("base", store=store) as opened:
        yield opened


@pytest.fixture(scope="module")
def present(linker: EntityLinker) -> Adaptation:
    """What a list of names in another form says of itself."""
    return linker.adapt(PRESENT)


@pytest.fixture(scope="module")
def links(linker: EntityLinker, present: Adaptation) -> list[str | None]:
    """The entities of that list by it."""
    return [link.entity_id for link in linker.link_batch(PRESENT, nil_bias=present.nil_bias)]


@pytest.mark.slow
def test_a_list_that_is_in_the_base_is_not_decided_more_strictly(
    linker: EntityLinker, present: Adaptation, links: list[str | None]
) -> None:
    """A list of names in another form, and one of other names: the bias says which is which, within its bounds."""
    absent = linker.adapt(ABSENT)

    assert LOWEST <= present.nil_bias <= absent.nil_bias <= HIGHEST
    assert present.nil_share < absent.nil_share
    assert present.linked > absent.linked
    assert sum(one is not None for one in links) / len(links) == pytest.approx(present.linked, abs=0.02)
    plain, looser = ([link.entity_id for link in linker.link_batch(ABSENT, nil_bias=bias)] for bias in (0.0, -2.0))
    assert sum(one is not None for one in looser) > sum(one is not None for one in plain)


@pytest.mark.slow
def test_the_order_of_a_list_does_not_matter_and_a_short_one_says_nothing(linker: EntityLinker) -> None:
    """Nor does how often a mention is there. A short list is refused; names of the base alone need nothing."""
    mixed = [*PRESENT[::2], *ABSENT[::2]]
    other = [*mixed, *mixed[:70], "", "  "]
    random.Random(1).shuffle(other)

    assert linker.adapt(mixed) == linker.adapt(other)
    with pytest.raises(CalibrationError, match=r"199 different mentions.*at least 200"):
        linker.adapt(PRESENT[:199])
    with pytest.raises(TypeError, match="one string"):
        linker.adapt("Avaria Holding")
    assert linker.adapt(NAMES).nil_bias == 0.0


@pytest.fixture
def own_store(tmp_path: Path, model: Path) -> str:
    """The same encoded by a tiny model, which a test may change."""
    path, rows = str(tmp_path / "store"), [{"id": name, "name": name} for name in NAMES]
    EntityLinker.build(rows, collection="base", store=path, model=str(model)).close()
    return path


@pytest.mark.slow
def test_the_bias_is_stored_and_used(run: Run, own_store: str, tmp_path: Path) -> None:
    """On top of the calibration, unless it is a dry run; a reset removes it."""
    path = tmp_path / "names.txt"
    path.write_text("\n".join([*PRESENT, *ABSENT[:50]]) + "\n", "utf-8")
    asked = ("calibrate", "--collection", "base", "--store", own_store, "--mentions", str(path))

    tried, shown = run(*asked, "--dry-run", "--json"), run(*asked)

    (found,) = tried.lines()
    assert not found["stored"]
    assert "adapted to 350 distinct mentions" in shown.out
    with EntityLinker.open("base", store=own_store) as linker:
        assert linker.calibration.nil_bias == pytest.approx(found["nil_bias"])
    assert run("calibrate", "--collection", "base", "--store", own_store, "--reset").status == 0
    with EntityLinker.open("base", store=own_store) as linker:
        assert linker.calibration.nil_bias == 0.0


def test_it_takes_no_option_of_labels(run: Run, own_store: str, tmp_path: Path) -> None:
    """And says so; a short list is an error."""
    path = tmp_path / "names.txt"
    path.write_text("one\ntwo\n", "utf-8")
    asked = ("calibrate", "--collection", "base", "--store", own_store, "--mentions", str(path))

    assert "no option of a fit to labels" in run(*asked, "--precision", "0.9").err
    assert "at least 200" in run(*asked).err


@pytest.mark.slow
def test_the_mentions_that_tell_most_are_asked(run: Run, own_store: str, tmp_path: Path) -> None:
    """`--ask` asks for the nearly decided ones, writes each answer at once, and asks no pair twice; `q` ends it."""
    names, pairs = tmp_path / "names.txt", tmp_path / "pairs.tsv"
    names.write_text("\n".join([*PRESENT, *ABSENT]) + "\n", "utf-8")
    asked = ("calibrate", "--collection", "base", "--store", own_store, "--mentions", str(names), "--ask", "3")

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
