"""Clusters of names from probabilities of pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pearl_qdrant.lexical.idf import IdfTable
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.resolution.clusters import FORBIDDEN, Group, PairTable, ScorePairs, cluster_names, pack_pairs
from pearl_qdrant.resolution.pairs import neighbours
from pearl_qdrant.resolution.pairs.features import FEATURES, form_of, skeleton, string_pair
from pearl_qdrant.resolution.pairs.model import PairModel, compute_terms, shipped_model


def table_of(
    known: Sequence[tuple[int, int, float]],
    score: ScorePairs = lambda pairs: ([0.0] * len(pairs), [0] * len(pairs)),
) -> PairTable:
    """A table of known pairs."""
    ordered = sorted(known)
    pairs = np.array([pair for *pair, _ in ordered], np.int64)
    probabilities = np.array([probability for *_, probability in ordered])
    return PairTable(pack_pairs(pairs), probabilities, np.zeros(len(pairs), np.uint8), score)


def alike(members: Sequence[int]) -> dict[int, float]:
    """All names of a cluster are as good to call it by."""
    return dict.fromkeys(members, 0.0)


def run(known: Sequence[tuple[int, int, float]], **options: object) -> list[list[int]]:
    """Members of the clusters at a threshold of 0.6; pairs that are not known have 0."""
    table = table_of(known)
    found = cluster_names(table, 0.6, prefer=alike, **options)  # type: ignore[arg-type]
    return sorted(cluster.members for cluster in found)


def test_pairs_do_not_chain() -> None:
    """A chain of probable pairs is no cluster: its ends do not agree."""
    assert run([(0, 1, 0.9), (1, 2, 0.8), (2, 3, 0.9)]) == [[0, 1], [2, 3]]


def test_names_that_all_agree_are_one() -> None:
    """All pairs of a cluster count."""
    assert run([(0, 1, 0.9), (1, 2, 0.8), (0, 2, 0.7)]) == [[0, 1, 2]]


def test_a_forbidden_pair_keeps_clusters_apart() -> None:
    """One forbidden pair outweighs all others."""
    assert run([(0, 1, 0.99), (1, 2, 0.99), (0, 2, FORBIDDEN)]) == [[0, 1]]


def test_missing_pairs_are_scored() -> None:
    """A pair that the search did not find is scored when it is needed."""
    asked: list[tuple[int, int]] = []

    def score(pairs: Sequence[tuple[int, int]]) -> tuple[list[float], list[int]]:
        asked.extend(pairs)
        return [0.9] * len(pairs), [0] * len(pairs)

    table = table_of([(0, 1, 0.9), (1, 2, 0.8)], score)
    found = cluster_names(table, 0.6, prefer=alike)
    assert [cluster.members for cluster in found] == [[0, 1, 2]]
    assert asked == [(0, 2)]


def test_a_person_forbids_any_pair() -> None:
    """A pair is forbidden whether it was known before or not, and known pairs keep their probabilities."""
    table = table_of([(0, 1, 0.9), (2, 5, 0.4), (1, 2, 0.8)])
    table.forbid(1, 0)
    table.forbid(5, 0)

    assert [table.get(*pair) for pair in ((0, 1), (0, 5), (2, 1), (5, 2), (3, 4))] == [-1.0, -1.0, 0.8, 0.4, None]
    assert sorted(table.items(0.5)) == [(1, 2, 0.8)]
    assert len(list(table.items(FORBIDDEN))) == 4


def test_groups_with_founders_stay_two() -> None:
    """Earlier nodes keep their founders and do not merge; a new name joins the nearer one."""
    groups = [Group([0, 1], 0), Group([2], 2)]
    found = run([(1, 2, 0.99), (0, 2, 0.99), (2, 3, 0.9), (0, 3, 0.7), (1, 3, 0.7)], groups=groups)
    assert found == [[0, 1], [2, 3]]


def test_members_agree_with_their_representative() -> None:
    """Each member has the least probability with the representative, or leaves."""
    table = table_of([(0, 1, 0.9), (0, 2, 0.9), (1, 2, 0.9), (0, 3, 0.95), (1, 3, 0.9), (2, 3, 0.1)])
    for cluster in cluster_names(table, 0.5, prefer=alike):
        assert min(cluster.agreement.values()) >= 0.5


def test_the_preferred_name_is_the_representative() -> None:
    """Of names that agree about as well the preferred one is taken, and never one below 0."""
    table = table_of([(0, 1, 0.9), (0, 2, 0.9), (1, 2, 0.88)])
    best = cluster_names(table, 0.5, prefer=lambda members: {0: 1.0, 1: 3.0, 2: 2.0})
    assert [cluster.representative for cluster in best] == [1]
    last = cluster_names(table, 0.5, prefer=lambda members: {0: -1.0, 1: -1.0, 2: 0.0})
    assert [cluster.representative for cluster in last] == [2]


def test_features_do_not_depend_on_the_order() -> None:
    """Two names give the same features either way round."""
    for a, b in (
        ("John Todd", "John Blair Smith Todd"),
        ("IL-2", "interleukin 2"),
        ("", "x"),
        ("Tshikapa", "qi ka pa"),
    ):
        one, two = form_of(a, a.lower()), form_of(b, b.lower())
        assert string_pair(one, two) == string_pair(two, one)


@pytest.mark.parametrize("a, b", [("tshikapa", "chikapa"), ("kutiyana", "cutiana"), ("bardejov", "partejoff")])
def test_transliterations_have_one_skeleton(a: str, b: str) -> None:
    """Consonants of one sound are equal."""
    assert skeleton(a) == skeleton(b)


def test_cells_find_the_neighbours_of_a_full_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many names are compared within cells, which find nearly all of the nearest names."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(60, 16))
    vectors = (np.repeat(centres, 20, axis=0) + 0.3 * rng.normal(size=(1200, 16))).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    exact = neighbours.nearest_names(vectors, 5, rng)
    monkeypatch.setattr(neighbours, "EXACT_NAMES", 100)
    monkeypatch.setattr(neighbours, "CELL_NAMES", 40)
    near = neighbours.nearest_names(vectors, 5, rng)
    shared = np.mean([len(set(a) & set(b)) / 5 for a, b in zip(exact.names.tolist(), near.names.tolist(), strict=True)])
    assert shared > 0.9
    assert all(i not in row for i, row in enumerate(near.names.tolist()))


def test_rare_ngrams_find_pairs() -> None:
    """Names with a rare word in common are proposed, whatever else they have."""
    names = ["Zyxomma petiolatum", "a dragonfly called zyxomma", "left lung", "right lung", "liver"]
    rows = neighbours.weighted_rows([fold_name(name) for name in names], IdfTable.from_names(names))
    found = list(neighbours.ngram_pairs(rows, features=30, k=3))
    assert {(0, 1), (2, 3)} <= {(min(pair), max(pair)) for block in found for pair in block.tolist()}


def test_terms_are_what_they_are_called() -> None:
    """A term is a feature, what one exceeds a number by, or a product."""
    features = np.zeros((1, len(FEATURES)), np.float32)
    features[0, FEATURES.index("dense")], features[0, FEATURES.index("edit")] = 0.75, 0.5
    terms = compute_terms(features, ["dense", "dense>0.5", "dense*edit"])
    assert terms.tolist() == [[0.75, 0.25, 0.375]]
    with pytest.raises(ValueError, match="colour"):
        compute_terms(features, ["colour"])


def test_the_shipped_model_is_of_this_version() -> None:
    """Every term of the model that ships is known, and its threshold is a probability."""
    model = shipped_model()
    assert isinstance(model, PairModel)
    assert 0.5 <= model.threshold(0.9) <= model.threshold(0.98) < model.threshold(0.999) < model.threshold(1) == 1
