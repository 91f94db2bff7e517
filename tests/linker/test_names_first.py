"""A mention that is a name is linked without its vector; the decision is the one that all candidates lead to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pearl_qdrant import EntityLinker, load_base
from pearl_qdrant.linking.mention_kinds import NamedEntity, NameOwners, make_mentions

SAMPLE = Path(__file__).parents[2] / "examples" / "sample_base.tsv"


@pytest.fixture(scope="module")
def linker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EntityLinker]:
    """A linker over the sample base with the shipped model."""
    store = str(tmp_path_factory.mktemp("store"))
    load_base(SAMPLE, "sample", store=store)
    with EntityLinker.open("sample", store=store) as opened:
        yield opened


def made_mentions() -> list[str]:
    """Mentions of every kind, and all names that several entities have."""
    rows = [line.split("\t") for line in SAMPLE.read_text("utf-8").splitlines()[1:]]
    entities = [
        NamedEntity(row[0], tuple(dict.fromkeys((row[1], *row[3].split("|")))), tuple(row[2].split("|")))
        for row in rows
    ]
    owners = NameOwners((one.entity_id, name) for one in entities for name in one.names)
    shared = [name for one in entities for name in one.names if len(owners.of_name(name)) > 1]
    return [
        *(one.mention for one in make_mentions(entities, owners, per_kind=30)),
        *shared,
        "n/a",
        "NA",
        "42",
        "",
        "🎈",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("types", [(), ("GPE",)])
@pytest.mark.parametrize("on_tie", ["canonical", "null", "first"])
def test_the_decision_is_the_same(linker: EntityLinker, types: tuple[str, ...], on_tie: str) -> None:
    """Of every kind of mention: entity, probability, reason and rule."""
    mentions = made_mentions()
    quick = list(linker.link_batch(mentions, types=types, on_tie=on_tie))
    whole = list(linker.link_batch(mentions, types=types, on_tie=on_tie, limit=10))

    assert sum(one.rule is not None for one in quick) > 100
    for one, other in zip(quick, whole, strict=True):
        assert one.probability == pytest.approx(other.probability, abs=1e-6)
        named = [candidate.entity_id for candidate in one.candidates]
        assert named == [candidate.entity_id for candidate in other.candidates][: len(named)]
        same = {"probability": one.probability, "candidates": one.candidates}
        assert replace(other, **same) == one
