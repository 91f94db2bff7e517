"""What a mention and a name do not share, by sort."""

from __future__ import annotations

import pytest

from pearl_qdrant import EntityLinker
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.ranking.string_features import string_features
from pearl_qdrant.resolution.pairs.name_differences import name_differences


def differences(mention: str, name: str, *, canonical: str = "", is_person: bool = False) -> dict[str, float]:
    """What is not 0."""
    found = name_differences(
        string_features(mention), string_features(name), canonical_name=canonical, is_person=is_person
    )
    return {field: value for field, value in found._asdict().items() if value}


@pytest.mark.parametrize(
    "mention, name, expected",
    [
        ("Libido (1974 film)", "Libido (1973 film)", {"bracket_number"}),
        ("Ian Clark (river)", "Ian Clark (footballer)", {"bracket_differs"}),
        ("Tom Bradley (UK politician)", "Tom Bradley (British politician)", set()),
        ("Green Line (Chicago Transit Authority)", "Green Line (CTA)", set()),
        ("Canada (conference room)", "Canada", {"bracket_added"}),
        ("Canada", "Canada (country)", {"bracket_missing"}),
        ("Military Unit 54778", "Military Unit 54777", {"number_differs", "code_differs"}),
        ("spermatogenic failure 3", "spermatogenic failure", {"small_number", "sequel"}),
        ("Harbor Fund V", "Harbor Fund IV", {"number_differs"}),
        ("Harbor Fund III", "Harbor Fund 3", set()),
        ("Schalke 04", "Schalke", {"small_number"}),
        ("LG Range - LRE30757BK", "LG LRE30757BK Electric Range", {"code_shared"}),
        ("acute myeloid leukemia", "chronic myeloid leukemia", {"opposite"}),
        ("N. Engl. J. Med.", "The New England Journal of Medicine", {"cut_words"}),
        ("Dept. of Energy", "Department of Energy", {"cut_words"}),
        ("J. Mater. Chem. D", "Journal of Materials Chemistry C", set()),
        ("hepatitis A", "hepatitis B", {"opposite"}),
        ("non-small cell carcinoma", "small cell carcinoma", {"opposite"}),
        ("nonsmall cell carcinoma", "non-small cell lung carcinoma", set()),
        ("QRD", "QQRD", {"opposite"}),
        ("QRD", "qrd", set()),
        ("QR1", "QXR1", set()),
        ("Berg kinase kinase 2", "Berg kinase 2", set()),
    ],
)
def test_a_difference_has_its_sort(mention: str, name: str, expected: set[str]) -> None:
    """Each pair differs in these ways and no others, further words aside."""
    words = {"added_apart", "added_same", "missing_same", "added_head"}
    assert set(differences(mention, name)) - words == expected


@pytest.mark.parametrize(
    "mention, name, expected",
    [
        ("B. Mathur", "Abhishek Mathur", {"first_name_differs"}),
        ("Valery Konstantinovich Ermakov", "Valery Nikolaevich Ermakov", {"first_name_differs"}),
        ("A. Mathur", "Abhishek Mathur", {"initials_fit", "cut_words"}),
        ("E. coli", "Escherichia coli", {"initials_fit", "cut_words"}),
        ("Trump, D.", "Donald Trump", {"initials_fit", "cut_words"}),
        ("JC Juncker", "Jean-Claude Juncker", {"initials_fit"}),
        ("Katherine Henson", "Katherine Heigl", {"last_name_differs"}),
        *(("Katherine Hegel", "Katherine Heigl", set()), ("Muammar al-Qadhafi", "Muammar Gaddafi", set())),
        *(("Henson", "Katherine Heigl", set()), ("Jim Barnes", "James Barnes", set())),
        *(("Jon Smith", "John Smith", {"cut_words"}), ("Freddie Prinze Jr.", "Freddie Prinze", {"generation_differs"})),
        ("George Bush Sr.", "George Bush", set()),
    ],
)
def test_first_names_contradict_or_fit(mention: str, name: str, expected: set[str]) -> None:
    """Initials, short forms, spellings and what is left out fit; another name contradicts, of persons alone."""
    words = {"added_apart", "added_same", "missing_same", "added_head"}
    assert set(differences(mention, name, is_person=True)) - words == expected
    assert {"first_name_differs", "last_name_differs"}.isdisjoint(differences(mention, name))


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


def test_a_word_more_says_what_it_mostly_makes_of_a_name() -> None:
    """`Airport` and a compass point make another thing; `FC` and words in small letters do not."""
    assert differences("Perth Airport", "Perth").keys() >= {"added_apart", "added_head"}
    assert differences("New Jersey", "Jersey")["added_apart"] == 1.0
    assert differences("Bromley FC", "Bromley").keys() == {"added_same"}
    assert "added_apart" in differences("perth airport", "perth")
    assert differences("James Bowen Railway", "James Bowen", is_person=True)["family_name_differs"] == 1.0


def test_brackets_of_the_canonical_name_count_for_other_names() -> None:
    """An alias has no brackets; what the entity is, its canonical name says. Equal and unlike names do not differ."""
    found = differences("Luis Gil (cricketer)", "Luis Gil", canonical="Luis Gil (footballer)")
    assert found == {"bracket_differs": 1.0}
    assert differences("São Tomé", "sao tome") == {}
    assert differences("violin", "Kiruna Mine") == {}
