"""The recipe of `pearl_qdrant/lexical/added_words.tsv`: what a word says that stands before or after a name.

    python runs/added_words.py --data FOLDER --out pearl_qdrant/lexical/added_words.tsv

--data has `kb/` and `context/base_aida.tsv`. Wherever a name is another name with one word before or after it, the two
belong to one entity (`Kabupaten Bandung`, `Bandung`) or to different ones (`Perth Airport`, `Perth`). The logarithm of
the odds of one entity, less that of all words together, is the word's value; words that were seen `FEWEST` times are
kept. Only entities of the training splits count.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
from recipe_tables import read_tsv

from pearl_qdrant.cells import split_list
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.lexical.words import variant_words
from training.examples.example import TRAIN_SPLITS, split_of

FEWEST = 5
MOST_OWNERS = 3
"""Entities of a name, beyond which it says nothing which of them is meant."""
WORDS = range(2, 7)
LETTERS = 4
_BRACKETS = re.compile(r"\s*\([^)]*\)")

Words = tuple[str, ...]


def entities(data: Path) -> Iterator[set[Words]]:
    """The names of each entity, as their words in normal spelling."""
    paths = [
        data / "kb" / "general.tsv",
        data / "context" / "base_aida.tsv",
        *(data / "kb" / "biomedical").glob("*.tsv"),
    ]
    for path in sorted(paths):
        for row in read_tsv(path):
            if split_of(row["id"]) in TRAIN_SPLITS:
                names = [row["name"], *split_list(row.get("aliases") or "")]
                yield {tuple(variant_words(fold_name(_BRACKETS.sub("", name)).split())) for name in names} - {()}


def count(owners: dict[Words, set[int]]) -> tuple[Counter[tuple[str, int]], Counter[tuple[str, int]]]:
    """How often a word (1: at the end, 0: at the beginning) joins two names of one entity, and of different ones."""
    same: Counter[tuple[str, int]] = Counter()
    other: Counter[tuple[str, int]] = Counter()
    for name, of_name in owners.items():
        for shorter, key in ((name[:-1], (name[-1], 1)), (name[1:], (name[0], 0))):
            if len(name) not in WORDS or len("".join(shorter)) < LETTERS or shorter not in owners:
                continue
            of_shorter = owners[shorter]
            if of_name & of_shorter:
                same[key] += 1
            elif len(of_shorter) <= MOST_OWNERS:
                other[key] += 1
    return same, other


@click.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True)
def main(data: Path, out: Path) -> None:
    """Count the words and write their values."""
    owners: dict[Words, set[int]] = {}
    for number, names in enumerate(entities(data)):
        for name in names:
            owners.setdefault(name, set()).add(number)
    same, other = count(owners)
    odds = same.total() / other.total()
    rows = []
    for word, place in sorted(set(same) | set(other)):
        n_same, n_other = same[word, place], other[word, place]
        if n_same + n_other >= FEWEST and word.isalpha():
            value = math.log((n_same + 0.5) / (n_other * odds + 0.5))
            rows.append(f"{word}\t{'after' if place else 'before'}\t{value:.1f}\n")
    out.write_text("word\tplace\tlog_odds\n" + "".join(rows), "utf-8")
    click.echo(f"{len(rows)} words of {len(set(same) | set(other))}, odds {odds:.3f}")


if __name__ == "__main__":
    main()
