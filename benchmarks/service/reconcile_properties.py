"""Measures what the properties of reconciliation queries are worth, and whether the scores stay probabilities.

    python benchmarks/service/reconcile_properties.py [--names 300] [--seed 13]

The base is made: each name of the sample base belongs to one to five entities, which differ in their columns (country,
region of the country, year). Some entities are left out of the base, so that the right answer is NIL although other
entities have the name. The table of a user is made from the same columns; a share of its cells is wrong or written in
another way. Printed are matches that are right and wrong, in percent of the mentions, the Brier score of the first
candidate, and the calibration error: the mean distance between score and share of right candidates in ten bins.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from fastapi.testclient import TestClient

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.service import ServiceSettings, create_app

SAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sample_base.tsv"

COUNTRIES = (
    "United States|China|India|Germany|France|United Kingdom|Brazil|Japan|Italy|Spain|Canada|Mexico|Poland|Turkey|"
    "Netherlands|Sweden|Austria|Greece|Portugal|Norway|Chile|Kenya|Peru|Cuba|Iran|Iraq|Egypt|Ghana|Nepal|Malta"
).split("|")

REGIONS = "North South East West".split()

BATCH = 100


@dataclass(frozen=True)
class Row:
    """A row of a user's table."""

    name: str  # what is reconciled
    cells: dict[str, str]  # the other columns
    truth: str | None  # the right entity; None if the base lacks it


def make_base(n_names: int, rng: random.Random) -> tuple[list[Entity], list[Entity]]:
    """Entities of the base, and entities that it lacks."""
    lines = SAMPLE.read_text("utf-8").splitlines()[1:]
    names = rng.sample(sorted({line.split("\t")[1] for line in lines}), n_names)
    weights = [1 / (i + 1) for i in range(len(COUNTRIES))]
    entities = []
    for i, name in enumerate(names):
        for j in range(rng.choice((1, 1, 2, 3, 5))):
            country = rng.choices(COUNTRIES, weights)[0]
            columns = {
                "country": country,
                "region": f"{rng.choice(REGIONS)} of {country}",
                "year": str(rng.randint(1800, 2020)),
            }
            entities.append(Entity(f"e{i}-{j}", name, (), ("thing",), (), None, columns))
    absent = set(rng.sample(range(len(entities)), len(entities) // 6))
    kept = [one for i, one in enumerate(entities) if i not in absent]
    return kept, [one for i, one in enumerate(entities) if i in absent]


def make_rows(kept: Sequence[Entity], absent: Sequence[Entity], wrong: float, rng: random.Random) -> list[Row]:
    """One row for each entity; a share of the cells is wrong, half as many are written in another way."""
    rows = []
    for truth, entities in (((True, kept)), ((False, absent))):
        for one in entities:
            cells = {key: _cell(key, value, wrong, rng) for key, value in one.extra.items()}
            rows.append(Row(one.canonical_name, cells, one.entity_id if truth else None))
    return rows


def _cell(key: str, value: str, wrong: float, rng: random.Random) -> str:
    chance = rng.random()
    if chance < wrong:
        other = {"year": str(rng.randint(1800, 2020)), "country": rng.choice(COUNTRIES)}
        return other.get(key, f"{rng.choice(REGIONS)} of {rng.choice(COUNTRIES)}")
    if chance < 1.5 * wrong:
        return str(int(value) + 1) if key == "year" else value.upper() if chance < 1.25 * wrong else value[:-1]
    return value


def ask(client: TestClient, rows: Sequence[Row], columns: Sequence[str]) -> list[list[dict[str, object]]]:
    """The candidates of each row."""
    found: list[list[dict[str, object]]] = []
    for start in range(0, len(rows), BATCH):
        queries = {}
        for i, row in enumerate(rows[start : start + BATCH]):
            properties = [{"pid": one, "v": row.cells[one]} for one in columns]
            queries[f"q{i}"] = {"query": row.name, "properties": properties, "limit": 5}
        answer = client.post("/reconcile/made", data={"queries": json.dumps(queries)}).json()
        found += [answer[key]["result"] for key in queries]
    return found


def measure(rows: Sequence[Row], found: Sequence[Sequence[dict[str, object]]]) -> dict[str, float]:
    """Right and wrong matches in percent, Brier score and calibration error of the first candidate."""
    firsts = [candidates[0] if candidates else {"id": "", "score": 0.0, "match": False} for candidates in found]
    is_right = np.array([first["id"] == row.truth for first, row in zip(firsts, rows, strict=True)])
    scores = np.array([first["score"] for first in firsts], dtype=np.float64) / 100
    matched = np.array([first["match"] for first in firsts])
    bins = np.minimum((scores * 10).astype(int), 9)
    gaps = [abs(float((scores[bins == b] - is_right[bins == b]).sum())) for b in range(10)]
    return {
        "right": 100 * float((matched & is_right).mean()),
        "wrong": 100 * float((matched & ~is_right).mean()),
        "brier": float(((scores - is_right) ** 2).mean()),
        "error": sum(gaps) / len(rows),
    }


@click.command(help=__doc__)
@click.option("--names", default=300, show_default=True, help="Different names.")
@click.option("--seed", default=13, show_default=True)
def main(names: int, seed: int) -> None:
    """Make a base and its tables, and print the figures."""
    rng = random.Random(seed)
    kept, absent = make_base(names, rng)
    print(f"{len(kept)} entities, {len(absent)} more that the base lacks, {names} names")
    print(f"{'cells wrong':>12} {'properties':24} {'right':>6} {'wrong':>6} {'Brier':>7} {'calibration error':>18}")
    with tempfile.TemporaryDirectory() as folder:
        EntityLinker.build(kept, collection="made", store=folder).close()
        settings = ServiceSettings(store=folder, cache=f"{folder}/cache", collections=("made",))
        with TestClient(create_app(settings), base_url="http://localhost") as client:
            while client.get("/health/ready").status_code != 200:
                time.sleep(0.1)
            for wrong in (0.0, 0.05, 0.1, 0.2, 0.4):
                rows = make_rows(kept, absent, wrong, random.Random(seed + 1))
                for columns in ((), ("country",), ("country", "year"), ("country", "region", "year")):
                    found = measure(rows, ask(client, rows, columns))
                    print(
                        f"{wrong:12.0%} {', '.join(columns) or 'none':24} {found['right']:6.1f} {found['wrong']:6.1f} "
                        f"{found['brier']:7.3f} {found['error']:18.3f}"
                    )


if __name__ == "__main__":
    main()
