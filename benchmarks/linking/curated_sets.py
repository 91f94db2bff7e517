"""Answers on sets that others made: names with the answers of curators, at the defaults, adapted, and by rapidfuzz.

    python benchmarks/linking/curated_sets.py FOLDER...

Each FOLDER has `base.tsv` (id, name, type, aliases by `|`) and `mentions.tsv` (mention, gold: ids by `|`, or NIL). The
base is loaded with the shipped model into a temporary store. Percent of all mentions:

    right      linked to a right entity, or NIL where there is none
    wrong      linked to another entity, though the right one is in the base
    absent     linked, though the base has no entity for it
    nil        not linked, though the base has it
    first      the first candidate is right, of the mentions whose entity is in the base
    ece        expected calibration error of the first candidate's probability

WRatio is rapidfuzz over all names, with the cutoff that is best for this very set; a dictionary is equal names alone.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from rapidfuzz import fuzz, process

from pearl_qdrant import EntityLinker, Link, load_base
from pearl_qdrant.cells import split_list

CUTOFFS = range(50, 101, 2)


@dataclass(frozen=True, slots=True)
class Curated:
    """A set: names with their entities, and mentions with the entities that are right."""

    names: list[tuple[str, str]]
    mentions: list[str]
    gold: list[frozenset[str]]


def read(folder: Path) -> Curated:
    """Read a set."""

    def rows(name: str) -> list[dict[str, str]]:
        with (folder / name).open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))

    names = [
        (name, row["id"]) for row in rows("base.tsv") for name in (row["name"], *split_list(row.get("aliases") or ""))
    ]
    mentions = rows("mentions.tsv")
    gold = [frozenset(row["gold"].split("|")) - {"NIL"} for row in mentions]
    return Curated(names, [row["mention"] for row in mentions], gold)


def shares(answers: Sequence[str | None], gold: Sequence[frozenset[str]]) -> tuple[float, float, float, float]:
    """`right`, `wrong`, `absent`, `nil`, in percent."""
    right = sum(answer in ids if answer else not ids for answer, ids in zip(answers, gold, strict=True))
    wrong = sum(bool(answer and ids and answer not in ids) for answer, ids in zip(answers, gold, strict=True))
    absent = sum(bool(answer and not ids) for answer, ids in zip(answers, gold, strict=True))
    n = len(gold)
    return 100 * right / n, 100 * wrong / n, 100 * absent / n, 100 * (n - right - wrong - absent) / n


def of_links(links: Sequence[Link], gold: Sequence[frozenset[str]]) -> str:
    """A line of figures."""
    first = [link.candidates[0].entity_id if link.candidates else None for link in links]
    sure = np.array([link.candidates[0].probability or 0.0 if link.candidates else 0.0 for link in links])
    hit = np.array([one in ids for one, ids in zip(first, gold, strict=True)])
    bins = np.minimum((sure * 10).astype(int), 9)
    errors = [(bins == i).mean() * abs(sure[bins == i].mean() - hit[bins == i].mean()) for i in set(bins.tolist())]
    of_base = np.array([bool(ids) for ids in gold])
    figures = shares([link.entity_id for link in links], gold)
    return f"{_percent(figures)}   first {100 * hit[of_base].mean():5.1f}   ece {sum(errors):.3f}"


def by_wratio(data: Curated) -> tuple[int, tuple[float, float, float, float]]:
    """The best cutoff for the set, and the shares at it."""
    names = [name for name, _ in data.names]
    found = [process.extractOne(mention, names, scorer=fuzz.WRatio) for mention in data.mentions]
    best = {
        cutoff: shares([data.names[row][1] if score >= cutoff else None for _, score, row in found], data.gold)
        for cutoff in CUTOFFS
    }
    cutoff = max(best, key=lambda one: best[one][0])
    return cutoff, best[cutoff]


def _percent(figures: Sequence[float]) -> str:
    return "  ".join(f"{one:5.1f}" for one in figures)


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, file_okay=False))
def main(folders: tuple[Path, ...]) -> None:
    """Print the figures of each set."""
    click.echo(f"{'':28}right  wrong  absent  nil")
    for folder in folders:
        data = read(folder)
        with tempfile.TemporaryDirectory() as store:
            load_base(folder / "base.tsv", collection="curated", store=store)
            with EntityLinker.open("curated", store=store) as linker:
                click.echo(f"{folder.name:18} defaults  {of_links(list(linker.link_batch(data.mentions)), data.gold)}")
                bias = linker.adapt(data.mentions).nil_bias
                links = list(linker.link_batch(data.mentions, nil_bias=bias))
                click.echo(f"{'':18} adapted   {of_links(links, data.gold)}   NIL {bias:+.2f}")
        cutoff, figures = by_wratio(data)
        click.echo(f"{'':18} WRatio    {_percent(figures)}   cutoff {cutoff}")
        owners = {name.casefold(): entity for name, entity in reversed(data.names)}
        of_names = shares([owners.get(mention.casefold()) for mention in data.mentions], data.gold)
        click.echo(f"{'':18} dictionary{_percent(of_names)}")


if __name__ == "__main__":
    main()
