"""Fits how much the other columns of a row count (`pearl_qdrant/linking/properties.json`).

    python runs/properties.py FOLDER... [--work WORK] [--write]

Each FOLDER has `base.tsv` (id, name, type, aliases by `|`, further columns) and `mentions.tsv` (mention, gold: ids by
`|`, or NIL, kind, the same further columns). Persons are made beside them (`made_persons.py`). Printed is each set by a
fit without it: right, and linked though wrong or absent, in per cent; by the names alone, with the columns as a list,
with the columns row by row, and as a list with one of five rows or one column of another row.

`right` and `other` are counted, each set alike; the rest is fitted by simplex search on the likelihood of the answers,
half of it row by row.
"""

from __future__ import annotations

import json
import math
import pickle
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from made_persons import COLUMNS, make_persons
from recipe_tables import ROOT, read_tsv
from scipy.optimize import minimize

from pearl_qdrant import EntityLinker
from pearl_qdrant.linking.properties import CANDIDATES, ComparedRows, Evidence, Row, Weights, compare_rows
from pearl_qdrant.linking.values import KINDS, LEVELS, BaseColumn, Kind
from pearl_qdrant.records import Entity

FITTED = ROOT / "pearl_qdrant/linking/properties.json"
OWN = ("id", "name", "type", "aliases", "mention", "gold", "kind")
START: dict[str, tuple[float, ...]] = {
    "right": (0.7, 0.1, 0.05, 0.05, 0.1),
    "other": (0.05, 0.03, 0.03, 0.09, 0.8),
}
"""What each kind has before any set is counted, as `PRIOR` of them."""
PRIOR = 0.4
FIRST = np.array([0.7, 1.1, 0.9, 0.65, 0.8, *np.log([0.025, 28, 18, 0.5, 1e-3, 0.05])])
WIDTH = np.array([0.3, 0.3, 0.3, 0.3, 0.3, 0.7, 0.7, 0.7, 0.5, 1.0, 0.7])


@dataclass(slots=True)
class Table:
    """A list with its answers, linked by names."""

    name: str
    names: list[str]
    rows: list[dict[str, str]]
    base: dict[str, dict[str, str]]
    gold: list[frozenset[str]]
    found: list[list[tuple[str, float]]]  # candidates with their probabilities
    columns: dict[str, BaseColumn]

    def compared(self, rows: Sequence[dict[str, str]] | None = None) -> ComparedRows:
        """The rows, or others in their place, beside the candidates."""
        own: list[Row] = [{c: [one[c]] for c in self.names if one[c]} for one in (self.rows if rows is None else rows)]
        has = [[{c: [self.base[i][c]] for c in self.names if self.base[i][c]} for i, _ in some] for some in self.found]
        return compare_rows(own, [[p for _, p in some] for some in self.found], has, self.columns, UNFITTED)

    def is_right(self, width: int) -> npt.NDArray[np.bool_]:
        """Whether a candidate is the right one, (n, k)."""
        right = np.zeros((len(self.rows), width), dtype=bool)
        for i, (some, gold) in enumerate(zip(self.found, self.gold, strict=True)):
            right[i, : len(some)] = [one in gold for one, _ in some]
        return right


def _even(values: Sequence[float]) -> dict[Kind, Sequence[float]]:
    return dict.fromkeys(KINDS, values)


UNFITTED = Weights(
    _even(START["right"]), _even(START["other"]), dict.fromkeys(KINDS, 1.0), 0.7, 0.03, 30, 10, 0.5, 1e-3, 5e-3
)


def read_table(folder: Path | None, work: Path) -> Table:
    """A table of a folder, or made persons; its links are kept in `work`."""
    if folder is None:
        base, rows = make_persons()
        rows = [{**row, "mention": row["name"]} for row in rows]
        names, name = list(COLUMNS), "persons"
    else:
        base = {row["id"]: row for row in read_tsv(folder / "base.tsv")}
        rows = list(read_tsv(folder / "mentions.tsv"))
        names, name = [one for one in rows[0] if one not in OWN], folder.name
    kept = work / f"{name}.pickle"
    if not kept.exists():
        entities = [Entity(i, one["name"], kb_types=(one.get("type") or "thing",)) for i, one in base.items()]
        with EntityLinker.build(entities) as linker:
            links = linker.link_batch([row["mention"] for row in rows], limit=CANDIDATES)
            found = [[(one.entity_id, one.probability or 0.0) for one in link.candidates] for link in links]
        kept.write_bytes(pickle.dumps(found))
    found = pickle.loads(kept.read_bytes())  # noqa: S301 - written above
    gold = [frozenset(row["gold"].split("|")) - {"NIL"} for row in rows]
    columns = {c: BaseColumn.of([[one[c]] for one in base.values() if one[c]]) for c in names}
    return Table(name, names, rows, base, gold, found, columns)


@dataclass(slots=True)
class Case:
    """A table that is compared."""

    table: Table
    rows: ComparedRows
    is_right: npt.NDArray[np.bool_]

    def posterior(self, weights: Weights, *, is_list: bool) -> npt.NDArray[np.float64]:
        """Probabilities of the candidates, (n, k)."""
        evidence = Evidence(self.table.columns, weights)
        if is_list:
            evidence.learn(self.rows)
        return evidence.updated(self.rows.probabilities, evidence.logits(self.rows))

    def loss(self, posterior: npt.NDArray[np.float64]) -> float:
        """Mean negative log-likelihood of the answers."""
        of_right = np.where(self.is_right, posterior, 0.0).sum(axis=1)
        chance = np.where([bool(one) for one in self.table.gold], of_right, 1 - posterior.sum(axis=1))
        return float(-np.log(np.clip(chance, 1e-3, 1.0)).mean())

    def score(self, posterior: npt.NDArray[np.float64]) -> str:
        """Right, and linked though wrong or absent, in per cent."""
        best = posterior.argmax(axis=1)
        at = np.arange(len(best))
        is_linked, has = posterior[at, best] >= 0.5, np.array([bool(one) for one in self.table.gold])
        right = np.where(has, is_linked & self.is_right[at, best], ~is_linked)
        wrong = is_linked & ~self.is_right[at, best]
        return f"{100 * right.mean():.1f} / {100 * wrong.mean():.1f}"


def case_of(table: Table, rows: Sequence[dict[str, str]] | None = None) -> Case:
    """A table, or other rows in its place, compared with the candidates."""
    compared = table.compared(rows)
    return Case(table, compared, table.is_right(compared.probabilities.shape[1]))


def counted(cases: Sequence[Case]) -> dict[str, dict[Kind, Sequence[float]]]:
    """How often right and other entities agree at each level, by kind."""
    shares: dict[str, dict[Kind, Sequence[float]]] = {"right": {}, "other": {}}
    for kind in KINDS:
        found = {part: [PRIOR * np.array(START[part])] for part in shares}
        for case in cases:
            for c, column in enumerate(case.table.columns.values()):
                if column.kind == kind:
                    levels = case.rows.levels[:, :, c][case.is_right]
                    counts = np.bincount(levels[levels >= 0], minlength=LEVELS)
                    found["right"].append(counts / max(1, counts.sum()))
                    found["other"].append(np.array(column.other))
        for part, some in found.items():
            total = np.sum(some, axis=0)
            shares[part][kind] = [round(float(one), 4) for one in total / total.sum()]
    return shares


def weights_of(x: npt.NDArray[np.float64], shares: dict[str, Any]) -> Weights:
    """Weights by the numbers that are searched."""
    weight = {kind: round(abs(float(one)), 3) for kind, one in zip(KINDS, x, strict=False)}
    rest = [abs(float(x[4])), min(math.exp(float(x[5])), 0.3), *(math.exp(min(float(one), 8.0)) for one in x[6:9])]
    least = [min(math.exp(float(one)), 0.2) for one in x[9:11]]
    names = ("against", "astray", "rows", "local", "near", "least", "least_nil")
    numbers: dict[str, Any] = dict(zip(names, [float(f"{one:.3g}") for one in rest + least], strict=True))
    return Weights(**shares, weight=weight, **numbers)


def damaged(case: Case, seed: int) -> dict[str, Case]:
    """The table with a fifth of its rows beside the columns of others, and with each column of other rows."""
    table, rng = case.table, random.Random(seed)
    some = rng.sample(range(len(table.rows)), len(table.rows) // 5)
    rows = [dict(one) for one in table.rows]
    for i, j in zip(some, some[1:] + some[:1], strict=True):
        rows[i] |= {c: table.rows[j][c] for c in table.names}
    found = {"fifth": case_of(table, rows)}
    for name in table.names:
        values = [one[name] for one in table.rows]
        rng.shuffle(values)
        found[name] = case_of(table, [{**row, name: value} for row, value in zip(table.rows, values, strict=True)])
    return found


def _some(found: dict[str, Case]) -> list[Case]:
    """The first two of the wrong tables."""
    return list(found.values())[:2]


def fit(cases: Sequence[Case], *, tries: int) -> Weights:
    """Weights fitted to some tables, row by row and as lists; and to lists with wrong columns, half as much."""
    shares = counted(cases)
    wrong = [one for case in cases for one in _some(damaged(case, 3))]

    def loss(x: npt.NDArray[np.float64]) -> float:
        weights = weights_of(x, shares)
        of_sets = [one.loss(one.posterior(weights, is_list=is_list)) for one in cases for is_list in (True, False)]
        of_wrong = [one.loss(one.posterior(weights, is_list=True)) for one in wrong]
        penalty = 0.01 * float((((x - FIRST) / WIDTH) ** 2).sum())
        return float(np.mean(of_sets) + 0.5 * np.mean(of_wrong)) + penalty

    simplex = np.vstack([FIRST, FIRST + np.diag(WIDTH)])
    found = minimize(loss, FIRST, method="Nelder-Mead", options={"maxfev": tries, "initial_simplex": simplex})
    return weights_of(found.x, shares)


def report(case: Case, weights: Weights) -> None:
    """Print what a set has with weights, and with columns that are wrong."""
    table, cells = case.table, [case.score(case.rows.probabilities)]
    cells += [case.score(case.posterior(weights, is_list=is_list)) for is_list in (True, False)]
    for name, other in damaged(case, 7).items():
        cells.append(f"{name} {other.score(other.posterior(weights, is_list=True))}")
    click.echo(" | ".join([table.name, *cells]))


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--work", type=click.Path(path_type=Path), default=Path("properties-work"), help="Keeps the links.")
@click.option("--tries", default=250, help="Evaluations of a search.")
@click.option("--write", is_flag=True, help="Write the weights into the package.")
def main(folders: tuple[Path, ...], work: Path, tries: int, write: bool) -> None:
    """Fit how much the other columns of a row count."""
    work.mkdir(parents=True, exist_ok=True)
    cases = [case_of(read_table(folder, work)) for folder in (*folders, None)]
    fitted = fit(cases, tries=tries)
    if write:
        FITTED.write_text(json.dumps(asdict(fitted), indent=1) + "\n", "utf-8")
    click.echo(json.dumps({key: value for key, value in asdict(fitted).items() if key not in ("right", "other")}))
    for case in cases:
        report(case, fit([one for one in cases if one is not case], tries=tries))


if __name__ == "__main__":
    main()
