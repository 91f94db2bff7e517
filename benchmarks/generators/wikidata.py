"""Makes a Wikidata dump of invented items in the real format, and truthy triples.

The items have the size of real ones, 5 to 15 KB: labels in tens of languages, statements with qualifiers and
references, and non-ASCII text escaped as in the dumps.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

LANGUAGES = "en de fr es it nl ru ja zh pl pt sv uk ar fa he ko cs fi hu no da tr ro ca eo sr hy ka el vi th".split()
ALPHABETS = {
    "ru": "абвгдеиклмнопрст",
    "ja": "東京大阪名古屋山川",
    "ar": "ابتثجحخدذ",
    "el": "αβγδεζηθικ",
    "he": "אבגדהוזח",
}
N_DISTINCT = 2000
N_CLASSES = 400


def _word(rng: random.Random, language: str, n_words: int) -> str:
    letters = ALPHABETS.get(language, "abcdefghijklmnoprstu")
    return " ".join("".join(rng.choices(letters, k=rng.randint(3, 9))) for _ in range(n_words))


def _terms(rng: random.Random, n_languages: int, n_words: int) -> dict[str, Any]:
    chosen = ["en", *rng.sample(LANGUAGES[1:], min(n_languages, len(LANGUAGES) - 1))]
    return {key: {"language": key, "value": _word(rng, key, n_words)} for key in chosen}


def _item_snak(rng: random.Random, prop: str, number: int) -> dict[str, Any]:
    value = {"entity-type": "item", "numeric-id": number, "id": f"Q{number}"}
    return {
        "snaktype": "value",
        "property": prop,
        "hash": f"{rng.getrandbits(160):040x}",
        "datavalue": {"value": value, "type": "wikibase-entityid"},
        "datatype": "wikibase-item",
    }


def _statement(rng: random.Random, item: int, prop: str, number: int) -> dict[str, Any]:
    statement: dict[str, Any] = {
        "mainsnak": _item_snak(rng, prop, number),
        "type": "statement",
        "id": f"Q{item}${rng.getrandbits(128):032x}",
        "rank": "normal",
    }
    if rng.random() < 0.3:
        qualifier = f"P{rng.randint(500, 900)}"
        statement["qualifiers"] = {qualifier: [_item_snak(rng, qualifier, rng.randint(1, 10**8))]}
        statement["qualifiers-order"] = [qualifier]
    if rng.random() < 0.6:
        time_value = {"time": "+2013-10-28T00:00:00Z", "timezone": 0, "before": 0, "after": 0, "precision": 11}
        retrieved = {
            "snaktype": "value",
            "property": "P813",
            "hash": f"{rng.getrandbits(160):040x}",
            "datavalue": {"value": time_value, "type": "time"},
            "datatype": "time",
        }
        snaks = {"P248": [_item_snak(rng, "P248", 36578)], "P813": [retrieved]}
        reference = {"hash": f"{rng.getrandbits(160):040x}", "snaks": snaks, "snaks-order": ["P248", "P813"]}
        statement["references"] = [reference]
    return statement


def make_entity(rng: random.Random, number: int) -> dict[str, Any]:
    """One item. The first `N_CLASSES` items are classes, each with a parent."""
    is_class = number <= N_CLASSES
    claims = {"P31": [_statement(rng, number, "P31", rng.randint(1, N_CLASSES))]}
    if is_class:
        claims["P279"] = [_statement(rng, number, "P279", rng.randint(1, max(1, number // 2)))]
    for prop in rng.sample(range(1000, 9000), rng.randint(3, 16)):
        claims[f"P{prop}"] = [_statement(rng, number, f"P{prop}", rng.randint(1, 10**8))]
    aliases = {key: [value] for key, value in _terms(rng, 4, 2).items()}
    wikis = rng.sample(LANGUAGES, rng.randint(0, 8))
    return {
        "type": "item",
        "id": f"Q{number}",
        "labels": _terms(rng, rng.randint(1, 30), 2),
        "descriptions": _terms(rng, rng.randint(1, 30), 5),
        "aliases": aliases,
        "claims": claims,
        "sitelinks": {f"{w}wiki": {"site": f"{w}wiki", "title": _word(rng, w, 2), "badges": []} for w in wikis},
        "lastrevid": rng.randint(10**8, 10**9),
    }


def make_dump(folder: Path, n_bytes: int) -> None:
    """Write a dump of `n_bytes` into a new folder: some thousand items, repeated under new ids."""
    rng = random.Random(0)
    models = [json.dumps(make_entity(rng, i + 1), separators=(",", ":")).encode() for i in range(N_DISTINCT)]
    folder.mkdir()
    number = size = 0
    with (folder / "dump.json").open("wb") as file:
        file.write(b"[\n")
        while size < n_bytes:
            model = models[number % N_DISTINCT]
            number += 1
            # Each class occurs once: later copies of it are plain instances.
            name = b'"P279"' if number <= N_DISTINCT else b'"P280"'
            line = model.replace(f'"id":"Q{(number - 1) % N_DISTINCT + 1}"'.encode(), f'"id":"Q{number}"'.encode(), 1)
            size += file.write((b",\n" if number > 1 else b"") + line.replace(b'"P279"', name))
        file.write(b"\n]\n")


def make_truthy(folder: Path, n_bytes: int) -> None:
    """Write `n_bytes` of truthy triples into a new folder."""
    folder.mkdir()
    rng, number, size = random.Random(1), 0, 0
    site, label = "http://www.wikidata.org", "http://www.w3.org/2000/01/rdf-schema#label"
    with (folder / "truthy.nt").open("w", encoding="ascii") as file:
        while size < n_bytes:
            number += 1
            subject = f"<{site}/entity/Q{number}>"
            rows = []
            for language in ["en", *rng.sample(LANGUAGES[1:], rng.randint(1, 20))]:
                name = json.dumps(_word(rng, language, 2))
                predicates = (label, "http://www.w3.org/2004/02/skos/core#prefLabel", "http://schema.org/name")
                rows += [f"{subject} <{predicate}> {name}@{language} .\n" for predicate in predicates]
            edges = [("P31", N_CLASSES), *((f"P{rng.randint(400, 9999)}", 10**8) for _ in range(rng.randint(5, 25)))]
            edges += [("P279", N_CLASSES)] * (number <= N_CLASSES)
            for prop, highest in edges:
                value = f"<{site}/entity/Q{rng.randint(1, highest)}>"
                rows.append(f"{subject} <{site}/prop/direct/{prop}> {value} .\n")
            size += file.write("".join(rows))
