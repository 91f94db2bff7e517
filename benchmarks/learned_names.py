"""Measures learned names on mentions in documents: what a linker answers before and after it learned the training part.

    python benchmarks/learned_names.py --base base_aida.tsv --mentions mentions.tsv

--base is a table of names. --mentions has a header with `corpus`, `doc_id`, `mention` and `gold_id` (several ids by |,
NIL where the base has none); --train and --develop name the parts in `corpus`. The linker gets each mention alone,
without its document. An answer is right if it is one of the gold ids, or NIL where the base has none.

With --halves the training part alone is used: the linker learns one half of its documents and is measured on the other,
for several weights of the model's probabilities (`linking.learned.counts.PRIOR_WEIGHT`).
"""

from __future__ import annotations

import csv
import math
import random
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from pearl_qdrant import EntityLinker, Link, load_base
from pearl_qdrant.linking.learned import counts as posterior

WEIGHTS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0)


@dataclass(frozen=True, slots=True)
class Row:
    """A mention with its document and its right ids, none for NIL."""

    corpus: str
    document: str
    mention: str
    gold: frozenset[str]


def read_rows(path: Path) -> list[Row]:
    """All mentions of a file."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Row(row["corpus"], row["doc_id"], row["mention"], frozenset(row["gold_id"].split("|")) - {"NIL"})
            for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        ]


def pairs(rows: Iterable[Row]) -> list[tuple[str, str | None]]:
    """Labelled mentions; of several right ids the first."""
    return [(row.mention, min(row.gold, default=None)) for row in rows]


def measure(linker: EntityLinker, rows: Sequence[Row]) -> dict[str, float]:
    """Shares in percent, the mean log loss in nats, and milliseconds a distinct mention."""
    distinct = list(dict.fromkeys(row.mention for row in rows))
    start = time.process_time()
    links = dict(zip(distinct, linker.link_batch(distinct), strict=True))
    seconds = time.process_time() - start
    known, nil = [row for row in rows if row.gold], [row for row in rows if not row.gold]
    return {
        "all": share(rows, links),
        "linkable": share(known, links),
        "NIL": share(nil, links),
        "log loss": math.fsum(log_loss(links[row.mention], row.gold) for row in rows) / len(rows),
        "ms": 1000 * seconds / len(distinct),
    }


def share(rows: Sequence[Row], links: dict[str, Link]) -> float:
    """Right answers in percent."""
    right = sum((links[row.mention].entity_id in row.gold) if row.gold else _is_nil(links[row.mention]) for row in rows)
    return 100 * right / max(1, len(rows))


def _is_nil(link: Link) -> bool:
    return link.entity_id is None


def log_loss(link: Link, gold: frozenset[str]) -> float:
    """Negative logarithm of the probability of the right answer, at least 1e-4."""
    of_candidates = [(c.entity_id, c.probability or 0.0) for c in link.candidates]
    right = math.fsum(p for key, p in of_candidates if key in gold)
    return -math.log(max(1e-4, right if gold else 1 - math.fsum(p for _, p in of_candidates)))


def show(label: str, figures: dict[str, float]) -> None:
    """Print one line."""
    cells = "  ".join(
        f"{name} {value:6.3f}" if value < 5 else f"{name} {value:5.1f}" for name, value in figures.items()
    )
    click.echo(f"{label:32}  {cells}")


@click.command()
@click.option("--base", type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--mentions", type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--train", default="aida-train", show_default=True, help="The part to learn.")
@click.option("--develop", default="aida-dev", show_default=True, help="The part to measure.")
@click.option("--halves", is_flag=True, help="Learn one half of the training documents, measure the other.")
@click.option("--add-aliases", type=int, help="As for `learn`.")
@click.option("--store", type=click.Path(path_type=Path), help="Keep the loaded base in this store.")
def main(
    base: Path, mentions: Path, train: str, develop: str, halves: bool, add_aliases: int | None, store: Path | None
) -> None:
    """Load the base, learn, and print what was right before and after."""
    rows = read_rows(mentions)
    training = [row for row in rows if row.corpus == train]
    development = [row for row in rows if row.corpus == develop]
    if halves:
        documents = sorted({row.document for row in training})
        random.Random(0).shuffle(documents)
        first = frozenset(documents[: len(documents) // 2])
        development = [row for row in training if row.document not in first]
        training = [row for row in training if row.document in first]
    with tempfile.TemporaryDirectory() as folder:
        location = str(store or folder)
        load_base(base, "base", store=location)
        with EntityLinker.open("base", store=location) as linker:
            show("before", measure(linker, development))
            start = time.process_time()
            learned = linker.learn(pairs(training), add_aliases=add_aliases, skip_unknown=True, source=train)
            seconds = time.process_time() - start
            click.echo(
                f"learned {learned.batch.mentions:,} mentions, {learned.batch.names:,} distinct, in {seconds:.1f} s; "
                f"{len(learned.batch.aliases):,} aliases, {learned.skipped:,} left out"
            )
            shipped = posterior.PRIOR_WEIGHT
            for weight in WEIGHTS if halves else (shipped,):
                posterior.PRIOR_WEIGHT = weight
                show(f"after, prior weight {weight:g}", measure(linker, development))
            posterior.PRIOR_WEIGHT = shipped
            linker.undo_learned(learned.batch.number)
            show("after the undo", measure(linker, development))


if __name__ == "__main__":
    main()
