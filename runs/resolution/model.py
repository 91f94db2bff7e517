"""The recipe of `resolution.json` in `pearl_qdrant/resolution/pairs/`: whether two names mean the same.

    python runs/resolution/model.py --data FOLDER --out pearl_qdrant/resolution/pairs/resolution.json

--data has `kb/` (TSV with a header). The pairs are the candidates that `resolve` finds among names of training
entities: sets in which each entity has several names (`data.training_sets`), and sets as extraction from text gives
them, most things with one name and siblings beside them (`data.graph_sets`); and places and languages with names of
the world (`data.world_names`). A pair is right if both names are of one entity.

The terms are features, what features exceed numbers, and products of two. Those of little weight are left out. The
threshold of a precision is the lowest at which the clusters of `general` and of both graphs have that pairwise
precision.
The shift of each list (`PairModel.shift`) begins at the share of candidates that are right in all sets.
About five minutes on two cores.
"""

from __future__ import annotations

import json
import logging
import pickle
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.resolution.clusters import CERTAIN, FORBIDDEN, PairTable, cluster_names
from pearl_qdrant.resolution.names import Forms, NameRecord, gather, key_of
from pearl_qdrant.resolution.pairs.comparison import Comparison, pack_pairs, unpack_pairs
from pearl_qdrant.resolution.pairs.features import CONTRADICTED, FEATURES, POSSIBLE, contradictions
from pearl_qdrant.resolution.pairs.model import PairModel, compute_terms, probability_of
from pearl_qdrant.settings import DEFAULT_MODEL
from resolution.data import GoldName, graph_sets, near_words, training_sets, world_names
from training.examples.example import TRAIN_SPLITS

PRECISIONS = (0.9, 0.95, 0.98, 0.99)
BELOW = 0.005
"""How much lower the precision of one set may be than what is wanted."""

GRAPH_SIZE = 12_000
LEAST_WEIGHT = 0.06
"""Coefficient of a term with variance 1 below which it is left out."""
ABOVE = {
    "dense": (0.3, 0.5, 0.65, 0.8, 0.9),
    "lexical": (0.2, 0.4, 0.6, 0.8),
    "less_covered": (0.3, 0.6),
    "skeleton": (0.5, 0.7, 0.85),
    "edit": (0.6, 0.8),
    "crowd": (0.3, 0.5),
    "length": (0.3, 0.6),
    "types": (0.5, 0.8),
    "replaced_dense": (0.2, 0.4, 0.6),
    "fillers": (0.3, 0.6),
}
"""Numbers of the terms `feature>number`."""

WHETHER = (
    *("one_word", "any_replaced", "only_more", "equal_numbers", "number_more", "person", "other", "inner", "code"),
    *("first_word", "last_word", "same_words", "same_core", "slips", "initials"),
    *("bracket_added", "bracket_missing", "added_head", "family_name_differs", "cut_words", "other_script"),
)
HOW_MUCH = (
    *("dense", "lexical", "less_covered", "skeleton", "edit", "length", "crowd", "rank", "types", "length_gap"),
    *("replaced_rare", "replaced_dense", "more_rare", "fillers", "added_apart", "added_same", "missing_same"),
)
"""Features whose products are terms."""

PRODUCTS = (
    *("dense*lexical", "dense*length", "lexical*length", "dense*crowd", "skeleton*length", "dense*skeleton"),
    *("dense*rank", "lexical*rank", "edit*length", "dense*types", "skeleton*lexical", "dense*replaced_dense"),
    *("other*only_more", "other*any_replaced", "person*only_more", "person*any_replaced", "person*inner"),
)
LOST = 0.01
"""Share of the probable right pairs that the quick look at cosine and n-grams may lose."""

_log = logging.getLogger("resolution")


@dataclass(frozen=True, slots=True)
class TrainingPairs:
    """Candidates of a training set."""

    forms: Forms  # the forms of its names
    gold: list[str | None]  # the entity of each form; None for one of several entities
    pairs: npt.NDArray[np.int64]  # (p, 2)
    features: npt.NDArray[np.float32]  # (p, features)
    is_right: npt.NDArray[np.bool_]  # (p,)
    is_open: npt.NDArray[np.bool_]  # (p,), false where a contradiction or doubt forbids a merge
    is_same: npt.NDArray[np.bool_]  # (p,), whether the words are the same (`same_words.sameness`)


def pairs_of(names: list[GoldName], encoder: Encoder) -> TrainingPairs:
    """Candidates of a set of names with their features."""
    forms = gather(NameRecord(one.name, one.type) for one in names)
    owners: dict[tuple[str, str], set[str]] = {}
    for one in names:
        owners.setdefault(key_of(" ".join(one.name.split()), one.type), set()).add(one.gold)
    gold = [next(iter(found)) if len(found := owners[key[0], key[1]]) == 1 else None for key in forms.keys]
    comparison = Comparison(forms, encoder)
    pairs = unpack_pairs(comparison.candidates())
    is_known = np.array([gold[a] is not None and gold[b] is not None for a, b in pairs.tolist()])
    pairs = pairs[is_known]
    features = comparison.features(pairs)
    is_same = np.array([comparison.sameness(a, b) > 0 for a, b in pairs.tolist()])
    against = contradictions(features)
    is_open = (against == POSSIBLE) | (is_same & (against < CONTRADICTED))
    doubts = (comparison.doubt(a, b, is_same=one) for (a, b), one in zip(pairs.tolist(), is_same.tolist(), strict=True))
    is_open &= np.array([not doubt for doubt in doubts])
    is_right = np.array([gold[a] == gold[b] for a, b in pairs.tolist()])
    return TrainingPairs(forms, gold, pairs, features, is_right, is_open, is_same)


def terms() -> list[str]:
    """All terms that the fit may use."""
    above = [f"{name}>{number}" for name, numbers in ABOVE.items() for number in numbers]
    products = [f"{one}*{other}" for one in WHETHER for other in HOW_MUCH]
    return list(dict.fromkeys([*FEATURES, *above, *products, *PRODUCTS]))


def fit(sets: list[TrainingPairs]) -> tuple[dict[str, float], float]:
    """Coefficients by term, and the bias; each set weighs the same. Terms that matter little are left out."""
    names = terms()
    weights, _ = _fit(sets, names)
    kept = [name for name, weight in weights.items() if abs(weight) > LEAST_WEIGHT]
    weights, (bias, scale) = _fit(sets, kept)
    return {name: weight / scale[name] for name, weight in weights.items()}, bias


def _fit(sets: list[TrainingPairs], names: list[str]) -> tuple[dict[str, float], tuple[float, dict[str, float]]]:
    """Coefficients of terms with mean 0 and variance 1; the bias of terms as they are, and their scale."""
    x = np.concatenate([compute_terms(one.features[one.is_open], names) for one in sets])
    y = np.concatenate([one.is_right[one.is_open] for one in sets])
    weights = np.concatenate([np.full(one.is_open.sum(), 1 / one.is_open.sum()) for one in sets])
    mean, scale = x.mean(axis=0), x.std(axis=0) + 1e-6
    x -= mean
    x /= scale
    model = LogisticRegression(C=0.03, max_iter=150, tol=1e-3)
    model.fit(x, y, sample_weight=weights * len(y) / weights.sum())
    found = dict(zip(names, map(float, model.coef_[0]), strict=True))
    bias = float(model.intercept_[0] - (model.coef_[0] * mean / scale).sum())
    return found, (bias, dict(zip(names, map(float, scale), strict=True)))


def merges_at(one: TrainingPairs, probabilities: npt.NDArray[np.float64], threshold: float) -> tuple[int, int]:
    """Right pairs and all pairs in the forms' clusters at a threshold."""
    n = len(one.pairs)
    table = PairTable(
        *(pack_pairs(one.pairs), probabilities, np.zeros(n, np.uint8)),
        lambda pairs: ([0.0] * len(pairs), [0] * len(pairs)),
    )
    clusters = cluster_names(table, threshold, prefer=lambda members: dict.fromkeys(members, 0.0))
    right = total = 0
    for cluster in clusters:
        gold = [one.gold[member] for member in cluster.members if one.gold[member] is not None]
        right += sum(n * (n - 1) // 2 for n in Counter(gold).values())
        total += len(gold) * (len(gold) - 1) // 2
    return right, total


def probabilities_of(one: TrainingPairs, model: PairModel) -> npt.NDArray[np.float64]:
    """Probabilities of the pairs of a set, `FORBIDDEN` where nothing may merge them."""
    logits = model.logits(one.features)
    found = probability_of(logits + model.shift(logits[one.is_open], len(logits)))
    found[one.is_same] = np.maximum(found[one.is_same], CERTAIN)
    found[~one.is_open] = FORBIDDEN
    return found


def choose(sets: list[TrainingPairs], model: PairModel) -> dict[str, float]:
    """The lowest threshold of each precision at which the clusters of the sets have it on average.

    None of them is more than `BELOW` below it.
    """
    probabilities = [probabilities_of(one, model) for one in sets]
    found: dict[str, float] = {}
    threshold = 0.5
    for wanted in PRECISIONS:
        while True:
            merged = [merges_at(one, p, threshold) for one, p in zip(sets, probabilities, strict=True)]
            precisions = [right / max(total, 1) for right, total in merged]
            if np.mean(precisions) >= wanted and min(precisions) >= wanted - BELOW:
                break
            threshold += (1 - threshold) / 20
        found[str(wanted)] = round(float(threshold), 4)
    return found


@click.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--model", default=DEFAULT_MODEL)
@click.option("--work", type=click.Path(path_type=Path), help="Folder that keeps the pairs of each set.")
@click.option("--only", help="Make the pairs of this set, and fit nothing.")
def main(data: Path, out: Path, model: str, work: Path | None, only: str | None) -> None:
    """Fit the coefficients."""
    logging.basicConfig(level=logging.INFO)
    sets = []
    near = near_words(load_encoder(model, device="cpu"))
    every = {**training_sets(data), **graph_sets(data, TRAIN_SPLITS, near, "train", GRAPH_SIZE)}
    every["world"] = world_names(TRAIN_SPLITS, GRAPH_SIZE)
    for stem, names in every.items():
        if only not in (None, stem):
            continue
        kept = None if work is None else work / f"{stem}.pickle"  # of our own making
        if kept is not None and kept.exists():
            one = pickle.loads(kept.read_bytes())  # noqa: S301
        else:
            one = pairs_of(names, load_encoder(model, device="cpu"))
        if kept is not None:
            kept.write_bytes(pickle.dumps(one))
        _log.info("%s: %d names, %d pairs, %d right", stem, len(names), len(one.pairs), one.is_right.sum())
        sets.append(one)
    if only is not None:
        return
    coefficients, bias = fit(sets)
    stored: dict[str, object] = {
        "terms": {name: round(value, 4) for name, value in coefficients.items()},
        "bias": round(bias, 4),
        "prior": round(float(np.mean([one.is_right.mean() for one in sets])), 4),
        "thresholds": {},
        "least_dense": 0.0,
        "least_lexical": 0.0,
    }
    fitted = PairModel.from_names(stored)
    probable = np.concatenate([one.features[probabilities_of(one, fitted) >= 0.5] for one in sets])
    dense, lexical = (probable[:, FEATURES.index(name)] for name in ("dense", "lexical"))
    text = {
        **stored,
        "thresholds": choose([sets[0], *sets[2:4]], fitted),
        "least_dense": round(float(np.quantile(dense, LOST)), 3),
        "least_lexical": round(float(np.quantile(lexical[dense < np.quantile(dense, 0.1)], 0.5)), 3),
        "model": model,
        "pairs": int(sum(len(one.pairs) for one in sets)),
    }
    out.write_text(json.dumps(text, indent=2) + "\n", encoding="utf-8")
    _log.info("%d terms", len(coefficients))


if __name__ == "__main__":
    main()
