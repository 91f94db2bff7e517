"""The recipe of `pairs.npz` in `pearl_qdrant/resolution/pairs/`: whether two names mean the same.

    python runs/resolution/model.py --data FOLDER --out pearl_qdrant/resolution/pairs/pairs.npz

--data has `kb/` (TSV with a header). The pairs are the candidates that `resolve` finds among names of development
entities, which the judge of two names has not seen: sets in which each entity has several names
(`data.development_sets` without the mentions of news), sets as extraction from text gives them, most things with one
name and siblings beside them (`data.graph_sets`), and places and languages with names of the world
(`data.world_names`). A pair is right if both names are of one entity.

The trees are boosted ones (lightgbm) on what the judge reads; more of a likeness never speaks against a pair. Pairs of
persons with a known name each are left out and get a coefficient: too few are right for trees. The printed figures are
cross-fitted, by trees that were fitted without a set, and by those without the entities of a pair. So are the
thresholds: that of a precision is one at which the clusters of the sets have it on average, by the mean of both, and
none is far below. The shift of each list (`PairModel.shift`) begins at the share of candidates that are
right in all sets.
--work keeps the pairs with the judge's scores; a new judge needs a new folder. About five minutes on two quiet cores.
"""

from __future__ import annotations

import logging
import pickle
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import click
import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from sklearn.linear_model import LogisticRegression

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ranking_fit import to_forest

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.ranking.forest import Forest
from pearl_qdrant.resolution.clusters import CERTAIN, FORBIDDEN, PairTable, cluster_names
from pearl_qdrant.resolution.names import NameRecord, gather, key_of
from pearl_qdrant.resolution.pairs.comparison import Comparison, pack_pairs, unpack_pairs
from pearl_qdrant.resolution.pairs.features import COLUMN, CONTRADICTED, POSSIBLE
from pearl_qdrant.resolution.pairs.model import JUDGED_FEATURES, N_SPLIT, PairModel, probability_of
from pearl_qdrant.settings import DEFAULT_MODEL
from resolution.data import GoldName, development_sets, graph_sets, near_words, world_names
from training.examples.example import DEVELOPMENT_SPLITS

BELOW = 0.03
"""How much lower the precision of one set may be than what is wanted."""
PRECISIONS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
THRESHOLDS = (0.03, 0.1, 0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.96, 0.98)
FOLDS = 3  # of entities
SIZE = 4000  # names of each set
KEPT = 0.88
"""Share of the right open pairs that the quick look leaves to the judge, on average; it takes few of the others."""

RISING = ("judge", "dense", "edit", "skeleton")  # features that never speak against a pair
TREES = {
    "num_leaves": 8,
    "learning_rate": 0.06,
    "min_data_in_leaf": 30,
    "min_sum_hessian_in_leaf": 4,
    "lambda_l2": 10,
    "feature_fraction": 0.5,
    "objective": "binary",
    "num_threads": 1,
    "deterministic": True,
    "seed": 1,
    "verbose": -1,
}
N_TREES = 150

_log = logging.getLogger("resolution")

FloatArray = npt.NDArray[np.float64]


@dataclass(slots=True)
class Pairs:
    """Candidates of a set: p of them."""

    names: list[str]  # the name of each form
    gold: list[str | None]  # the entity of each form; None for one of several entities
    pairs: npt.NDArray[np.int64]  # (p, 2)
    features: npt.NDArray[np.float32]  # (p, features)
    is_right: npt.NDArray[np.bool_]  # (p,)
    is_open: npt.NDArray[np.bool_]  # (p,), false where a contradiction or doubt forbids a merge
    is_same: npt.NDArray[np.bool_]  # (p,), whether the words are the same (`same_words.sameness`)
    judged: FloatArray  # (p,), the judge's scores; NaN where it was not asked

    def folds(self) -> npt.NDArray[np.int64]:
        """The fold of the entity of the first name, (p,)."""
        of_form = np.array([crc32((gold or "").encode()) % FOLDS for gold in self.gold])
        return of_form[self.pairs[:, 0]]

    @property
    def is_known(self) -> npt.NDArray[np.bool_]:
        """Pairs of persons with a known name each that the other lacks."""
        return self.features[:, N_SPLIT] > 0

    @property
    def is_asked(self) -> npt.NDArray[np.bool_]:
        """Pairs that the trees decide."""
        return self.is_open & ~self.is_same & ~np.isnan(self.judged)


def pairs_of(names: list[GoldName], encoder: Encoder) -> tuple[Pairs, Comparison]:
    """Candidates of a set of names with their features, not judged."""
    forms = gather(NameRecord(one.name, one.type) for one in names)
    owners: dict[tuple[str, str], set[str]] = {}
    for one in names:
        owners.setdefault(key_of(" ".join(one.name.split()), one.type), set()).add(one.gold)
    gold = [next(iter(found)) if len(found := owners[key]) == 1 else None for key in forms.keys]
    comparison = Comparison(forms, encoder)
    pairs = unpack_pairs(comparison.candidates())
    pairs = pairs[[gold[a] is not None and gold[b] is not None for a, b in pairs.tolist()]]
    features, rows = comparison.features(pairs), pairs.tolist()
    is_same = np.array([comparison.sameness(a, b) > 0 for a, b in rows])
    against = features[:, COLUMN["against"]]
    is_open = (against == POSSIBLE) | (is_same & (against < CONTRADICTED))
    is_open &= [not comparison.doubt(a, b, is_same=one) for (a, b), one in zip(rows, is_same.tolist(), strict=True)]
    is_right = np.array([gold[a] == gold[b] for a, b in rows])
    unknown = np.full(len(pairs), np.nan)
    names_of = [forms.name(form) for form in range(len(forms))]
    return Pairs(names_of, gold, pairs, features, is_right, is_open, is_same, unknown), comparison


def weights_of(sets: Sequence[npt.NDArray[np.bool_]]) -> FloatArray:
    """Weights of the chosen pairs by which each set counts the same; their mean is 1."""
    every: FloatArray = np.concatenate([np.full(one.sum(), 1 / max(one.sum(), 1)) for one in sets])
    every /= every.mean()
    return every


def fit_gate(sets: list[Pairs]) -> tuple[FloatArray, float, float]:
    """The quick look: coefficients, bias, and the logit from which the judge reads a pair."""
    chosen = [one.is_open & ~one.is_same & ~one.is_known for one in sets]
    x = np.concatenate([one.features[rows] for one, rows in zip(sets, chosen, strict=True)]).astype(np.float64)
    y = np.concatenate([one.is_right[rows] for one, rows in zip(sets, chosen, strict=True)])
    mean, scale = x.mean(axis=0), x.std(axis=0) + 1e-6
    found = LogisticRegression(C=0.1, max_iter=300).fit((x - mean) / scale, y, sample_weight=weights_of(chosen))
    gate = found.coef_[0] / scale * (x.std(axis=0) > 0)
    bias = float(found.intercept_[0] - gate @ mean)
    right = (one.features[rows & one.is_right] @ gate + bias for one, rows in zip(sets, chosen, strict=True))
    return gate, bias, float(np.mean([np.quantile(logits, 1 - KEPT) for logits in right]))


def fit_forest(sets: list[Pairs], *, without: int | None = None) -> Forest:
    """The trees; each set weighs the same. `without`: a fold of entities that they do not learn from."""
    import lightgbm

    chosen = [one.is_asked & ~one.is_known & (one.folds() != without) for one in sets]
    rows = [np.column_stack((one.judged, one.features[:, :N_SPLIT]))[of] for one, of in zip(sets, chosen, strict=True)]
    right = np.concatenate([one.is_right[of] for one, of in zip(sets, chosen, strict=True)])
    weights = weights_of(chosen)
    start = float(np.log(weights @ right / (weights @ ~right)))
    data = lightgbm.Dataset(np.concatenate(rows), right, weight=weights, init_score=np.full(len(right), start))
    how = {**TREES, "monotone_constraints": [int(name in RISING) for name in JUDGED_FEATURES]}
    return to_forest(lightgbm.train(how, data, N_TREES).dump_model()["tree_info"], start, JUDGED_FEATURES)


def fit_known_name(sets: list[Pairs], model: PairModel) -> float:
    """What known names add to the logit: with it, as many pairs are expected to be right as are, and half a one."""
    chosen = [one.is_asked & one.is_known for one in sets]
    logits = np.concatenate(
        [model.logits(one.features[of], one.judged[of]) for one, of in zip(sets, chosen, strict=True)]
    )
    n_right = sum(int(one.is_right[of].sum()) for one, of in zip(sets, chosen, strict=True))
    _log.info("known names: %d pairs, %d right", len(logits), n_right)
    return float(brentq(lambda added: probability_of(logits + added).sum() - n_right - 0.5, -20, 20))


def probabilities_of(one: Pairs, logits: FloatArray, model: PairModel) -> FloatArray:
    """Probabilities of the pairs of a set as `resolve` has them, `FORBIDDEN` where nothing may merge them; `logits`: of
    the pairs that are asked.
    """
    every = np.where(one.is_same, np.log(CERTAIN / (1 - CERTAIN)), -30.0)
    every[one.is_asked] = np.where(model.quick_logits(one.features[one.is_asked]) >= model.least, logits, -30.0)
    found = probability_of(every + model.shift(every[one.is_open], len(every)))
    found[one.is_same] = np.maximum(found[one.is_same], CERTAIN)
    found[~one.is_open] = FORBIDDEN
    return found


def held_out(sets: list[Pairs], model: PairModel) -> Iterator[list[FloatArray]]:
    """Probabilities of the sets by trees that were fitted without the set, and without the entities of a pair."""

    def logits(one: Pairs, forest: Forest) -> FloatArray:
        return replace(model, forest=forest).logits(one.features[one.is_asked], one.judged[one.is_asked])

    by_set = [logits(one, fit_forest([other for other in sets if other is not one])) for one in sets]
    yield [probabilities_of(one, found, model) for one, found in zip(sets, by_set, strict=True)]
    forests = [fit_forest(sets, without=fold) for fold in range(FOLDS)]
    by_entity = [np.choose(one.folds()[one.is_asked], [logits(one, forest) for forest in forests]) for one in sets]
    yield [probabilities_of(one, found, model) for one, found in zip(sets, by_entity, strict=True)]


def merges_at(one: Pairs, probabilities: FloatArray, threshold: float) -> tuple[int, int]:
    """Right pairs and all pairs in the forms' clusters at a threshold."""
    n = len(one.pairs)
    table = PairTable(
        *(pack_pairs(one.pairs), probabilities.copy(), np.zeros(n, np.uint8)),
        lambda pairs: ([0.0] * len(pairs), [0] * len(pairs)),
    )
    right = total = 0
    for cluster in cluster_names(table, threshold, prefer=lambda members: dict.fromkeys(members, 0.0)):
        counts = Counter(one.gold[member] for member in cluster.members)
        right += sum(n * (n - 1) // 2 for n in counts.values())
        total += counts.total() * (counts.total() - 1) // 2
    return right, total


def choose(sets: list[Pairs], probabilities: list[list[FloatArray]]) -> list[tuple[float, float]]:
    """The reachable precisions with their thresholds, at which the clusters of the sets have it on average, and each of
    them at most `BELOW` less; by the mean of several cross-fits.
    """
    reached: list[float] = []
    for threshold in THRESHOLDS:
        shares = []
        for given in probabilities:
            merged = [merges_at(one, p, threshold) for one, p in zip(sets, given, strict=True)]
            shares.append([right / max(total, 1) for right, total in merged])
            _log.info("%.3f  %s", threshold, _shares(sets, merged))
        precisions = np.mean(shares, axis=0)
        reached.append(float(max([min(precisions.mean(), precisions.min() + BELOW), *reached[-1:]])))
    lowest, highest = (float(np.floor(100 * one) / 100) for one in (reached[0], reached[-1]))
    wanted = sorted({lowest, *(one for one in PRECISIONS if lowest < one < highest), highest})
    found = [(one, float(np.interp(one, reached, THRESHOLDS))) for one in wanted]
    _log.info("%s", "; ".join(f"{precision} from {threshold:.3f}" for precision, threshold in found))
    return found


def _shares(sets: list[Pairs], merged: list[tuple[int, int]]) -> str:
    """Precision and recall of pairs of each set."""
    possible = [sum(n * (n - 1) // 2 for gold, n in Counter(one.gold).items() if gold is not None) for one in sets]
    return "; ".join(
        f"{100 * right / max(total, 1):.1f} {100 * right / of:.1f}"
        for (right, total), of in zip(merged, possible, strict=True)
    )


@click.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--model", default=DEFAULT_MODEL)
@click.option("--work", type=click.Path(path_type=Path), help="Folder that keeps the pairs of each set.")
@click.option("--size", type=int, default=SIZE, show_default=True, help="Names of each set.")
def main(data: Path, out: Path, model: str, work: Path | None, size: int) -> None:
    """Fit the trees and the thresholds."""
    logging.basicConfig(level=logging.INFO)
    kept = None if work is None else work / "pairs.pickle"  # of our own making
    if kept is not None and kept.exists():
        sets = pickle.loads(kept.read_bytes())  # noqa: S301
    else:
        sets = judged_sets(data, load_encoder(model, device="cpu"), size)
        if kept is not None:
            kept.write_bytes(pickle.dumps(sets))
    every = list(sets.values())
    gate, bias, least = fit_gate(every)
    prior = float(np.mean([one.is_right.mean() for one in every]))
    for name, one in sets.items():
        _log.info("%s: %d forms, %d pairs, %d judged", name, len(one.names), len(one.pairs), one.is_asked.sum())
    found = PairModel(fit_forest(every), gate, bias, 0.0, least, ((0.5, 0.5),), prior)
    found = replace(found, known_name=fit_known_name(every, found))
    found = replace(found, thresholds=tuple(choose(every, list(held_out(every, found)))))
    arrays: dict[str, Any] = found.to_arrays()
    with out.open("wb") as file:
        np.savez_compressed(file, **arrays)


def judged_sets(data: Path, encoder: Encoder, size: int) -> dict[str, Pairs]:
    """The sets by name, with the judge's scores of the pairs that the quick look leaves open."""
    near = near_words(encoder)
    names = graph_sets(data, DEVELOPMENT_SPLITS, near, "dev", size) | development_sets(data, size)
    names["world"] = world_names(DEVELOPMENT_SPLITS, size)
    del names["aida"]
    compared = {stem: pairs_of(given, encoder) for stem, given in names.items()}
    sets = {stem: one for stem, (one, _) in compared.items()}
    gate, bias, least = fit_gate(list(sets.values()))
    for one, comparison in compared.values():
        rows = np.flatnonzero(one.is_open & ~one.is_same & (one.features @ gate + bias >= least))
        one.judged[rows] = comparison.judged(one.pairs[rows])
        _log.info("%d pairs, %d right, %d judged", len(one.pairs), one.is_right.sum(), len(rows))
    return sets


if __name__ == "__main__":
    main()
