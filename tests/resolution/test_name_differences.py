"""What two names do not share, by sort."""

from __future__ import annotations

import pytest

from pearl_qdrant import EntityLinker
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.ranking.string_features import string_features
from pearl_qdrant.resolution.pairs.name_differences import name_differences


def differences(one: str, two: str, *, is_person: bool = False) -> set[str]:
    """What two names do not share, in both orders."""
    both = (string_features(one), string_features(two))
    found, back = (name_differences(*pair, is_person=is_person)._asdict() for pair in (both, both[::-1]))
    assert found == back
    return {field for field, value in found.items() if value}


@pytest.mark.parametrize(
    "one, two, expected",
    [
        ("Libido (1974 film)", "Libido (1973 film)", {"bracket_number"}),
        ("Ian Clark (river)", "Ian Clark (footballer)", {"bracket_differs"}),
        ("Tom Bradley (UK politician)", "Tom Bradley (British politician)", set()),
        ("Green Line (Chicago Transit Authority)", "Green Line (CTA)", set()),
        ("Canada (conference room)", "Canada", {"bracket_added"}),
        ("Military Unit 54778", "Military Unit 54777", {"number_differs", "code_differs"}),
        ("spermatogenic failure 3", "spermatogenic failure", set()),
        ("Harbor Fund V", "Harbor Fund IV", {"number_differs"}),
        ("Harbor Fund III", "Harbor Fund 3", set()),
        ("LG Range - LRE30757BK", "LG LRE30757BK Electric Range", set()),
        ("acute myeloid leukemia", "chronic myeloid leukemia", {"opposite"}),
        ("N. Engl. J. Med.", "The New England Journal of Medicine", set()),
        ("J. Mater. Chem. D", "Journal of Materials Chemistry C", set()),
        ("hepatitis A", "hepatitis B", {"opposite"}),
        ("non-small cell carcinoma", "small cell carcinoma", {"opposite"}),
        ("nonsmall cell carcinoma", "non-small cell lung carcinoma", set()),
        ("QRD", "QQRD", {"opposite"}),
        ("QRD", "qrd", set()),
        ("QR1", "QXR1", set()),
        ("Berg kinase kinase 2", "Berg kinase 2", set()),
        ("São Tomé", "sao tome", set()),
        ("violin", "Kiruna Mine", set()),
    ],
)
def test_a_difference_has_its_sort(one: str, two: str, expected: set[str]) -> None:
    """Each pair differs in these ways and no others."""
    assert differences(one, two) == expected


@pytest.mark.parametrize(
    "one, two, expected",
    [
        ("B. Mathur", "Abhishek Mathur", {"first_name_differs"}),
        ("Valery Konstantinovich Ermakov", "Valery Nikolaevich Ermakov", {"first_name_differs"}),
        ("A. Mathur", "Abhishek Mathur", set()),
        ("E. coli", "Escherichia coli", set()),
        ("Trump, D.", "Donald Trump", set()),
        ("JC Juncker", "Jean-Claude Juncker", set()),
        *(("Katherine Hegel", "Katherine Heigl", set()), ("Jim Barnes", "James Barnes", set())),
        ("Jon Smith", "John Smith", set()),
        ("Freddie Prinze Jr.", "Freddie Prinze", {"generation_differs"}),
        ("George Bush Sr.", "George Bush", set()),
        ("Emil Berg Jr.", "Emil Berg Sr.", {"generation_differs"}),
        ("Emil Berg the Elder", "Emil Berg the Younger", {"generation_differs"}),
        ("Emil the Elder", "Emil the Younger", {"generation_differs"}),
        ("Emil Berg père", "Emil Berg fils", {"generation_differs"}),
        ("Emil Berg II", "Emil Berg III", {"number_differs"}),
        ("Berg Jr., Emil", "Emil Berg Junior", set()),
        ("Emil Berg Senior", "Emil Berg Sr.", set()),
    ],
)
def test_first_names_contradict_or_fit(one: str, two: str, expected: set[str]) -> None:
    """Initials, short forms, spellings and what is left out fit; another name contradicts, of persons alone."""
    assert differences(one, two, is_person=True) == expected
    assert "first_name_differs" not in differences(one, two)


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
