"""Mentions of every kind made from bases, linked and answered by what users write instead.

    python benchmarks/everyday/measure.py --page docs/accuracy.md base.tsv...

It is `pearl-qdrant evaluate --data base.tsv --task everyday` for each base; a cell has the right answers in percent,
one figure a base.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pearl_qdrant import evaluate_model

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "runs"))
from recipe_tables import page_option, write_rows

KINDS = {
    "one slip": "one slip",
    "two slips": "two slips",
    "plural": "plural",
    "order": "other word order",
    "in words": "inside a few words",
    "alias": "an alias that the base lacks",
    "nil removed": "NIL, entity removed",
    "nil other field": "NIL, a name of another field",
}
METHODS = ("exact", "exact+WRatio", "exact+ratio", "tfidf")


@click.command()
@click.argument("bases", nargs=-1, required=True)
@page_option
def main(bases: tuple[str, ...], page: Path | None) -> None:
    """Print the right answers by kind, or write them into a page."""
    reports = [evaluate_model(base, tasks=["everyday"]) for base in bases]
    found = [[one.results[0].outcomes[name] for name in (one.model, *METHODS)] for one in reports]

    def row(title: str, kind: str) -> list[str]:
        methods = zip(*found, strict=True)
        shares = [[one.details[f"{kind}/right"] if kind else one.value for one in of_bases] for of_bases in methods]
        return [title, *(", ".join(f"{share:.1f}" for share in of_bases) for of_bases in shares)]

    head = "mention | linker | dictionary | rapidfuzz WRatio | rapidfuzz ratio | TF-IDF of n-grams"
    rows = [*(row(title, kind) for kind, title in KINDS.items()), row("mean of all kinds", "")]
    write_rows(page, __file__, head, rows)


if __name__ == "__main__":
    main()
