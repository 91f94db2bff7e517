"""Measures `crosswalk` where canonical names are hidden, with its own coefficients and with fitted ones.

    python runs/resolution/crosswalk.py --data FOLDER --work FOLDER

--data has `kb/biomedical/`. The Disease Ontology and ORDO are matched with Mondo. Gold is an equal canonical name, up
to folding, of exactly one Mondo entity; the match does not see it: the entity keeps its EXACT synonyms alone, without
any that is equal to the hidden name. Entities that have no other name are left out. A fifth of the gold entities is
missing in Mondo as it is loaded, so that NIL is right for their partners. Train and development by the id of the Mondo
entity (`training.examples.example`); at most `SIZE` entities of each.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np
from sklearn.linear_model import LogisticRegression

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from recipe_tables import exact_synonyms, page_option, read_tsv, write_rows

from pearl_qdrant import Entity, EntityLinker, load_base
from pearl_qdrant import crosswalk as evidence
from pearl_qdrant.cells import join_list
from pearl_qdrant.crosswalk import assign
from pearl_qdrant.lexical.ngrams import fold_name
from training.examples.example import DEVELOPMENT_SPLITS, TRAIN_SPLITS, split_of

SIZE = 900
MONDO, OTHERS = "mondo_2026", ("doid_2024", "ordo_2018")
THRESHOLDS = (0.5, 0.8, 0.9, 0.95)

Found = list[tuple[str, list[evidence.Evidence]]]


@dataclass(frozen=True, slots=True)
class Gold:
    """An entity without its canonical name, and its entity in Mondo."""

    entity: Entity
    gold: str


def entities(data: Path, stem: str) -> Iterator[Entity]:
    """Entities with their EXACT synonyms."""
    for row in read_tsv(data / "kb" / "biomedical" / f"{stem}.tsv"):
        yield Entity(row["id"], row["name"], tuple(dict.fromkeys(exact_synonyms(row))))


def is_missing(mondo_id: str) -> bool:
    """Whether an entity is left out of Mondo as it is loaded: a fifth, by a hash."""
    return int(hashlib.md5(mondo_id.encode(), usedforsecurity=False).hexdigest(), 16) % 5 == 0


def gold_of(data: Path, stem: str) -> list[Gold]:
    """Entities with exactly one Mondo entity of the same canonical name, that name hidden."""
    by_name: dict[str, list[str]] = {}
    for one in entities(data, MONDO):
        by_name.setdefault(fold_name(one.canonical_name), []).append(one.entity_id)
    found = []
    for one in entities(data, stem):
        hidden = fold_name(one.canonical_name)
        names = [alias for alias in one.aliases if fold_name(alias) != hidden]
        if names and len(gold := by_name.get(hidden, [])) == 1:
            found.append(Gold(Entity(one.entity_id, names[0], tuple(names[1:])), gold[0]))
    return found


def samples(gold: list[Gold]) -> tuple[list[Gold], list[Gold]]:
    """At most `SIZE` entities of the training splits, and of the development splits."""
    rng = random.Random(0)
    parts = [[one for one in gold if split_of(one.gold) in splits] for splits in (TRAIN_SPLITS, DEVELOPMENT_SPLITS)]
    for part in parts:
        rng.shuffle(part)
    return parts[0][:SIZE], parts[1][:SIZE]


def load(data: Path, work: Path) -> None:
    """Load Mondo without what is missing, unless it is loaded."""
    if (work / "store" / "mondo").exists():
        return
    chosen = (one for stem in OTHERS for part in samples(gold_of(data, stem)) for one in part)
    missing = {one.gold for one in chosen if is_missing(one.gold)}
    path = work / "mondo.tsv"
    with path.open("w", encoding="utf-8") as file:
        file.write("id\tname\taliases\n")
        for one in entities(data, MONDO):
            if one.entity_id not in missing:
                aliases = join_list(one.aliases)
                file.write(f"{one.entity_id}\t{one.canonical_name}\t{aliases}\n")
    load_base(path, "mondo", store=str(work / "store"))


def evidence_for(linker: EntityLinker, gold: list[Gold]) -> Found:
    """What the names of each entity say."""
    names = [evidence.names_to_link(one.entity) for one in gold]
    links = iter(list(linker.link_batch([name for of_one in names for name in of_one], workers=1)))
    return [
        (one.gold, evidence.evidence_of(one.entity, [next(links) for _ in of_one]))
        for one, of_one in zip(gold, names, strict=True)
    ]


def report(name: str, found: Found) -> list[str]:
    """Precision and recall at each threshold, one to one, in percent; printed, too."""
    click.echo(f"{name}: {len(found)} entities, {sum(is_missing(gold) for gold, _ in found)} without a partner")
    possible = {
        i: {one.candidate.entity_id: one.probability for one in of_one if one.probability > 0.05}
        for i, (_, of_one) in enumerate(found)
    }
    partners, shares = assign(possible), []
    for threshold in THRESHOLDS:
        chosen = {i: key for i, key in partners.items() if possible[i][key] >= threshold}
        right = sum(found[i][0] == key for i, key in chosen.items())
        n_gold = sum(not is_missing(gold) for gold, _ in found)
        shares.append(f"{100 * right / max(len(chosen), 1):.1f}, {100 * right / n_gold:.1f}")
        click.echo(f"  {threshold:.2f}  precision, recall {shares[-1]}")
    return shares


def fit(found: Found) -> None:
    """Print the coefficients."""
    rows = [(one.features, one.candidate.entity_id == gold) for gold, of_one in found for one in of_one]
    x, y = np.array([features for features, _ in rows]), np.array([is_right for _, is_right in rows])
    model = LogisticRegression(C=10, max_iter=1000).fit(x, y)
    evidence.WEIGHTS.update(zip(evidence.FEATURES, model.coef_[0].round(2).tolist(), strict=True))
    evidence.BIAS = round(float(model.intercept_[0]), 2)
    click.echo(f"{evidence.WEIGHTS} {evidence.BIAS}")


def scored_again(found: Found) -> Found:
    """With the probabilities of the coefficients that were just fitted."""
    return [
        (gold, [replace(one, probability=evidence.probability_of(one.features)) for one in of_one])
        for gold, of_one in found
    ]


@click.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--work", type=click.Path(path_type=Path), required=True)
@page_option
def main(data: Path, work: Path, page: Path | None) -> None:
    """Fit and measure."""
    work.mkdir(parents=True, exist_ok=True)
    load(data, work)
    parts = {stem: samples(gold_of(data, stem)) for stem in OTHERS}
    with EntityLinker.open("mondo", store=str(work / "store"), read_only=True) as linker:
        train = [pair for stem in OTHERS for pair in evidence_for(linker, parts[stem][0])]
        found = {stem: evidence_for(linker, parts[stem][1]) for stem in OTHERS}
        columns = [report(stem, found[stem]) for stem in OTHERS]
        rows = [list(cells) for cells in zip(map(str, THRESHOLDS), *columns, strict=True)]
        write_rows(page, __file__, "threshold | Disease Ontology | ORDO", rows)
        fit(train)
        for stem in OTHERS:
            report(f"{stem}, fitted coefficients", scored_again(found[stem]))


if __name__ == "__main__":
    main()
