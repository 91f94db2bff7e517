"""Fits what the letters of a short form say (`linking/ranking/short_forms.json`), on sets that others made.

    python runs/short_form_model.py --work FOLDER [--write] FOLDER...

A FOLDER has `base.tsv` and `mentions.tsv` as for `benchmarks/linking/curated_sets.py`; --work keeps the loaded bases.
A conditional logistic regression over the candidates of each mention that may be a short form, and NIL, beside what the
ranking gives them; sets weigh as the root of their mentions. The best way to a name depends on the weights, so ways and
weights are found in turn. To the mentions of a set come some of other trades, which it lacks. Printed: right / wrong or
absent in percent of its own, before, and by a fit without the set and its trade. Ten minutes.
"""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from unittest import mock

import click
import numpy as np
import numpy.typing as npt
from linking_bases import TRADES
from recipe_tables import ROOT, read_tsv
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from pearl_qdrant import EntityLinker, Link, load_base
from pearl_qdrant.cells import split_list
from pearl_qdrant.lexical.ngrams import IdfTable, fold_name
from pearl_qdrant.linking import candidates
from pearl_qdrant.linking.candidates import SHORT_WORDS
from pearl_qdrant.linking.ranking.short_forms import (
    OF_NIL,
    STEPS,
    ShortForm,
    ShortFormModel,
    best_way,
    nil_steps,
    short_form,
)

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

CANDIDATES, ROUNDS = 20, 4
FOREIGN, WEIGHT = 40, 0.05
"""Short forms of other trades, which a set lacks, and how much one counts beside its own: few lists have such."""
STRENGTH = 0.001  # of what holds weights to `START`
START: dict[str, float] = {
    name: float(value)
    for name, value in (
        one.split("=")
        for one in (
            "first=1.5 start=1.2 small_start=.3 next=.3 capital_next=-.5 inside=-.6 capital_inside=.2 head=.2 number=1 "
            "skip=-.1 skip_rare=-.1 lead=-.1 lead_rare=-.1 tail_rare=-.1 miss=-3 miss_number=-1.5 unlike=-2 "
            "part_start=.5 part_inside=.3 letter_start=.2 part_number=.7 part_miss=-2 part_miss_number=-1"
        ).split()
    )
}
"""Weights that the fit begins at, and is held to, by how abbreviations are made; the others at 0."""
LEAST = 20  # mentions of a set that is printed


@dataclass(frozen=True, slots=True)
class Mention:
    """A short form with its k candidates, as the ranking scores them without `short_forms`."""

    of_set: str
    short: ShortForm
    log_size: float  # natural logarithm of the number of names of the base
    names: list[tuple[list[str], list[float]]]  # folded words, and how rare each is
    logits: FloatArray  # (k + 1,), the last one of NIL
    is_right: npt.NDArray[np.bool_]  # (k + 1,)
    has_entity: bool
    weight: float = 1.0


def short_rows(folder: Path) -> list[dict[str, str]]:
    """The mentions of a set that may be short forms."""
    return [row for row in read_tsv(folder / "mentions.tsv") if short_form(row["mention"]) is not None]


def read_set(folder: Path, work: Path, rows: list[dict[str, str]], foreign: Sequence[str]) -> list[Mention]:
    """The short forms of a set that no rule decides, with their candidates, and those of other sets, which it lacks."""
    rows = rows + [{"mention": mention, "gold": "NIL"} for mention in foreign]
    if not (work / folder.name).exists():
        load_base(folder / "base.tsv", collection=folder.name, store=work)
    names = [n for row in read_tsv(folder / "base.tsv") for n in (row["name"], *split_list(row.get("aliases") or ""))]
    idf = IdfTable.from_names(names)
    # as the ranking alone answers
    alone = mock.patch.object(candidates, "short_form", return_value=None)
    with alone, EntityLinker.open(folder.name, store=work, read_only=True) as linker:
        links = list(linker.link_batch([row["mention"] for row in rows], limit=CANDIDATES))
    gold = [frozenset(row["gold"].split("|")) - {"NIL"} for row in rows]
    weights = [1.0] * (len(rows) - len(foreign)) + [WEIGHT] * len(foreign)
    return [
        replace(mention_of(folder.name, link, ids, idf, math.log(len(names))), weight=weight)
        for link, ids, weight in zip(links, gold, weights, strict=True)
        if link.candidates and link.rule not in ("exact name", "entity id", "slip")
    ]


def mention_of(of_set: str, link: Link, gold: frozenset[str], idf: IdfTable, log_size: float) -> Mention:
    """A link as what the fit reads."""
    short = short_form(link.mention)
    assert short is not None
    first = link.candidates[0]
    left = 1.0 - sum(one.probability or 0.0 for one in link.candidates)
    nil = first.score + math.log(max(left, 1e-6) / max(first.probability or 0.0, 1e-6))
    names = []
    for one in link.candidates:
        words = fold_name(one.name).split()[:SHORT_WORDS]
        frequencies = idf.word_frequencies(words)
        names.append((words, [1.0 - frequencies[word] for word in words]))
    logits = [*(one.score for one in link.candidates), nil]
    right = [one.entity_id in gold for one in link.candidates]
    return Mention(of_set, short, log_size, names, np.array(logits), np.array([*right, not any(right)]), bool(gold))


def features(mention: Mention, model: ShortFormModel) -> FloatArray | None:
    """Steps of the best ways, (k + 1, steps and `OF_NIL`); None where no candidate fits."""
    ways = [best_way(mention.short, *name, model) for name in mention.names]
    if all(way is None for way in ways):
        return None
    rows = [{"unlike": 1.0} if way is None else way for way in ways]
    of_nil = nil_steps(mention.short, mention.log_size)
    return np.array(
        [
            *([row.get(step, 0.0) for step in STEPS] + [0.0] * len(OF_NIL) for row in rows),
            [0.0] * len(STEPS) + [of_nil[name] for name in OF_NIL],
        ]
    )


def model_of(weights: FloatArray) -> ShortFormModel:
    """The weights by name."""
    of_steps, of_nil = weights[: len(STEPS)].tolist(), weights[len(STEPS) :].tolist()
    return ShortFormModel(dict(zip(STEPS, of_steps, strict=True)), dict(zip(OF_NIL, of_nil, strict=True)))


def _loss(
    weights: FloatArray, steps: FloatArray, logits: FloatArray, right: BoolArray, share: FloatArray, start: FloatArray
) -> tuple[float, FloatArray]:
    """The loss of the weights of p steps, and its gradient, (p,); steps are (m, k, p), logits and right ones (m, k)."""
    of_all = softmax(logits + steps @ weights, axis=1)
    of_right = np.where(right, of_all, 0.0)
    total = np.maximum(of_right.sum(axis=1), 1e-12)
    slope = np.einsum("m,mk,mkp->p", share, of_all - of_right / total[:, None], steps)
    far = weights - start
    return float(STRENGTH * far @ far - share @ np.log(total)), 2 * STRENGTH * far + slope


def fit(mentions: Sequence[Mention]) -> ShortFormModel:
    """The weights that explain the answers best."""
    start = np.array([START.get(name, 0.0) for name in (*STEPS, *OF_NIL)])
    sizes: defaultdict[str, float] = defaultdict(float)
    for one in mentions:
        sizes[one.of_set] += one.weight
    weights = start
    for _ in range(ROUNDS):
        model = model_of(weights)
        found = [(one, rows) for one in mentions if (rows := features(one, model)) is not None]
        share = np.array([one.weight * sizes[one.of_set] ** -0.5 for one, _ in found])
        share /= share.sum()
        width = max(len(rows) for _, rows in found)
        steps, logits = np.zeros((len(found), width, len(start))), np.full((len(found), width), -np.inf)
        right = np.zeros((len(found), width), dtype=np.bool_)
        for i, (one, rows) in enumerate(found):
            steps[i, : len(rows)], logits[i, : len(rows)], right[i, : len(rows)] = rows, one.logits, one.is_right
        loss = partial(_loss, steps=steps, logits=logits, right=right, share=share, start=start)
        weights = minimize(loss, weights, jac=True, method="L-BFGS-B", options={"maxiter": 60}).x
    return model_of(weights)


def answers(mentions: Sequence[Mention], model: ShortFormModel | None) -> tuple[float, float]:
    """Right, and wrong or absent, in percent, at a threshold of 0.5."""
    right = wrong = 0
    for one in mentions:
        rows = None if model is None else features(one, model)
        logits = one.logits
        if model is not None and rows is not None:
            logits = logits + rows @ np.array([*(model.steps[s] for s in STEPS), *(model.nil[s] for s in OF_NIL)])
        first = int(logits[:-1].argmax())
        is_link = logits[first] - logsumexp(logits) >= math.log(0.5)
        is_right = bool(one.is_right[first]) if is_link else not one.has_entity
        right, wrong = right + is_right, wrong + (is_link and not is_right)
    return 100 * right / len(mentions), 100 * wrong / len(mentions)


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Keeps the loaded bases.")
@click.option("--write", is_flag=True, help="Write the weights into the package.")
def main(folders: tuple[Path, ...], work: Path, *, write: bool) -> None:
    """Fit the weights, and print what they give for each set left out."""
    trades = [line.split() for line in TRADES]
    of_sets = {folder.name: short_rows(folder) for folder in folders}
    mentions: list[Mention] = []
    for folder in folders:
        trade = next((line for line in trades if folder.name in line), [folder.name])
        others = [row["mention"] for name, rows in of_sets.items() if name not in trade for row in rows]
        foreign = random.Random(folder.name).sample(others, min(FOREIGN, len(others)))
        mentions += read_set(folder, work, of_sets[folder.name], foreign)
    names = [name for name, rows in of_sets.items() if len(rows) >= LEAST]
    for name in names:
        trade = next((line for line in trades if name in line), [name])
        own = [one for one in mentions if one.of_set == name and one.weight == 1.0]
        left_out = answers(own, fit([one for one in mentions if one.of_set not in trade]))
        shown = " -> ".join(f"{right:.1f} / {wrong:.1f}" for right, wrong in (answers(own, None), left_out))
        click.echo(f"{name}: {len(own)} short forms, {shown}")
    model = fit(mentions)
    if write:
        rounded = {
            part: {name: round(value, 3) for name, value in values.items()}
            for part, values in (("steps", model.steps), ("nil", model.nil))
        }
        path = ROOT / "pearl_qdrant" / "linking" / "ranking" / "short_forms.json"
        path.write_text(json.dumps(rounded, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
