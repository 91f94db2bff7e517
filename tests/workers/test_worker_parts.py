"""Parts of the workers: default number, packed links."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pearl_qdrant import EntityLinker, cores
from pearl_qdrant.cores import MAX_A_CORE, MAX_DEFAULT, count_workers, usable_cores
from pearl_qdrant.linking.workers import process
from pearl_qdrant.linking.workers.process import read_annotations, read_link
from pearl_qdrant.records import Annotation, Candidate, LearnedCount, Link, NilReason


@pytest.mark.parametrize(
    "quota, expected",
    [
        ("max 100000\n", 12),
        ("200000 100000\n", 2),
        ("50000 100000\n", 1),
        ("250000 100000", 3),
        ("odd", 12),
        (None, 12),
    ],
)
def test_a_container_counts_its_own_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str | None, expected: int
) -> None:
    """A container that may use two of twelve cores has two workers."""
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: set(range(12)), raising=False)
    if quota is not None:
        (tmp_path / "cpu.max").write_text(quota)

    assert count_workers(quota=tmp_path / "cpu.max") == usable_cores(tmp_path / "cpu.max") == expected


def test_a_large_machine_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default there are at most 16 workers."""
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: set(range(200)), raising=False)

    assert count_workers(quota=tmp_path / "none") == MAX_DEFAULT == 16


@pytest.mark.parametrize("wanted, expected", [(1, 1), (7, 7), (8, 8), (40, 8), (10**9, 8)])
def test_more_than_four_workers_a_core_are_never_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: int, expected: int
) -> None:
    """Whatever is requested, two cores have eight processes at most."""
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)

    assert count_workers(wanted, tmp_path / "none") == expected <= 2 * MAX_A_CORE


def test_links_are_unpacked_as_they_were(reader: EntityLinker) -> None:
    """A link is the same after the way from a worker, with all that it may have."""
    odd = Candidate(
        "id", "kb", "Name", "name", ("a",), ("b",), popularity=2.0, features={"dense": 1.0}, document={"x": 2}
    )
    learned = Link(
        "m", None, None, None, NilReason.AMBIGUOUS, (odd,), None, ("careful",), "r", (LearnedCount("e", "kb", 2),)
    )
    broken = replace(learned, canonical_name="\ud800", candidates=())
    links = [*reader.link_batch(["NYC", "nothing", "", "\ud800"], workers=1), learned, broken]
    annotations = [[Annotation("\ud800", 0, 1, learned, "long form"), Annotation("NYC", 2, 5, links[0])], []]

    assert [read_link(process._pack(replace(one, mention="")), one.mention) for one in links] == links
    assert [read_annotations(process._pack(one)) for one in annotations] == annotations
