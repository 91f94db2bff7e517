"""Names in another script than the mention: both are compared in Latin letters."""

from __future__ import annotations

import pytest

from pearl_qdrant import EntityLinker
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.lexical.ngrams import LONGEST, fold_name, latin, with_latin

PEOPLE = ["Mikhail Gorbachev", "Boris Yeltsin", "Melina Merkouri", "Kim Dae-jung", "Akira Kurosawa", "Gorky Park"]
RUSSIAN = ["Михаил Горбачёв", "Борис Ельцин", "Парк Горького"]


@pytest.mark.parametrize(
    "name, in_latin",
    [
        *(("Горбачёв", "gorbachev"), ("北京", "beijing"), ("서울", "seoul"), ("クロサワ", "kurosawa")),
        *(("Μερκούρη", "merkoyri"), ("New York", "new york"), ("Ærø", "aero"), ("😀", ""), ("\ud800", "")),
    ],
)
def test_names_in_latin_letters(name: str, in_latin: str) -> None:
    """A name in Latin letters stays as it is; what has no letters has no form."""
    assert latin(fold_name(name)) == in_latin
    assert with_latin(fold_name(name)).split()[-1:] == in_latin.split()[-1:]
    assert all(len(latin("\u8acb" * n)) <= LONGEST for n in (10_000, 10**6)), "long names do not grow"


@pytest.mark.parametrize(
    "names, mention, right",
    [
        (PEOPLE, "Михаил Горбачёв", "Mikhail Gorbachev"),
        (PEOPLE, "Μελίνα Μερκούρη", "Melina Merkouri"),
        (RUSSIAN, "Mikhail Gorbachev", "Михаил Горбачёв"),
        (RUSSIAN, "Михаил Горбачев", "Михаил Горбачёв"),
    ],
)
def test_the_first_candidate_sounds_alike(shipped: Encoder, names: list[str], mention: str, right: str) -> None:
    """A name is found across scripts, whichever of the two is in Latin letters."""
    with EntityLinker.build([{"id": name, "name": name} for name in names], model=shipped) as linker:
        found = linker.link(mention, limit=3)

    assert found.candidates[0].entity_id == right
    assert found.candidates[0].lexical_score > 0.3
    assert (found.candidates[0].features["other_script"] == 1.0) == (mention.isascii() != right.isascii())
