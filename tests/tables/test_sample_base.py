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


@pytest.mark.parametrize(
    "name, wanted_type, entity_id",
    [
        ("New York", "city", "new-york-city"),
        ("New York", "state", "new-york-state"),
        ("New York", "magazine", "new-york-magazine"),
        ("Washington", "PERSON", "george-washington"),
        ("Washington", "city", "washington-d-c"),
        ("Washington", "university", "university-of-washington"),
        ("Amazon", "ORG", "amazon"),
        ("Amazon", "river", "amazon-river"),
        ("Georgia", "country", "georgia-country"),
        ("Georgia", "state", "georgia-us-state"),
        ("Jordan", "GPE", "jordan-country"),
        ("Jordan", "PERSON", "michael-jordan"),
        ("Mercury", "LOC", "mercury-planet"),
        ("Mercury", "PERSON", "freddie-mercury"),
        ("mercury", "chemical-element", "mercury-element"),
        ("Java", "island", "java-island"),
        ("Java", "programming-language", "java-language"),
        ("Titanic", "film", "titanic-film"),
        ("Titanic", "PRODUCT", "rms-titanic"),
    ],
)
def test_a_type_separates_names_that_are_shared(
    entities: dict[str, Entity], name: str, wanted_type: str, entity_id: str
) -> None:
    """A name of several entities belongs to one once the type is known."""
    assert find(entities, name, wanted_type) == {entity_id}


@pytest.mark.parametrize(
    "name, entity_id",
    [
        ("heart attack", "myocardial-infarction"),
        ("high blood pressure", "hypertension"),
        ("flu", "influenza"),
        ("Tylenol", "acetaminophen"),
        ("paracetamol", "acetaminophen"),
        ("aspirin", "acetylsalicylic-acid"),
        ("T2DM", "type-2-diabetes"),
        ("München", "munich"),
        ("北京", "beijing"),
        ("Москва", "moscow"),
        ("القاهرة", "cairo"),
        ("A|X", "armani-exchange"),
        ("\\", "backslash"),
        ("|", "vertical-bar"),
        ("AC/DC", "ac-dc"),
        (".NET", "dot-net"),
        ("C++", "c-plus-plus"),
        ("1984", "nineteen-eighty-four"),
        ("Yahoo!", "yahoo"),
        ('"Weird Al" Yankovic', "weird-al-yankovic"),
        ('"Heroes"', "heroes-song"),
        ("Washington, D.C.", "washington-d-c"),
        ("12", "dozen"),
        ("$1 million", "one-million-dollars"),
        ("9/11", "september-11-attacks"),
    ],
)
def test_known_names_lead_to_their_entity(entities: dict[str, Entity], name: str, entity_id: str) -> None:
    """Lay names of diseases, names in other scripts and awkward spellings are read as they are written."""
    assert find(entities, name) == {entity_id}


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
