"""Measures the linker on mentions written by hand, beside exact lookup and exact lookup with rapidfuzz.

    python benchmarks/hand_written.py --data base.tsv --mentions benchmarks/everyday/doid_mentions.tsv

The files in `benchmarks/everyday` have a mention, a tab, the canonical name of the right entity or NIL, a tab and a
kind. They were written before anybody saw an answer of the linker, and nothing was fitted or chosen on them. --data is
the base that the file is for (Disease Ontology; entities of Freebase with Wikidata aliases); it is loaded with the
shipped model and linked at the defaults. rapidfuzz gets the cutoff that is best on these very mentions, which favours
it.

`right` is the share of all mentions with the right entity, or with NIL where the base has none.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
from rapidfuzz import fuzz, process

from ingest.formats import open_reader
from ingest.io.report import ReadReport
from ingest.load_base import load_base
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.records import Entity
from training.evaluation.linking_methods import Names
from training.evaluation.linking_sets import Base, MentionQuery

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "runs"))
from recipe_tables import page_option, write_rows

TITLES = {"doid_mentions": "Disease Ontology", "general_mentions": "Freebase entities with Wikidata aliases"}
"""What a page calls the base of a file."""

Answers = list["str | None"]
"""Entity id, or None for NIL, for each mention."""


def read_mentions(path: Path, entities: Sequence[Entity]) -> tuple[list[str], list[frozenset[str]], list[str]]:
    """Mentions, their right ids (empty for NIL) and kinds.

    Raises:
        click.ClickException: If a canonical name is not in the base.
    """
    ids: dict[str, set[str]] = {}
    for entity in entities:
        ids.setdefault(entity.canonical_name.casefold(), set()).add(entity.entity_id)
    mentions, gold, kinds = [], [], []
    for line in path.read_text("utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        mention, name, kind = line.split("\t")
        if name != "NIL" and name.casefold() not in ids:
            raise click.ClickException(f"the base has no entity called {name!r}: is it the base that {path} is for?")
        mentions.append(mention)
        gold.append(frozenset[str]() if name == "NIL" else frozenset(ids[name.casefold()]))
        kinds.append(kind)
    return mentions, gold, kinds


def by_dictionary(mentions: Sequence[str], entities: Sequence[Entity]) -> Answers:
    """A name of exactly one entity, after folding of case, accents and punctuation."""
    names = Names(Base("hand-written", tuple(entities)))
    owners = [names.exact(MentionQuery(mention, frozenset())) for mention in mentions]
    return [next(iter(ids)) if len(ids) == 1 else None for ids in owners]


def by_rapidfuzz(mentions: Sequence[str], entities: Sequence[Entity], gold: Sequence[frozenset[str]]) -> Answers:
    """The dictionary, and where it has nothing the most similar name by WRatio, with the best cutoff."""
    exact = by_dictionary(mentions, entities)
    names = [(name.casefold(), entity.entity_id) for entity in entities for name in entity.names()]
    texts = [name for name, _ in names]
    near = [process.extractOne(mention.casefold(), texts, scorer=fuzz.WRatio) for mention in mentions]

    def at(cutoff: float) -> Answers:
        return [
            one if one is not None else names[found[2]][1] if found[1] >= cutoff else None
            for one, found in zip(exact, near, strict=True)
        ]

    return max((at(cutoff) for cutoff in range(60, 102, 2)), key=lambda answers: share_right(answers, gold))


def share_right(answers: Answers, gold: Sequence[frozenset[str]]) -> float:
    """Share of mentions with the right entity, or rightly NIL."""
    right = [answer in ids if ids else answer is None for answer, ids in zip(answers, gold, strict=True)]
    return sum(right) / len(right)


def report(name: str, answers: Answers, gold: Sequence[frozenset[str]]) -> str:
    """One line of figures, in percent."""
    n_nil = sum(not ids for ids in gold)
    linked = [(answer, ids) for answer, ids in zip(answers, gold, strict=True) if answer is not None]
    right_links = sum(answer in ids for answer, ids in linked)
    return (
        f"{name:24}{100 * share_right(answers, gold):7.1f}{100 * right_links / (len(gold) - n_nil):14.1f}"
        f"{100 * (len(linked) - right_links) / len(gold):8.1f}"
    )


def of_nil(answers: Answers, gold: Sequence[frozenset[str]]) -> str:
    """Precision and recall of NIL, in percent."""
    right = sum(answer is None and not ids for answer, ids in zip(answers, gold, strict=True))
    return f"{100 * right / max(1, answers.count(None)):.1f}, {100 * right / sum(not ids for ids in gold):.1f}"


@click.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--mentions", "mentions_path", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--store", type=click.Path(path_type=Path), help="Keep the collection here for the next run.")
@click.option("--errors", is_flag=True, help="Print the mentions that the linker gets wrong.")
@page_option
def main(data: Path, mentions_path: Path, store: Path | None, errors: bool, page: Path | None) -> None:
    """Measure the linker on mentions written by hand."""
    with open_reader([data]) as reader:
        entities = list(reader.read(ReadReport()))
    mentions, gold, kinds = read_mentions(mentions_path, entities)
    with tempfile.TemporaryDirectory() as scratch:
        place = str(store or scratch)
        load_base(data, "hand-written", store=place)
        with EntityLinker.open("hand-written", store=place) as linker:
            links = list(linker.link_batch(mentions))
    ours: Answers = [link.entity_id for link in links]
    click.echo(f"{len(mentions)} mentions, {sum(not ids for ids in gold)} of them NIL")
    click.echo(f"{'':24}{'right':>7}{'right links':>14}{'wrong':>8}")
    methods = {
        "linker": ours,
        "dictionary": by_dictionary(mentions, entities),
        "with rapidfuzz": by_rapidfuzz(mentions, entities, gold),
    }
    for name, answers in methods.items():
        click.echo(report(name, answers, gold))
    rights = [f"{100 * share_right(answers, gold):.1f}" for answers in methods.values()]
    head = "base | linker | dictionary | with rapidfuzz | precision, recall of NIL"
    title = TITLES.get(mentions_path.stem, mentions_path.stem)
    write_rows(page, __file__, head, [[title, *rights, of_nil(ours, gold)]])
    if errors:
        for mention, link, ids, kind in zip(mentions, links, gold, kinds, strict=True):
            if (link.entity_id not in ids) if ids else (link.entity_id is not None):
                best = link.candidates[0] if link.candidates else None
                shown = "" if best is None else f"{best.name} {best.probability:.2f}"
                click.echo(
                    f"{kind:14} {mention!r}: {link.canonical_name}; first candidate: {shown}; right: {sorted(ids)}"
                )


if __name__ == "__main__":
    main()
