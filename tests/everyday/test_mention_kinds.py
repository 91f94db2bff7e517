"""Mentions made from a base: each kind is what it says, and its right answer is certain."""

from __future__ import annotations

import random

import pytest

from pearl_qdrant.linking.mention_kinds import KINDS, MadeMention, NamedEntity, make_mentions
from pearl_qdrant.linking.mention_kinds.make import NameOwners, spelling_key
from pearl_qdrant.linking.mention_kinds.rewrites import slip

ENTITIES = [
    NamedEntity("1", ("type 2 diabetes mellitus", "T2DM", "adult onset diabetes"), ("OTHER",)),
    NamedEntity("2", ("type 1 diabetes mellitus", "juvenile diabetes")),
    NamedEntity("3", ("left lung tumor", "neoplasm of the left lung")),
    NamedEntity("4", ("right lung tumor",)),
    NamedEntity("5", ("Albert Einstein", "Einstein"), ("PERSON",)),
    NamedEntity("6", ("The Coca-Cola Company", "Coca-Cola", "Coke"), ("ORG",)),
    NamedEntity("7", ("chronic anemia", "Coke")),  # shares a name with 6
    NamedEntity("8", ("New York City", "Big Apple"), ("GPE",)),
    NamedEntity("9", ("Libido (1974 film)",), ("WORK_OF_ART",)),
    NamedEntity("10", ("Marie Curie",), ("PERSON",)),
]
OWNERS = NameOwners((entity.entity_id, name) for entity in ENTITIES for name in entity.names)


@pytest.fixture(scope="module")
def made() -> dict[str, list[MadeMention]]:
    """Mentions of each kind."""
    found: dict[str, list[MadeMention]] = {kind.name: [] for kind in KINDS}
    for one in make_mentions(ENTITIES, OWNERS, per_kind=40, seed=3):
        found[one.kind].append(one)
    return found


def test_the_shares_of_the_kinds_sum_to_one() -> None:
    """They are the weights of the mixture."""
    assert sum(kind.share for kind in KINDS) == pytest.approx(1.0)


def test_every_kind_is_made(made: dict[str, list[MadeMention]]) -> None:
    """Even a base of ten entities gives mentions of each."""
    assert [kind for kind, mentions in made.items() if not mentions] == []


def test_no_mention_is_a_name_of_another_entity(made: dict[str, list[MadeMention]]) -> None:
    """So its right answer is certain; a NIL mention is a name of none that is left in the base."""
    for mention in (one for mentions in made.values() for one in mentions):
        owners = {
            entity.entity_id
            for entity in ENTITIES
            for name in entity.names
            if spelling_key(name) == spelling_key(mention.mention) and not mention.excludes(entity.entity_id, name)
        }
        assert owners <= {mention.entity_id}


def test_nil_mentions_have_no_entity(made: dict[str, list[MadeMention]]) -> None:
    """And the others have one."""
    for kind in KINDS:
        assert all((one.entity_id is None) is kind.is_nil for one in made[kind.name])


def test_an_alias_excludes_its_own_string_alone(made: dict[str, list[MadeMention]]) -> None:
    """The other names of its entity stay."""
    for one in made["alias"]:
        assert one.excludes(str(one.entity_id), one.mention)
        assert not one.excludes("other", one.mention)
        canonical = next(entity.names[0] for entity in ENTITIES if entity.entity_id == one.entity_id)
        assert not one.excludes(str(one.entity_id), canonical)


def test_a_removed_entity_is_excluded_with_all_that_share_a_name(made: dict[str, list[MadeMention]]) -> None:
    """Coca-Cola and anemia share a name here, so neither is left."""
    for one in made["nil removed"]:
        if one.mention in ("The Coca-Cola Company", "Coca-Cola"):
            assert one.excludes("6", "Coke")
            assert one.excludes("7", "chronic anemia")


def test_mentions_are_seeded() -> None:
    """The same seed gives the same mentions, another one others."""
    first, again, other = (make_mentions(ENTITIES, OWNERS, per_kind=5, seed=seed) for seed in (1, 1, 2))

    assert first == again
    assert first != other


def test_a_slip_changes_one_longer_word_and_no_number() -> None:
    """Digits and short words stay."""
    rng = random.Random(0)
    for _ in range(300):
        changed = slip("type 2 diabetes of 12 men", rng)
        assert changed is not None
        assert changed.split()[1] == "2"
        assert "12 men" in changed

    assert slip("HIV 2", rng) is None
