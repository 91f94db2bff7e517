"""Names know their language: it is shown with each candidate, and chooses which names can be found. Names in another
script than the mention: both are compared in Latin letters.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from linker_base import fill, fill_server
from pair_table import other_outcomes
from qdrant_double import QdrantDouble

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.lexical.ngrams import LONGEST, fold_name, latin, with_latin

GENEVA = {"Geneva": "en", "Genf": "de", "Genève": "fr"}
ENTITIES = [
    Entity("geneva", "Geneva", ("Genf", "Genève", "GVA"), ("city",), ("GPE",), languages=GENEVA),
    Entity("gift-en", "gift", ("present",), ("thing",), ("OTHER",), languages={"gift": "en", "present": "en"}),
    Entity("gift-de", "Gift", ("Toxin",), ("substance",), ("OTHER",), languages={"Gift": "de-at", "Toxin": "de"}),
    Entity("nokia", "Nokia", (), ("company",), ("ORG",), languages={"Nokia": "mul"}),
]


@pytest.fixture(scope="module", params=["embedded", "server"])
def linker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, model: Path
) -> Iterator[EntityLinker]:
    """A linker over names of several languages, in each kind of store."""
    if request.param == "server":
        with QdrantDouble() as double:
            fill_server(double.url, "base", str(model), ENTITIES)
            with EntityLinker.open("base", store=double.url, threshold=0.0) as opened:
                yield opened
        return
    path = tmp_path_factory.mktemp("languages")
    fill(path, "base", str(model), ENTITIES)
    with EntityLinker.open("base", store=str(path), threshold=0.0) as opened:
        yield opened


def names(linker: EntityLinker, mention: str, *languages: str) -> dict[str, str | None]:
    """The names that were found, with their languages."""
    link = linker.link(mention, languages=languages, limit=10)
    return {candidate.name: candidate.language for candidate in link.candidates}


def test_a_candidate_shows_the_language_of_the_name_that_was_found(linker: EntityLinker) -> None:
    """None where the base states none."""
    best = [next(iter(names(linker, mention).items())) for mention in ("Genf", "Genève", "GVA", "Nokia")]

    assert best == [("Genf", "de"), ("Genève", "fr"), ("GVA", None), ("Nokia", "mul")]
    assert linker.entity("geneva").languages == ENTITIES[0].languages


def test_only_names_in_the_wanted_languages_are_found(linker: EntityLinker) -> None:
    """And names without a language, or of several; a language includes its forms in countries."""
    assert linker.link("Gift", languages="en").entity_id == "gift-en"
    assert linker.link("gift", languages=("DE",)).entity_id == "gift-de"
    assert linker.link("Genève", languages=("de", "fr")).candidates[0].name == "Genève"
    for mention in ("Geneva", "Genf", "gift", "Gifd", "GVA", "Nokia", "\U0001f984"):
        found = names(linker, mention, "de")
        assert set(found.values()) <= {"de", "de-at", "mul", None}
        assert mention not in ("GVA", "Nokia") or mention in found
    assert set(names(linker, "Nokia", "fi").values()) == {"mul", None}


def test_languages_and_types_filter_together(linker: EntityLinker) -> None:
    """A name must pass both; a batch passes as its mentions do."""
    links = list(linker.link_batch(["Gift", "Genf"], languages=["de"], types=["GPE"], limit=10))

    assert [{candidate.name for candidate in link.candidates} for link in links] == [{"Genf"}, {"Genf"}]
    again = [linker.link(link.mention, languages="de", types="GPE", limit=10) for link in links]
    assert [link.entity_id for link in again] == [link.entity_id for link in links]


def test_an_added_name_is_found_by_its_language(tmp_path: Path, model: Path) -> None:
    """A language that comes later is known at once, and goes with its entity."""
    fill(tmp_path, "base", str(model), ENTITIES)
    with EntityLinker.open("base", store=str(tmp_path), threshold=0.0) as linker:
        assert linker.link("Ginevra", languages="it", limit=10).candidates[0].name != "Ginevra"
        linker.add([Entity("geneva", "Geneva", ("Ginevra",), languages={"Ginevra": "it-ch"})])

        assert names(linker, "Ginevra", "it")["Ginevra"] == "it-ch"
        assert linker.entity("geneva").languages == {"Ginevra": "it-ch"}


def test_names_in_latin_letters() -> None:
    """A name in Latin letters stays as it is; what has no letters has no form."""

    def outcome(name: str) -> str:
        assert with_latin(fold_name(name)).split()[-1:] == latin(fold_name(name)).split()[-1:]
        return latin(fold_name(name))

    assert other_outcomes(__file__, "latin", outcome) == []
    assert outcome("\U0001f600") == outcome("\ud800") == ""
    assert all(len(latin("\u8acb" * n)) <= LONGEST for n in (10_000, 10**6)), "long names do not grow"


@pytest.mark.parametrize(
    "right",
    [
        {"Михаил Горбачёв": "Mikhail Gorbachev", "Μελίνα Μερκούρη": "Melina Merkouri"},
        {"Mikhail Gorbachev": "Михаил Горбачёв", "Михаил Горбачев": "Михаил Горбачёв"},
    ],
)
def test_the_first_candidate_sounds_alike(shipped: Encoder, right: dict[str, str]) -> None:
    """A name is found across scripts, whichever of the two is in Latin letters."""
    names = [*right.values(), "Борис Ельцин", "Парк Горького", "Kim Dae-jung", "Akira Kurosawa", "Gorky Park"]
    with EntityLinker.build([{"id": name, "name": name} for name in names], model=shipped) as linker:
        for mention, name in right.items():
            found = linker.link(mention, limit=3).candidates[0]
            assert found.entity_id == name
            assert found.lexical_score > 0.3
            assert (found.features["other_script_dense"] != 0.0) == (mention.isascii() != name.isascii())
