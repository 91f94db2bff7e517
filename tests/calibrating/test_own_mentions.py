"""Mentions that calibration makes from the names of a collection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from linker_base import fill

from pearl_qdrant import Entity
from pearl_qdrant.linking.calibration import Label
from pearl_qdrant.linking.calibration import calibrate as own_mentions
from pearl_qdrant.linking.calibration.calibrate import KnownMentions, from_labels, from_names, sample_entities
from pearl_qdrant.linking.mention_kinds import KINDS
from pearl_qdrant.store import open_store
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import NamePoint

SOLE = [Entity(f"e{i}", f"thing number {i} of them", (f"object {i}",)) for i in range(60)]
ENTITIES = [
    *SOLE,
    Entity("twin1", "IL-2 gene"),
    Entity("twin2", "il2 Gene", ("another",)),
    Entity("odd", " spaced  name ", ("spaced alias",)),
]

N_NAMES = sum(1 for entity in ENTITIES for _ in entity.names())


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[Collection]:
    """A collection with sixty entities of two names, two namesakes, and one whose name cleaning changes."""
    path = tmp_path_factory.mktemp("store")
    fill(path, "base", str(model), ENTITIES, is_loaded=True)
    store = open_store(path)
    yield store.open("base")
    store.close()


@pytest.fixture(scope="module")
def made(collection: Collection) -> KnownMentions:
    """Mentions of every kind."""
    return from_names(collection, np.random.default_rng(0))


def excluded(known: KnownMentions, row: int) -> set[tuple[str, str]]:
    """Entity id and name of all points that a mention must not find."""
    points = [NamePoint("base", e.entity_id, name, e.canonical_name, False) for e in ENTITIES for name in e.names()]
    excludes = known.mentions[row].excludes
    return {(point.entity_id, point.name) for point in points if excludes is not None and excludes(point)}


def test_a_large_base_gives_a_random_sample(collection: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most so many entities; another seed takes others, and the owners are those of all names."""
    monkeypatch.setattr(own_mentions, "MAX_ENTITIES", 10)
    (first, owners), (again, _), (other, _) = (
        sample_entities(collection, np.random.default_rng(seed)) for seed in (1, 1, 2)
    )

    ids = [{entity.entity_id for entity in entities} for entities in (first, again, other)]
    assert ids[0] == ids[1] != ids[2]
    assert 9 <= len(ids[0]) <= 10
    assert len(owners) == N_NAMES


def test_the_kinds_weigh_as_their_shares(made: KnownMentions) -> None:
    """However many mentions a kind has, it counts with its share of the mixture; the mean weight is 1."""
    weights: Counter[str] = Counter()
    for kind, weight in zip(made.kinds, made.weights, strict=True):
        weights[kind] += weight
    shares = {kind.name: kind.share for kind in KINDS}

    assert {"exact", "one slip", "alias", "nil removed", "nil common word"} < set(weights)
    assert weights["alias"] / weights["exact"] == pytest.approx(shares["alias"] / shares["exact"])
    assert weights["nil removed"] / weights["exact"] == pytest.approx(shares["nil removed"] / shares["exact"])
    assert sum(weights.values()) == pytest.approx(len(made.labels))


def test_labels_without_nil_get_a_share_of_it(collection: Collection) -> None:
    """Some entities are excluded with all that share their names; a share of 0 excludes none."""
    labels = [Label(f"object {i}", f"e{i}") for i in range(50)]

    some = from_labels(collection, labels, 0.3, np.random.default_rng(0))
    none = from_labels(collection, labels, 0, np.random.default_rng(0))

    nil = [row for row, ids in enumerate(some.right_ids) if not ids]
    assert len(nil) == 15
    assert {entity_id for entity_id, _ in excluded(some, nil[0])} == {labels[nil[0]].entity_id}
    assert all(none.right_ids)
    assert set(some.kinds) == {"labelled"}
