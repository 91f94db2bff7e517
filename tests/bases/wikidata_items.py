"""Items in the form of Wikidata dumps, made up for the tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rdf_bases import read as read_base
from standard_input import given_input

from ingest.base.format import ReadOptions
from ingest.io.report import ReadReport
from ingest.readers.wikidata import WikidataReader
from pearl_qdrant.records import Entity

HUMAN, ORGANIZATION = 5, 43229


def statement(number: int | None, rank: str = "normal", snaktype: str = "value") -> dict[str, Any]:
    """A statement with an item as its value, or with none."""
    snak: dict[str, Any] = {"snaktype": snaktype, "property": "P31", "hash": "0a", "datatype": "wikibase-item"}
    if number is not None:
        value = {"entity-type": "item", "numeric-id": number, "id": f"Q{number}"}
        snak["datavalue"] = {"value": value, "type": "wikibase-entityid"}
    qualifiers = {"P580": [{"snaktype": "value", "property": "P580", "datavalue": {"value": {"time": "+1"}}}]}
    return {"mainsnak": snak, "type": "statement", "id": "Q1$a", "rank": rank, "qualifiers": qualifiers}


def item(
    number: int,
    labels: Mapping[str, str] | None = None,
    *,
    classes: Sequence[int | dict[str, Any]] = (),
    above: Sequence[int | dict[str, Any]] = (),
    aliases: Mapping[str, Sequence[str]] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """An item as the dump writes it."""
    claims = {}
    for prop, values in (("P31", classes), ("P279", above), ("P21", [6581097])):
        if values:
            claims[prop] = [value if isinstance(value, dict) else statement(value) for value in values]
    labels = {"en": f"name {number}"} if labels is None else labels
    return {
        "type": "item",
        "id": f"Q{number}",
        "labels": {key: {"language": key, "value": value} for key, value in labels.items()},
        "aliases": {key: [{"language": key, "value": v} for v in values] for key, values in (aliases or {}).items()},
        "descriptions": {},
        "claims": claims,
        "sitelinks": {},
        "lastrevid": 1,
        **more,
    }


def dump(*rows: dict[str, Any] | bytes) -> bytes:
    """A dump: an array with one row a line."""
    lines = [row if isinstance(row, bytes) else json.dumps(row, separators=(",", ":")).encode() for row in rows]
    return b"[\n" + b",\n".join(lines) + b"\n]\n"


def read(data: bytes, options: ReadOptions | None = None, report: ReadReport | None = None) -> list[Entity]:
    """Entities from standard input."""
    with given_input(data, WikidataReader, ["-"], options or ReadOptions()) as reader:
        return list(reader.read(report if report is not None else ReadReport()))


ADA = item(
    7,
    {"en": "Ada Example", "fi": "Ada Esimerkki", "ru": "Ада"},
    classes=[HUMAN],
    aliases={"en": ["A. Example", "Ada Example"], "mul": ["Ada"], "ru": ["А."]},
    descriptions={"en": {"language": "en", "value": "made-up writer"}, "ru": {"language": "ru", "value": "x"}},
    sitelinks={"enwiki": {"site": "enwiki", "title": "Ada", "badges": []}, "fiwiki": {"site": "fiwiki", "title": "A"}},
)


def read_truthy(data: bytes, report: ReadReport | None = None, **options: Any) -> list[Entity]:
    """Entities of truthy triples; options as of `ReadOptions`."""
    return read_base(data, "truthy.nt", report or ReadReport(), "rdf", **options)


def wd(name: str) -> str:
    """The IRI of an entity."""
    return f"<http://www.wikidata.org/entity/{name}>"


LABEL = "<http://www.w3.org/2000/01/rdf-schema#label>"
ALIAS = "<http://www.w3.org/2004/02/skos/core#altLabel>"
ABOUT = "<http://schema.org/description>"
P31, P279 = (f"<http://www.wikidata.org/prop/direct/{name}>" for name in ("P31", "P279"))
TRUTHY = f"""\
<http://wikiba.se/ontology#Dump> <http://creativecommons.org/ns#license> <http://creativecommons.org/zero> .
<https://www.wikidata.org/wiki/Special:EntityData/Q7> <http://schema.org/about> {wd("Q7")} .
{wd("Q7")} <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://wikiba.se/ontology#Item> .
{wd("Q7")} {LABEL} "Ada \\"Example\\" \\u00C4"@en .
{wd("Q7")} <http://www.w3.org/2004/02/skos/core#prefLabel> "Ada"@en .
{wd("Q7")} {LABEL} "\\u0410"@ru .
{wd("Q7")} {ABOUT} "made-up writer"@en .
{wd("Q7")} {ALIAS} "A. Example"@en .
{wd("Q7")} {ALIAS} "Ada"@mul .
{wd("Q7")} {P31} {wd("Q5")} .
{wd("Q7")} {P31} _:genid1 .
{wd("Q7")} {P279} <http://example.org/Q6> .
{wd("P31")} {LABEL} "instance of"@en .
{wd("Q8")} {LABEL} "\\u0410"@ru .
{wd("Q8")} {P31} {wd("Q5")} .
{wd("Q9")} {LABEL} "page"@en .
{wd("Q9")} {P31} {wd("Q4167410")} .
{wd("Q5")} {LABEL} "human"@en .
{wd("Q5")} {P279} {wd("Q215627")} .
"""
