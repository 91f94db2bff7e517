"""Answers on sets that others made: names with the answers of curators, at the defaults, and by rapidfuzz.

    python benchmarks/linking/curated_sets.py FOLDER...
    python benchmarks/linking/curated_sets.py --page docs/accuracy.md FOLDER...    # writes the table of the page

Each FOLDER has `base.tsv` (id, name, type, aliases by `|`) and `mentions.tsv` (mention, gold: ids by `|`, or NIL). The
base is loaded with the shipped model into a temporary store. The table is Markdown, in percent of all mentions:

    right      linked to a right entity, or NIL where there is none
    wrong      linked to another entity, though the right one is in the base
    absent     linked, though the base has no entity for it
    error      expected calibration error of the first candidate's probability

WRatio is rapidfuzz over all names, with the cutoff that is best for this very set; a dictionary is equal names alone.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from rapidfuzz import fuzz, process

from pearl_qdrant import EntityLinker, Link, load_base
from pearl_qdrant.cells import split_list

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "runs"))
from recipe_tables import page_option, read_tsv, write_rows

CUTOFFS = range(50, 101, 2)

TITLES = {
    "abt-buy": "product titles",
    "country-variants": "countries, ten languages",
    "football-clubs": "football clubs",
    "gene-mentions": "genes in papers",
}
"""What a page calls a set."""


@dataclass(frozen=True, slots=True)
class Curated:
    """A set: names with their entities, and mentions with the entities that are right."""

    names: list[tuple[str, str]]
    mentions: list[str]
    gold: list[frozenset[str]]


def read(folder: Path) -> Curated:
    """Read a set."""
    names = [
        (name, row["id"])
        for row in read_tsv(folder / "base.tsv")
        for name in (row["name"], *split_list(row.get("aliases") or ""))
    ]
    mentions = list(read_tsv(folder / "mentions.tsv"))
    gold = [frozenset(row["gold"].split("|")) - {"NIL"} for row in mentions]
    return Curated(names, [row["mention"] for row in mentions], gold)


def shares(answers: Sequence[str | None], gold: Sequence[frozenset[str]]) -> tuple[float, float, float]:
    """`right`, `wrong`, `absent`, in percent."""
    right = sum(answer in ids if answer else not ids for answer, ids in zip(answers, gold, strict=True))
    wrong = sum(bool(answer and ids and answer not in ids) for answer, ids in zip(answers, gold, strict=True))
    absent = sum(bool(answer and not ids) for answer, ids in zip(answers, gold, strict=True))
    n = len(gold)
    return 100 * right / n, 100 * wrong / n, 100 * absent / n


def calibration_error(links: Sequence[Link], gold: Sequence[frozenset[str]]) -> float:
    """Expected calibration error of the first candidate's probability, in ten bins."""
    first = [link.candidates[0].entity_id if link.candidates else None for link in links]
    sure = np.array([link.candidates[0].probability or 0.0 if link.candidates else 0.0 for link in links])
    hit = np.array([one in ids for one, ids in zip(first, gold, strict=True)])
    bins = np.minimum((sure * 10).astype(int), 9)
    return float(sum((bins == i).mean() * abs(sure[bins == i].mean() - hit[bins == i].mean()) for i in set(bins)))


def by_wratio(data: Curated) -> tuple[float, float, float]:
    """The shares at the best cutoff for the set."""
    names = [name for name, _ in data.names]
    found = [process.extractOne(mention, names, scorer=fuzz.WRatio) for mention in data.mentions]
    return max(
        shares([data.names[row][1] if score >= cutoff else None for _, score, row in found], data.gold)
        for cutoff in CUTOFFS
    )


def by_dictionary(data: Curated) -> tuple[float, float, float]:
    """The shares of equal names."""
    owners = {name.casefold(): entity for name, entity in reversed(data.names)}
    return shares([owners.get(mention.casefold()) for mention in data.mentions], data.gold)


def row_of(folder: Path) -> list[str]:
    """A set as a row of the table."""
    data = read(folder)
    with tempfile.TemporaryDirectory() as store:
        load_base(folder / "base.tsv", collection="curated", store=store)
        with EntityLinker.open("curated", store=store) as linker:
            links = list(linker.link_batch(data.mentions))
    ours = shares([link.entity_id for link in links], data.gold)
    cells = (" / ".join(f"{one:.1f}" for one in three) for three in (ours, by_dictionary(data), by_wratio(data)))
    error = f"{calibration_error(links, data.gold):.3f}"
    named = f"{TITLES.get(folder.name, folder.name)}: {len(data.mentions):,} in {len({one for _, one in data.names}):,}"
    return [named, *cells, error]


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, file_okay=False))
@page_option
def main(folders: tuple[Path, ...], page: Path | None) -> None:
    """Print a row for each set, or write it into a page."""
    head = "set | linker | dictionary | WRatio | error"
    write_rows(page, __file__, head, [row_of(folder) for folder in folders])


if __name__ == "__main__":
    main()
