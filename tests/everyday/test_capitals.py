"""Names in capitals alone, as many lists have them, are read as others write them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pearl_qdrant import Entity, EntityLinker, read_entities
from pearl_qdrant.encoder.protocol import Encoder, predict_types
from pearl_qdrant.lexical.words import usual_case

SAMPLE = Path(__file__).parents[2] / "examples" / "sample_base.tsv"
EVERY = 6  # which entities of the sample base are taken


@pytest.mark.parametrize(
    "capitals, usual",
    [
        ("KNEE JOINT", "knee joint"),
        ("TYPE 2 DIABETES", "type 2 diabetes"),
        ("BANK OF AMERICA", "Bank of America"),
        ("JOHN SMITH", "John Smith"),
        ("O'NEILL, SHANE", "O'Neill, Shane"),
        ("DEUTSCHE BANK AG", "Deutsche Bank AG"),
        ("ANEMIA", "anemia"),
        ("LONDON", "London"),
        ("МОСКВА ПЕТЕРБУРГ", "Москва Петербург"),
        ("IBM CORP", "IBM CORP"),
        ("XYLTEQ", "XYLTEQ"),
        ("USA", "USA"),
        ("NVIDIA Corp", "NVIDIA Corp"),
        ("knee joint", "knee joint"),
        ("北京大学", "北京大学"),
        ("WONDER EGG 特別編", "WONDER EGG 特別編"),
        ("12345 678", "12345 678"),
        ("Ⓐ", "Ⓐ"),
        ("Ⅷ", "Ⅷ"),
        ("", ""),
    ],
)
def test_capitals_alone_are_written_as_usual(capitals: str, usual: str) -> None:
    """Words of texts become small, names capitalised; what may be an abbreviation and other texts stay."""
    assert usual_case(capitals) == usual


def test_capitals_change_no_type(shipped: Encoder) -> None:
    """The type head says of nearly every name in capitals what it says of the name."""
    names = [one.canonical_name for one in read_entities(SAMPLE)][::EVERY]
    types, in_capitals = (_types(some, shipped) for some in (names, list(map(str.upper, names))))
    same = sum(one == other for one, other in zip(types, in_capitals, strict=True))
    assert same > 0.85 * len(names)


def _types(names: list[str], encoder: Encoder) -> list[str]:
    probabilities = encoder.encode(names).type_probabilities
    assert probabilities is not None
    return predict_types(probabilities).predicted_types


def test_capitals_change_few_answers(shipped: Encoder) -> None:
    """Other names of an entity are linked to it in capitals, too, whichever side has them."""
    entities = [one for one in read_entities(SAMPLE) if one.aliases][::EVERY]
    mentions = [one.aliases[-1] for one in entities]
    base = [replace(one, aliases=one.aliases[:-1], languages={}) for one in entities]
    in_capitals = [
        replace(one, canonical_name=one.canonical_name.upper(), aliases=tuple(map(str.upper, one.aliases)))
        for one in base
    ]
    before = _linked(base, mentions, shipped)
    for after in (
        _linked(base, [mention.upper() for mention in mentions], shipped),
        _linked(in_capitals, mentions, shipped),
    ):
        assert len(before - after) < 0.1 * len(before)


def _linked(base: list[Entity], mentions: list[str], encoder: Encoder) -> set[str]:
    """Entities of which the mention is linked to them; each has one."""
    with EntityLinker.build(base, model=encoder) as linker:
        links = linker.link_batch(mentions)
        return {one.entity_id for one, link in zip(base, links, strict=True) if link.entity_id == one.entity_id}
