"""Measures `annotate` on passages with marked mentions: precision and recall of span and entity together.

    pearl-qdrant ingest examples/sample_base.tsv --store STORE
    python benchmarks/passages.py --store STORE

The odds of the shapes were chosen on the development half of passages.txt; the measurement half is held out. Names that
several entities share do not count, unless the topic of the passage is given as context (second row of each half); a
wrong link always counts. The third row is the usual alternative: the longest names of the base, ignoring case, from
left to right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import click

from ingest.formats import open_reader
from ingest.io.report import ReadReport
from pearl_qdrant.linking.linker import EntityLinker

PASSAGES = Path(__file__).parent / "passages.txt"
BASE = Path(__file__).parent.parent / "examples" / "sample_base.tsv"
MENTION = re.compile(r"\{([^{}|]+)\|([^{}|]+)\}")


@dataclass(frozen=True)
class Gold:
    """A passage, its topic and its mentions: (start, end) to entity id. A star marks a name of several entities."""

    topic: str
    text: str
    mentions: dict[tuple[int, int], str]


def read_gold(path: Path = PASSAGES) -> list[Gold]:
    """The passages of the file."""
    return [_parse(*block.split("\n", 1)) for block in path.read_text(encoding="utf-8").split("\n= ")[1:]]


def _parse(topic: str, marked: str) -> Gold:
    text, mentions, at = "", {}, 0
    marked = marked.strip()
    for mention in MENTION.finditer(marked):
        text += marked[at : mention.start()]
        mentions[len(text), len(text) + len(mention[1])] = mention[2]
        text += mention[1]
        at = mention.end()
    return Gold(topic, text + marked[at:], mentions)


@dataclass
class Score:
    """Counts of right, wrong and missed mentions."""

    right: int = 0
    wrong: int = 0
    missed: int = 0

    def line(self, name: str) -> str:
        precision = self.right / max(1, self.right + self.wrong)
        recall = self.right / max(1, self.right + self.missed)
        f1 = 2 * precision * recall / max(1e-9, precision + recall)
        return (
            f"{name:<26} precision {precision:6.1%}  recall {recall:6.1%}  F1 {f1:6.1%}"
            f"   ({self.right} right, {self.wrong} wrong, {self.missed} missed)"
        )


Find = Callable[[Gold], dict[tuple[int, int], str]]
"""Finds the mentions of a passage: (start, end) to the entity's id."""


def by_linker(linker: EntityLinker, *, with_context: bool) -> Find:
    """The method that is measured: `EntityLinker.annotate`."""

    def find(gold: Gold) -> dict[tuple[int, int], str]:
        context = gold.topic if with_context else None
        annotations = linker.annotate(gold.text, context=context)
        return {(a.start, a.end): a.link.entity_id or "" for a in annotations}

    return find


def by_exact_names(base: Path = BASE) -> Find:
    """The peer: every name that belongs to a single entity."""
    owners: dict[str, set[str]] = {}
    with open_reader([base], "tsv") as reader:
        for entity in reader.read(ReadReport(max_errors=0)):
            for name in entity.names():
                owners.setdefault(name.lower(), set()).add(entity.entity_id)
    longest = max(len(name.split()) for name in owners) * 2

    def find(gold: Gold) -> dict[tuple[int, int], str]:
        tokens = [token.span() for token in re.finditer(r"\w+|[^\w\s]", gold.text)]
        found, i = {}, 0
        while i < len(tokens):
            for last in range(min(len(tokens), i + longest) - 1, i - 1, -1):
                place = tokens[i][0], tokens[last][1]
                if ids := owners.get(gold.text[slice(*place)].lower()):
                    if len(ids) == 1:
                        found[place] = min(ids)
                    i = last
                    break
            i += 1
        return found

    return find


def score(find: Find, passages: Iterable[Gold], *, with_context: bool, show: bool) -> Score:
    """Annotate passages and compare with the gold mentions."""
    total = Score()
    for gold in passages:
        found = find(gold)
        for place, entity_id in found.items():
            wanted = gold.mentions.get(place)
            is_right = wanted is not None and wanted.rstrip("*") == entity_id
            if wanted is not None and wanted.endswith("*") and is_right and not with_context:
                continue
            total.right += is_right
            total.wrong += not is_right
            if show and not is_right:
                click.echo(f"  wrong  {gold.text[slice(*place)]!r} -> {entity_id}, not {wanted}")
        for place, wanted in gold.mentions.items():
            if found.get(place) != wanted.rstrip("*") and (with_context or not wanted.endswith("*")):
                total.missed += 1
                if show:
                    click.echo(f"  missed {gold.text[slice(*place)]!r} {wanted}")
    return total


@click.command()
@click.option("--store", required=True, help="Where the sample base was ingested.")
@click.option("--collection", default="sample_base", show_default=True)
@click.option("--errors", is_flag=True, help="Show the errors in the development half.")
def main(store: str, collection: str, errors: bool) -> None:
    """Measure `annotate`."""
    gold = read_gold()
    with EntityLinker.open(collection, store=store) as linker:
        for name, half in (("development", gold[::2]), ("measurement", gold[1::2])):
            show = errors and name == "development"
            for row, with_context in ((name, False), (f"{name}, context", True)):
                find = by_linker(linker, with_context=with_context)
                click.echo(score(find, half, with_context=with_context, show=show).line(row))
            peer = score(by_exact_names(), half, with_context=False, show=False)
            click.echo(peer.line(f"{name}, exact names"))


if __name__ == "__main__":
    main()
