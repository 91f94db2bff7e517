"""The sample base in examples/: what the demo and the README promise about it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ingest.formats import open_reader
from ingest.io.report import ReadReport
from pearl_qdrant.records import Entity

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PATH = EXAMPLES / "sample_base.tsv"


@pytest.fixture(scope="module")
def report() -> ReadReport:
    """The report of the TSV reader, complete after `entities`."""
    return ReadReport(max_errors=0)


@pytest.fixture(scope="module")
def entities(report: ReadReport) -> dict[str, Entity]:
    """Entities by id, as ingestion reads them."""
    with open_reader([PATH]) as reader:
        return {entity.entity_id: entity for entity in reader.read(report)}


def find(entities: dict[str, Entity], name: str, wanted_type: str | None = None) -> set[str]:
    """Ids of the entities that have this very name, and this native or coarse type."""
    return {
        entity.entity_id
        for entity in entities.values()
        if name in entity.names() and (wanted_type is None or wanted_type in entity.kb_types)
    }


OF_TYPE = """
New York: city new-york-city, state new-york-state, magazine new-york-magazine
Washington: PERSON george-washington, city washington-d-c, university university-of-washington
Amazon: ORG amazon, river amazon-river
Georgia: country georgia-country, state georgia-us-state
Jordan: GPE jordan-country, PERSON michael-jordan
Mercury: LOC mercury-planet, PERSON freddie-mercury
mercury: chemical-element mercury-element
Java: island java-island, programming-language java-language
Titanic: film titanic-film, PRODUCT rms-titanic
"""
"""Names of several entities, with the one of each type."""


@pytest.mark.parametrize("line", OF_TYPE.strip().splitlines())
def test_a_type_separates_names_that_are_shared(entities: dict[str, Entity], line: str) -> None:
    """A name of several entities belongs to one once the type is known."""
    name, _, of_type = line.partition(": ")

    for wanted_type, entity_id in (one.split() for one in of_type.split(", ")):
        assert find(entities, name, wanted_type) == {entity_id}


def test_the_readme_counts_are_true(entities: dict[str, Entity], report: ReadReport) -> None:
    """The numbers in examples/README.md are those of the file."""
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    coarse = Counter(entity.kb_types[0] for entity in entities.values())
    fine = Counter(entity.kb_types[1] for entity in entities.values())
    assert f"{len(entities):,} well-known entities with {report.names:,} names" in text
    assert f"every coarse type at least {min(coarse.values())} times" in text
    assert f"{fine['disease']} diseases, {fine['drug']} drugs" in text
