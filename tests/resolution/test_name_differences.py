"""What two names do not share, by sort."""

from __future__ import annotations

from pair_table import other_outcomes

from pearl_qdrant import EntityLinker
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.ranking.string_features import string_features
from pearl_qdrant.resolution.pairs.name_differences import name_differences


def differences(one: str, two: str, *, is_person: bool = False) -> str:
    """What two names do not share, in both orders."""
    both = (string_features(one), string_features(two))
    found, back = (name_differences(*pair, is_person=is_person)._asdict() for pair in (both, both[::-1]))
    assert found == back
    return " ".join(sorted(field for field, value in found.items() if value)) or "none"


def test_a_difference_has_its_sort() -> None:
    """Each pair differs in these ways and no others."""
    assert other_outcomes(__file__, "difference", differences) == []


def test_first_names_contradict_or_fit() -> None:
    """Initials, short forms, spellings and what is left out fit; another name contradicts, of persons alone."""

    def of_persons(one: str, two: str) -> str:
        assert "first_name_differs" not in differences(one, two)
        return differences(one, two, is_person=True)

    assert other_outcomes(__file__, "first name", of_persons) == []


def test_initials_stand_for_words(shipped: Encoder) -> None:
    """The words before a name may be their initials, and the other way round."""
    names = ["Club Deportivo Lugones", "CD Aller", "Berg Football Club"]
    with EntityLinker.build([{"id": name, "name": name} for name in names], model=shipped) as linker:
        found = {
            mention: linker.link(mention).entity_id for mention in ("CD Lugones", "Club Deportivo Aller", "Berg FC")
        }

    assert found == {
        "CD Lugones": "Club Deportivo Lugones",
        "Club Deportivo Aller": "CD Aller",
        "Berg FC": "Berg Football Club",
    }
