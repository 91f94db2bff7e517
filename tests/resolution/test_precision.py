"""`precision`: what is asked for is what merges have, and what a cluster is as sure as."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from resolution_names import LetterEncoder

from pearl_qdrant.encoder.judge import NameJudge
from pearl_qdrant.errors import OptionError
from pearl_qdrant.resolution import NameRecord, Resolution, resolve
from pearl_qdrant.resolution.clusters import FORBIDDEN, Cluster, PairTable, attach
from pearl_qdrant.resolution.pairs.model import shipped_model

NAMES = [
    *("Kovra Institute of Metals", "Kowra Institut for Metal", "Bergheim Harbour Trust", "Bergheim Port Trust"),
    *("Alderson Grain Company", "Alderson Grains", "Lindqvist Mill", "Lindkvist Mills", "Northern Sea Survey"),
    *(
        "Survey of the Northern Seas",
        "Tornby Glass Works",
        "Tornby Glassworks Factory",
        "Old Elm Theatre",
        "Elm Theatre",
    ),
    *("Vallen Quorn", "Valen Quorne", "Harbour Song", "Harbor Songs", "Institute for Ore", "Ore Institute of Kovra"),
]


def resolved(precision: float) -> Resolution:
    """The names at a precision."""
    return resolve([NameRecord(name, "thing") for name in NAMES], encoder=LetterEncoder(), precision=precision)


def test_more_merges_are_made_the_lower_the_precision_is() -> None:
    """The dial moves over its range, and no name is less sure of its node than was asked for."""
    merged = []
    for precision in (0.99, 0.9, 0.7, 0.5):
        sure = [one.probability for one in resolved(precision).names if not one.founded]
        assert all(one >= precision for one in sure)
        merged.append(len(sure))
    assert merged == sorted(merged)
    assert len(set(merged)) > 2


@pytest.mark.parametrize("precision", [0.1, 0.999])
def test_a_precision_out_of_reach_is_refused(precision: float) -> None:
    """The error says what can be reached."""
    with pytest.raises(OptionError, match=r"out of reach: names alone give 0\.\d+ to 0\.99"):
        resolved(precision)


def test_a_precision_is_that_of_its_threshold() -> None:
    """A merge at the threshold of a precision shows that precision."""
    model = shipped_model()
    for precision in (0.6, 0.75, 0.95, 0.98):
        assert model.precision_at(model.threshold(precision)) == pytest.approx(precision)


def test_the_judge_reads_what_a_quick_look_leaves_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names with nothing in common, of the same words, or that exclude each other are not read; others are, once."""
    read: list[tuple[str, str]] = []
    scores = NameJudge.scores

    def recorded(self: NameJudge, pairs: Sequence[tuple[str, str]]) -> npt.NDArray[np.float64]:
        read.extend(pairs)
        return scores(self, pairs)

    monkeypatch.setattr(NameJudge, "scores", recorded)
    names = ["Harbour Song", "Song, Harbour", "Lindqvist Mill", "Lindkvist Mill", "Alder Fund 3", "Alder Fund 4"]
    resolve(names, encoder=LetterEncoder())
    assert read == [("Lindqvist Mill", "Lindkvist Mill")]


def table(*forbidden: tuple[int, int]) -> PairTable:
    """A table in which all pairs but these have 0.9."""
    return PairTable(
        *(np.empty(0, np.int64), np.empty(0), np.empty(0, np.uint8)),
        lambda pairs: ([FORBIDDEN if pair in forbidden else 0.9 for pair in pairs], [0] * len(pairs)),
    )


def test_a_cluster_is_as_sure_as_its_weakest_pair() -> None:
    """A name that joins by another one is no surer than that one is."""
    clusters = {one: Cluster([0, 1], 0, {0: 1.0, 1: 0.85}) for one in (0, 1)}
    attach(clusters, table(), 2, 1, 0.95, ())
    assert clusters[2].agreement == {0: 1.0, 1: 0.85, 2: 0.85}


def test_a_part_of_a_name_brings_no_contradiction_along() -> None:
    """Names that exclude each other get no common node by a third one."""
    clusters = {one: Cluster([0, 1], 0, {0: 1.0, 1: 0.85}) for one in (0, 1)}
    attach(clusters, table((0, 2)), 2, 1, 0.95, ())
    assert 2 not in clusters
