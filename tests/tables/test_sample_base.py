"""The sample base in examples/: what the demo and the README promise about it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from ingest.formats import open_reader
from ingest.io.report import ReadReport
from pearl_qdrant.records import Entity

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PATH = EXAMPLES / "sample_base.tsv"


@pytest.fixture(scope="module")
def rows() -> list[list[str]]:
    """All rows but the header, cut at tabs."""
    return [line.split("\t") for line in PATH.read_text(encoding="utf-8").splitlines()[1:]]


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


def test_the_reader_skips_and_merges_nothing(
    rows: list[list[str]], entities: dict[str, Entity], report: ReadReport
) -> None:
    """Ingestion takes every row, and every name in it."""
    assert len(entities) == len(rows) == report.entities
    assert (report.n_skipped, report.merged_rows) == (0, 0)
    assert report.names == sum(1 + len(entity.aliases) for entity in entities.values())


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

OF_NAME = """
myocardial-infarction heart attack; hypertension high blood pressure; influenza flu; acetaminophen Tylenol
acetaminophen paracetamol; acetylsalicylic-acid aspirin; type-2-diabetes T2DM; munich München; beijing 北京
moscow Москва; cairo القاهرة; armani-exchange A|X; backslash \\; vertical-bar |; ac-dc AC/DC; dot-net .NET
c-plus-plus C++; nineteen-eighty-four 1984; yahoo Yahoo!; weird-al-yankovic "Weird Al" Yankovic
heroes-song "Heroes"; washington-d-c Washington, D.C.; dozen 12; one-million-dollars $1 million
september-11-attacks 9/11
"""
"""Lay names of diseases, names in other scripts and awkward spellings, each behind its entity."""


@pytest.mark.parametrize("line", OF_TYPE.strip().splitlines())
def test_a_type_separates_names_that_are_shared(entities: dict[str, Entity], line: str) -> None:
    """A name of several entities belongs to one once the type is known."""
    name, _, of_type = line.partition(": ")

    for wanted_type, entity_id in (one.split() for one in of_type.split(", ")):
        assert find(entities, name, wanted_type) == {entity_id}


def test_known_names_lead_to_their_entity(entities: dict[str, Entity]) -> None:
    """Each is read as it is written."""
    wanted = [one.split(" ", 1) for line in OF_NAME.strip().splitlines() for one in line.split("; ")]

    assert len(wanted) == 25
    assert [(name, find(entities, name)) for _, name in wanted] == [(name, {entity_id}) for entity_id, name in wanted]


def test_the_readme_counts_are_true(entities: dict[str, Entity], report: ReadReport) -> None:
    """The numbers in examples/README.md are those of the file."""
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    coarse = Counter(entity.kb_types[0] for entity in entities.values())
    fine = Counter(entity.kb_types[1] for entity in entities.values())
    assert f"{len(entities):,} well-known entities with {report.names:,} names" in text
    assert f"every coarse type at least {min(coarse.values())} times" in text
    assert f"{fine['disease']} diseases, {fine['drug']} drugs" in text


def test_ids_are_unique_slugs(rows: list[list[str]]) -> None:
    """An id is a readable slug, and no two rows share one."""
    ids = [row[0] for row in rows]
    assert [id_ for id_ in ids if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", id_)] == []
    assert len(set(ids)) == len(ids)
