"""Tasks on phrases and names by their vectors: similarity, retrieval, clustering and fuzzy joins.

Turney (multiple choice) is scored by the cosine; choices with equal scores share the point. BIRD is the correlation
with human ratings. Entity retrieval: how often the name nearest to a mention is the canonical name of its entity. The
dictionary has the canonical names of the test set and a sample of the names of the bases in the folder, so that the
figure is not comparable with the paper's. Entity clustering: NMI of entity types and k-means clusters of mention
vectors, one cluster for each type and ten starts, on all mentions of the test split; the first seed is the paper's.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pearl_qdrant.errors import FormatError
from training.evaluation.data import Data, as_number
from training.evaluation.methods import EncoderMethod, StringMethod
from training.evaluation.outcome import FloatArray, Outcome, mean_outcome, nmi_outcome, pearson_outcome
from training.evaluation.task import Task
from training.options import EvaluationOptions

Similarity = EncoderMethod | StringMethod

_TURNEY = "pearl_bench/turney.tsv"
_BIRD = "pearl_bench/bird.tsv"
_CHOICES = ("answer", "distractor1", "distractor2", "distractor3", "distractor4")


def _turney(data: Data, method: Similarity, options: EvaluationOptions) -> Outcome:
    """Accuracy of the choice that is most similar to the query."""
    rows = data.rows(_TURNEY, "query", *_CHOICES)
    queries = [row[0] for row in rows for _ in _CHOICES]
    choices = [choice for row in rows for choice in row[1:]]
    scores = method.pair_scores(queries, choices).reshape(len(rows), len(_CHOICES))
    firsts = scores >= scores.max(axis=1, keepdims=True)
    correct = firsts[:, 0] / firsts.sum(axis=1)
    return mean_outcome([(np.arange(len(rows)), correct)])


def _bird(data: Data, method: Similarity, options: EvaluationOptions) -> Outcome:
    """Pearson's correlation of the similarity with human ratings of relatedness."""
    rows = data.rows(_BIRD, "term1", "term2", "relatedness")
    gold = np.array([as_number(row[2], _BIRD, "a relatedness") for row in rows])
    return pearson_outcome(method.pair_scores([row[0] for row in rows], [row[1] for row in rows]), gold)


def dictionary(data: Data, canonicals: list[str], bases: str, n_distractors: int) -> list[str]:
    """The canonical names and `n_distractors` other names of the bases, all distinct, in random order."""
    own = set(canonicals)
    others = {name for path in data.paths(bases) for (name,) in data.rows(path, "name")} - own - {""}
    rng = random.Random(0)
    names = [*sorted(own), *rng.sample(sorted(others), min(n_distractors, len(others)))]
    # Random order, so that ties favour neither canonical nor other names.
    rng.shuffle(names)
    return names


def _retrieval(path: str, bases: str) -> Callable[[Data, Similarity, EvaluationOptions], Outcome]:
    def run(data: Data, method: Similarity, options: EvaluationOptions) -> Outcome:
        rows = data.rows(path, "mention", "canonical")
        names = dictionary(data, [row[1] for row in rows], bases, options.n_distractors)
        found = method.nearest([row[0] for row in rows], names)
        correct = np.array([names[i] == row[1] for i, row in zip(found.tolist(), rows, strict=True)], dtype=np.float64)
        return mean_outcome([(np.arange(len(rows)), correct)], details={"n_names": len(names)})

    return run


def _clustering(path: str, types: tuple[str, ...]) -> Callable[[Data, EncoderMethod, EvaluationOptions], Outcome]:
    def run(data: Data, method: EncoderMethod, options: EvaluationOptions) -> Outcome:
        from sklearn.cluster import KMeans

        number = {kind.casefold(): i for i, kind in enumerate(types)}
        rows = data.rows(path, "split", "type", "mention")
        rows = [row for row in rows if row[0] == "test" and row[1].casefold() in number]
        if len({row[2] for row in rows}) < len(types):
            raise FormatError(path, None, f"too few mentions of {', '.join(types)} with split test ({len(rows)}).")
        labels = np.array([number[kind.casefold()] for _, kind, _ in rows], dtype=np.int64)
        vectors = method.vectors([mention for _, _, mention in rows])
        clusters = [
            KMeans(n_clusters=len(types), n_init=10, random_state=seed).fit_predict(vectors).astype(np.int64)
            for seed in range(options.n_seeds)
        ]
        return nmi_outcome(labels, clusters)

    return run


_LOCAL = "accuracy@1, exact search, not the paper's dictionary"
_YAGO, _UMLS = "pearl_bench/yago_test.tsv", "pearl_bench/umls_test.tsv"
_CONLL, _BC5CDR = "pearl_bench/conll2003.tsv", "pearl_bench/bc5cdr.tsv"
_TYPES = {_CONLL: ("PER", "LOC", "ORG"), _BC5CDR: ("Chemical", "Disease")}

PHRASE_TASKS = (
    Task("turney", "Turney", "Phrase Similarity", "accuracy", "similarity", (_TURNEY,), _turney),
    Task("bird", "BIRD", "Phrase Similarity", "Pearson r x 100", "similarity", (_BIRD,), _bird),
    *(
        Task(
            f"{name}_local", f"{head} local", "Entity Retrieval", _LOCAL, "similarity", (path,), _retrieval(path, bases)
        )
        for name, head, path, bases in (
            ("yago", "YAGO", _YAGO, "kb/general.tsv"),
            ("umls", "UMLS", _UMLS, "kb/biomedical/*.tsv"),
        )
    ),
    *(
        Task(name, head, "Entity Clustering", "NMI x 100", "vectors", (path,), _clustering(path, _TYPES[path]))
        for name, head, path in (("conll", "CoNLL 03", _CONLL), ("bc5cdr", "BC5CDR", _BC5CDR))
    ),
)


_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def one_edit(name: str, rng: random.Random) -> str:
    """The name with one character swapped with the next, deleted, inserted, or replaced.

    The result differs from the name and is not blank. An empty name stays empty.
    """
    if not name:
        return name
    while True:
        at = rng.randrange(len(name))
        edit = rng.choice(("swap", "delete", "insert", "substitute"))
        if edit == "swap":
            edited = name[:at] + name[at + 1 : at + 2] + name[at] + name[at + 2 :]
        elif edit == "delete":
            edited = name[:at] + name[at + 1 :]
        else:
            edited = name[:at] + rng.choice(_LETTERS) + name[at + (edit == "substitute") :]
        if edited.strip() and edited != name:
            return edited


_READS = ("autofj/left.tsv", "autofj/right.tsv", "autofj/gt.tsv")


@dataclass(frozen=True, slots=True)
class _Join:
    """One set: all left titles, the right titles with a match, and the correct left titles for each of these."""

    left: list[str]
    right: list[str]
    gold: list[frozenset[str]]


def _joins(data: Data) -> list[_Join]:
    """The sets with at least one match, in alphabetical order."""
    left: dict[str, list[str]] = {}
    for name, title in data.rows(_READS[0], "dataset", "title"):
        left.setdefault(name, []).append(title)
    gold: dict[tuple[str, str], set[str]] = {}
    for name, title_l, title_r in data.rows(_READS[2], "dataset", "title_l", "title_r"):
        gold.setdefault((name, title_r), set()).add(title_l)
    right: dict[str, list[str]] = {}
    for name, title in data.rows(_READS[1], "dataset", "title"):
        if (name, title) in gold:
            right.setdefault(name, []).append(title)
    if not right or not right.keys() <= left.keys():
        raise FormatError(_READS[2], None, "no right title has a match, or a set has no left titles.")
    return [
        _Join(left[name], titles, [frozenset(gold[name, title]) for title in titles])
        for name, titles in sorted(right.items())
    ]


def _score_joins(joins: list[_Join], method: Similarity, rng: random.Random | None) -> FloatArray:
    """1 for each right title whose nearest left title is correct, else 0; with `rng`, each title has one edit."""
    correct: list[bool] = []
    for join in joins:
        mentions = [one_edit(title, rng) for title in join.right] if rng else join.right
        found = method.nearest(mentions, join.left).tolist()
        correct += [join.left[i] in gold for i, gold in zip(found, join.gold, strict=True)]
    return np.array(correct, dtype=np.float64)


def _run_joins(with_typos: bool) -> Callable[[Data, Similarity, EvaluationOptions], Outcome]:
    def run(data: Data, method: Similarity, options: EvaluationOptions) -> Outcome:
        joins = _joins(data)
        strata = np.repeat(np.arange(len(joins)), [len(join.right) for join in joins])
        without = mean_outcome(
            [(np.arange(len(strata)), _score_joins(joins, method, None))], strata=strata, details={"n_sets": len(joins)}
        )
        if not with_typos:
            return without
        rngs = (random.Random(seed) for seed in range(options.n_seeds))
        by_seed = [(np.arange(len(strata)), _score_joins(joins, method, rng)) for rng in rngs]
        fall = without.value - mean_outcome(by_seed, strata=strata).value
        return mean_outcome(by_seed, strata=strata, details={"without_typos": without.value, "fall": fall})

    return run


_MEAN, _TYPO = "accuracy@1, mean over sets", "accuracy@1 with a typo in each mention"
JOIN_TASKS = (
    Task("autofj", "AutoFJ", "Fuzzy Join", _MEAN, "similarity", _READS, _run_joins(False)),
    Task("autofj_typos", "AutoFJ typos", "Fuzzy Join", _TYPO, "similarity", _READS, _run_joins(True)),
)
