"""A short name of an entity stands for its canonical name, and for no other thing that has its letters."""

from __future__ import annotations

import pytest
from linker_base import linker_over

from pearl_qdrant import Entity, EntityLinker

NAMES = {
    "multiple sclerosis": ("MS", "disseminated sclerosis"),
    "rheumatoid arthritis": ("RA",),
    "chronic kidney disease": ("CKD",),
    "asthma": (),
    "Canada": ("CA", "CAN"),
    "Israel": ("IL", "ISR"),
    "Seychelles": ("SC",),
    "Germany": ("DE", "DEU"),
    "Hewlett-Packard": ("HP",),
    "Procter & Gamble": ("P&G",),
    "World Wildlife Fund": ("WWF",),
    "United Nations": ("UN", "ONU"),
    "aspirin": ("ASA", "acetylsalicylic acid"),
    "Eastern Snow Removal Office": ("ESRO",),
    "United States Steel": ("U.S. Steel",),
    "Escherichia coli": ("E. coli",),
    "John Smith": ("J. Smith",),
    "William Taylor": ("W. Taylor",),
}
ENTITIES = [Entity(name, name, aliases) for name, aliases in NAMES.items()]

linker = linker_over(ENTITIES)


@pytest.mark.parametrize(
    "mention, short",
    [
        *(("mass spectrometry", "MS"), ("right atrium", "RA"), ("cold kitchen drawer", "CKD")),
        *(("California", "CA"), ("Illinois", "IL"), ("South Carolina", "SC"), ("Department of Education", "DE")),
        *(("Horse Power", "HP"), ("Pacific Gas", "P&G"), ("World Wrestling Federation", "WWF")),
        *(("American Society of Anesthesiologists", "ASA"), ("European Space Research Organisation", "ESRO")),
        *(("James Smith", "J. Smith"), ("Walter Taylor", "W. Taylor")),
    ],
)
def test_initials_and_codes_are_of_one_thing(linker: EntityLinker, mention: str, short: str) -> None:
    """What the canonical name says otherwise is another thing, whatever the letters of its short name."""
    found = linker.link(mention)

    assert found.entity_id is None
    assert short not in [one.name for one in found.candidates]


def test_a_short_name_is_found_where_it_is_meant(linker: EntityLinker) -> None:
    """As it stands, within a mention, of a slip or nickname, and by initials that the canonical name does not have."""
    asked = {
        "MS": "multiple sclerosis",
        "J Smith": "John Smith",
        "Jon Smith": "John Smith",
        "CKD": "chronic kidney disease",
        "Hewlett Packard": "Hewlett-Packard",
        "US Steel Corp": "United States Steel",
        "Esch. coli": "Escherichia coli",
    }
    links = linker.link_batch(asked)

    assert [link.entity_id for link in links] == list(asked.values())
    found = linker.link("Organización de las Naciones Unidas")
    assert found.candidates[0].entity_id == "United Nations"
