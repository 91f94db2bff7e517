"""Fits the model of linking in documents (`linking/documents/documents.json`) on labelled mentions in documents.

    python runs/document_model.py --data DATA --work FOLDER [--write]

DATA has documents.jsonl (corpus, doc_id, text), mentions.tsv (corpus, doc_id, start, end, gold_id) and a table of
names for each task below. FOLDER keeps the loaded bases and the scored mentions. Fitted on the training parts, printed
for the development parts: the first candidate of mentions whose entity is in the base, and answers at the default
threshold.

The ranking is a conditional logistic regression over the candidates of each mention, the decision a logistic
regression of whether the right entity is among them. Features of a mention depend on probabilities of the others, and
so on the coefficients: both are fitted several times in turn.
"""

from __future__ import annotations

import json
import pickle
import random
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from zlib import crc32

import click
import numpy as np
import numpy.typing as npt
from recipe_tables import page_option, read_documents, write_rows, write_with_links
from scipy.optimize import minimize

from pearl_qdrant import EntityLinker, load_base
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.linking.documents.features import Compare, is_coherent
from pearl_qdrant.linking.documents.linking import CANDIDATES, DocumentSpan, document_spans, rescored, set_features
from pearl_qdrant.linking.documents.model import (
    COLUMN,
    FEATURES,
    NIL_FEATURES,
    PARTS,
    UNFITTED,
    DocumentMention,
    DocumentModel,
    FloatArray,
    document_mention,
)
from pearl_qdrant.linking.documents.word_types import Passages, Words, word_types
from pearl_qdrant.linking.learned.names import LearnedMention
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.linking.ranking.model import Calibration, ScoredMention
from pearl_qdrant.linking.ranking.scoring import BONUS, decide
from pearl_qdrant.settings import DEFAULT_LIMIT

FOLDS = 20
"""Parts of the training documents; names are learned in the other parts."""


@dataclass(frozen=True, slots=True)
class Task:
    """A base with the corpora that are linked to it.

    Attributes:
        base: File with its names.
        train, develop: Corpora.
        links: File with the links of its entities, or None.
        is_of_sentences: Whether its documents are sentences of one mention: `SENTENCES` times as many are taken, half
            of the strings are for training, nothing is learned, and they are no data for coherence.
    """

    base: str
    train: tuple[str, ...]
    develop: tuple[str, ...]
    links: str | None = None
    is_of_sentences: bool = False


SENTENCES = 10

TASKS = {
    "aida": Task("base_aida.tsv", ("aida-train",), ("aida-dev",), "links_aida.tsv"),
    "mesh": Task(
        "base_mesh.tsv", ("bio-bc5cdr-training", "bio-ncbi-train"), ("bio-bc5cdr-development", "bio-ncbi-devel")
    ),
    "gladis": Task("base_gladis_scientific.tsv", ("gladis-scientific",), ("gladis-scientific",), is_of_sentences=True),
}


@dataclass(slots=True)
class Document:
    """A document with its mentions, their right ids (none for NIL) and, once set, their features."""

    corpus: str
    text: str
    spans: list[DocumentSpan]
    gold: list[frozenset[str]]
    mentions: list[DocumentMention]
    task: str = ""  # the task that it is of
    # what was learned of each string in other documents
    learned: dict[str, LearnedMention | None] = field(default_factory=dict)
    compare: Compare | None = None  # compares its passages with entities


def documents_of(data: Path, corpora: Sequence[str]) -> list[Document]:
    """The documents of some corpora that have mentions."""
    documents = []
    for one, rows in read_documents(data, corpora):
        mentions = sorted(rows, key=lambda row: int(row["start"]))
        spans = document_spans(one["text"], [(int(row["start"]), int(row["end"])) for row in mentions])
        gold = [frozenset(row["gold_id"].split("|")) - {"NIL"} for row in mentions]
        documents.append(Document(one["corpus"], one["text"], spans, gold, []))
    return documents


def load(data: Path, work: Path, name: str) -> None:
    """Load the base of a task, with its links as a column, unless it is loaded."""
    task = TASKS[name]
    base = data / task.base
    if task.links is not None:
        linked = work / task.base
        base = linked if linked.exists() else write_with_links(base, data / task.links, linked)
    load_base(base, name, store=str(work / "store"))


def score(linker: EntityLinker, path: Path, documents: Sequence[Document]) -> dict[str, ScoredMention]:
    """The scored strings of some documents; kept in a file."""
    known: dict[str, ScoredMention] = pickle.loads(path.read_bytes()) if path.exists() else {}  # noqa: S301 - our own
    queries = dict.fromkeys(span.forms.query for document in documents for span in document.spans)
    new = [query for query in queries if query not in known]
    if new:
        known |= zip(new, linker.score_batch(new, limit=CANDIDATES), strict=True)
        path.write_bytes(pickle.dumps(known))
    return known


def learn_names(
    linker: EntityLinker, scored: dict[str, ScoredMention], train: Sequence[Document], develop: Sequence[Document]
) -> None:
    """Set what is learned of each document: of training documents in the other folds, of others in all of them."""
    if any(batch.kind == "learn" and batch.is_effective for batch in linker.learned_batches()):
        # A run that was killed left them, and they are of the documents that are measured.
        raise click.ClickException("A collection in --work has learned names: delete it, and the run loads it again.")
    for fold in range(FOLDS):
        others = [document for i, document in enumerate(train) if i % FOLDS != fold]
        _learn_from(linker, scored, others, [document for i, document in enumerate(train) if i % FOLDS == fold])
    _learn_from(linker, scored, train, develop)


def _learn_from(
    linker: EntityLinker, scored: dict[str, ScoredMention], source: Sequence[Document], target: Sequence[Document]
) -> None:
    pairs = [
        (document.text[span.start : span.end], min(gold, default=None))
        for document in source
        for span, gold in zip(document.spans, document.gold, strict=True)
    ]
    batch = linker.learn(pairs, skip_unknown=True, again=True).batch
    queries = dict.fromkeys(span.forms.query for document in target for span in document.spans)
    try:
        state, options = linker.state, LinkOptions()
        learned = {query: state.learned.in_document(scored[query], state.calibration, options) for query in queries}
    finally:
        linker.undo_learned(batch.number)
    for document in target:
        document.learned = {span.forms.query: learned[span.forms.query] for span in document.spans}


class Known:
    """A function from keys to vectors that computes each once for all documents."""

    def __init__(self, vectors: Callable[[Sequence[Any]], FloatArray], key: Callable[[Any], Hashable]) -> None:
        self._vectors, self._key = vectors, key
        self._known: dict[Hashable, FloatArray] = {}

    def __call__(self, asked: Sequence[Any]) -> FloatArray:
        """The vectors of what is asked, (n, dim)."""
        new = {self._key(one): one for one in asked if self._key(one) not in self._known}
        if new:
            self._known |= zip(new, self._vectors(list(new.values())), strict=True)
        dim = len(next(iter(self._known.values()), ()))
        return np.array([self._known[self._key(one)] for one in asked]).reshape(len(asked), dim)


def read_task(
    linker: EntityLinker, data: Path, work: Path, name: str, scored: dict[str, ScoredMention]
) -> tuple[list[Document], list[Document]]:
    """The training and the development documents of a task, with what was learned of their names."""
    task = TASKS[name]
    train, develop = documents_of(data, task.train), documents_of(data, task.develop)
    if task.is_of_sentences:
        train, develop = [d for d in train if _is_for_training(d)], [d for d in develop if not _is_for_training(d)]
    of_task: dict[str, ScoredMention] = {}
    for part, read in (("train", train), ("develop", develop)):
        of_task |= score(linker, work / f"{name}-{part}-{CANDIDATES}.pickle", read)
    if not task.is_of_sentences:
        learn_names(linker, of_task, train, develop)
    of_linker = linker.state.passages("")
    encode = Known(of_linker.encode, str)
    name_vectors = Known(of_linker.name_vectors, lambda point: (point.kb, point.entity_id))
    for document in (*train, *develop):
        document.compare = Passages(document.text, encode, name_vectors, of_linker.typical).compare
        document.task = name
    scored |= {f"{name}:{query}": one for query, one in of_task.items()}
    return train, develop


def _is_for_training(document: Document) -> bool:
    """Whether a sentence is for training, by its mention."""
    return crc32(fold_name(document.spans[0].forms.query).encode()) % 2 == 0


WEIGHT_DECAY = 1e-4
"""Of both fits, on the mean loss of a mention, in nats."""

ROUNDS = 4
"""Fits in turn with new values of the features."""

SETTINGS: dict[str, frozenset[str]] = {
    "coherence": frozenset(("learned names",)),
    "coherence_learned": frozenset(),
    "no_coherence": frozenset(("coherence", "learned names")),
    "no_coherence_learned": frozenset(("coherence",)),
    # With the rules and the decision of names, which learned names have changed already.
    "context": frozenset(("coherence", "popularity", "learned names")),
}
"""Parts that do not count in each set of coefficients."""

NEGATIVE = frozenset(("part_of_nil", "learned_nil"))
"""Features that lower a logit."""

UNSIGNED = frozenset(("bias", "exact_name"))
"""Features of the decision that may raise or lower it."""


def set_all(
    documents: Sequence[Document],
    scored: dict[str, ScoredMention],
    model: DocumentModel,
    without: frozenset[str] = frozenset(),
    *,
    is_fit: bool = False,
) -> None:
    """Set the features of all mentions. A fit does not see that exact names are kept as sure as alone."""
    for document in documents:
        words = Words(document.text)
        document.mentions = [
            document_mention(
                scored[f"{document.task}:{span.forms.query}"],
                span.start,
                has_popularity="popularity" not in without,
                learned=document.learned.get(span.forms.query) if "learned names" not in without else None,
                type_scores=word_types().log_probabilities(words.rows_around(span.start, span.end)),
            )
            for span in document.spans
        ]
        for mention in document.mentions if is_fit else ():
            mention.own = ()
        own = without if is_coherent(document.mentions) else without | {"coherence"}
        set_features(document.mentions, model, compare=document.compare, without=own)


def fit_features(documents: Sequence[Document], start: FloatArray, without: frozenset[str]) -> FloatArray:
    """Coefficients of the ranking."""
    rows, right = [], []
    for document in documents:
        for mention, gold in zip(document.mentions, document.gold, strict=True):
            is_right = np.array([entity.point.entity_id in gold for entity in mention.entities])
            if not mention.is_id and is_right.any() and not is_right.all():
                rows.append(_without_bonus(mention.values, is_right))
                right.append(is_right)
    values, is_right = np.vstack(rows), np.concatenate(right)
    n = np.array([len(one) for one in rows])
    first, number = np.concatenate([[0], np.cumsum(n)[:-1]]), np.repeat(np.arange(len(n)), n)
    off = {name for part in without for name in PARTS[part]} | UNFITTED
    if not values[:, COLUMN["names"]].any():
        off.add("names")
    fitted = np.array([i for i, name in enumerate(FEATURES) if name not in off], dtype=int)
    if not len(fitted):
        return start

    def loss(chosen: FloatArray) -> tuple[float, FloatArray]:
        coefficients = start.copy()
        coefficients[fitted] = chosen
        logits = values @ coefficients
        odds = np.exp(logits - np.maximum.reduceat(logits, first)[number])
        of_all, of_right = np.add.reduceat(odds, first), np.add.reduceat(odds * is_right, first) + 1e-12
        slope = odds * is_right / of_right[number] - odds / of_all[number]
        gradient = -(slope @ values)[fitted] / len(n) + WEIGHT_DECAY * chosen
        return float((np.log(of_all) - np.log(of_right)).mean() + WEIGHT_DECAY / 2 * chosen @ chosen), gradient

    bounds = [(0.0, None)] * len(fitted)
    result = minimize(loss, start[fitted], jac=True, method="L-BFGS-B", bounds=bounds)
    coefficients = np.where([name in off - UNFITTED for name in FEATURES], 0.0, start)
    coefficients[fitted] = result.x
    return coefficients


def _without_bonus(values: FloatArray, is_right: npt.NDArray[np.bool_]) -> FloatArray:
    """The features of a mention; without types and passage where the right entity is not what a rule names.

    The rules of names add a bonus that nothing but a longer name of the document can overcome. Else types and passages
    would get coefficients that overcome it everywhere.
    """
    if values[is_right, COLUMN["rules"]].max() > -BONUS / 2:
        return values
    return np.where([name in ("word_type", "passage") for name in FEATURES], 0.0, values)


def fit_decision(documents: Sequence[Document]) -> FloatArray:
    """Coefficients of the decision."""
    tasks = [d.task for d in documents for mention in d.mentions if not mention.is_id]
    pairs = [pair for d in documents for pair in zip(d.mentions, d.gold, strict=True) if not pair[0].is_id]
    values = np.array([mention.of_decision for mention, _ in pairs])
    n_of_task = Counter(tasks)
    weights = np.array([len(tasks) / len(n_of_task) / n_of_task[task] for task in tasks])  # tasks weigh alike
    is_known: npt.NDArray[np.float64] = np.array(
        [any(entity.point.entity_id in gold for entity in mention.entities) for mention, gold in pairs], dtype=float
    )

    def loss(chosen: FloatArray) -> tuple[float, FloatArray]:
        logits = values @ chosen
        share = 1 / (1 + np.exp(-logits))
        gradient = (weights * (share - is_known)) @ values / len(values) + WEIGHT_DECAY * chosen
        losses = weights * (np.logaddexp(0, logits) - is_known * logits)
        return float(np.mean(losses) + WEIGHT_DECAY / 2 * chosen @ chosen), gradient

    bounds = [_bounds(name) for name in NIL_FEATURES]
    start = np.array([float(name in UNFITTED) for name in NIL_FEATURES])
    result = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    fitted: FloatArray = result.x
    return fitted


def _bounds(name: str) -> tuple[float | None, float | None]:
    """What the coefficient of a feature of the decision may be."""
    if name in UNFITTED:
        return 1.0, 1.0
    if name in UNSIGNED:
        return None, None
    return (None, 0.0) if name in NEGATIVE else (0.0, None)


def fit(
    documents: Sequence[Document], scored: dict[str, ScoredMention], without: frozenset[str] = frozenset()
) -> DocumentModel:
    """Fit both in turn, with the features as the coefficients so far make them."""
    start = {"names": 1.0, "rules": 1.0, "popularity": 0.8, "surname": 3.0}
    model = DocumentModel(
        np.array([start.get(name, 0.0) for name in FEATURES]),
        np.array([{"names": 1.0, "rules": 1.0, "exact_name": 3.0}.get(name, 0.0) for name in NIL_FEATURES]),
    )
    for _ in range(ROUNDS):
        set_all(documents, scored, model, without, is_fit=True)
        model = DocumentModel(fit_features(documents, model.features, without), fit_decision(documents))
    return model


TITLES = {
    "aida-dev": "AIDA, news",
    "bio-bc5cdr-development": "BC5CDR, MeSH",
    "bio-ncbi-devel": "NCBI, MeSH",
    "gladis-scientific": "GLADIS, acronyms, one sentence each, nothing learned",
}
"""What a page calls a corpus."""


def report(label: str, documents: Sequence[Document], model: DocumentModel) -> dict[str, str]:
    """Print the figures of one corpus at a time; returns those of the first candidate and of links."""
    shares = {}
    for corpus in dict.fromkeys(document.corpus for document in documents):
        first = right_known = right_nil = n_known = n_nil = 0
        for document in documents:
            if document.corpus != corpus:
                continue
            for mention, gold in zip(document.mentions, document.gold, strict=True):
                scored = rescored(mention, model, limit=DEFAULT_LIMIT)
                link = decide(scored, Calibration(), DEFAULT_LIMIT, Calibration().threshold, "canonical")
                if gold:
                    n_known += 1
                    first += bool(scored.found) and scored.found[0].point.entity_id in gold
                    right_known += link.entity_id in gold
                else:
                    n_nil += 1
                    right_nil += link.entity_id is None
        share = 100 * (right_known + right_nil) / (n_known + n_nil)
        shares[corpus] = f"{100 * first / n_known:.1f}, {100 * right_known / n_known:.1f}"
        click.echo(
            f"{label:36} {corpus:24} first {100 * first / n_known:5.1f}  linkable {100 * right_known / n_known:5.1f}  "
            f"NIL {100 * right_nil / max(1, n_nil):5.1f}  all {share:5.1f}"
        )
    return shares


@click.command()
@click.option("--data", type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--work", type=click.Path(path_type=Path), required=True)
@click.option("--task", "names", multiple=True, type=click.Choice(list(TASKS)), default=list(TASKS), show_default=True)
@click.option("--train-documents", default=300, show_default=True, help="Training documents of a corpus, at most.")
@click.option("--documents", default=60, show_default=True, help="Development documents of a corpus, at most.")
@click.option("--write", is_flag=True, help="Replace the coefficients of the package.")
@page_option
def main(
    data: Path, work: Path, names: Sequence[str], train_documents: int, documents: int, write: bool, page: Path | None
) -> None:
    """Fit, and print what is right in the development parts."""
    work.mkdir(parents=True, exist_ok=True)
    train: list[Document] = []
    develop: list[Document] = []
    scored: dict[str, ScoredMention] = {}
    with ExitStack() as opened:
        for name in names:
            load(data, work, name)
            linker = opened.enter_context(EntityLinker.open(name, store=str(work / "store")))
            of_task = read_task(linker, data, work, name, scored)
            for part, most, chosen in zip(of_task, (train_documents, documents), (train, develop), strict=True):
                for corpus in dict.fromkeys(document.corpus for document in part):
                    own = [document for document in part if document.corpus == corpus]
                    random.Random(0).shuffle(own)
                    chosen.extend(own[: most * SENTENCES if TASKS[name].is_of_sentences else most])
        fitted: dict[str, object] = {}
        shares: dict[str, dict[str, str]] = {}
        for setting, without in SETTINGS.items():
            of_setting = [d for d in train if "coherence" in without or not TASKS[d.task].is_of_sentences]
            model = fit(of_setting, scored, without)
            fitted[setting] = _rounded(model)
            set_all(develop, scored, model, without)
            shares[setting] = report(setting, develop, model)
        # These decide where something was learned of a mention, with the coefficients of both.
        for_learned = cast("dict[str, dict[str, dict[str, float]]]", fitted)
        for one in ("bias", "names", "exact_name"):
            for_learned["no_coherence"]["decision"][one] = for_learned["no_coherence_learned"]["decision"][one]
        click.echo(json.dumps(fitted))
    of_sentences = {corpus for task in TASKS.values() if task.is_of_sentences for corpus in task.develop}
    rows = [
        [TITLES[corpus], shares["no_coherence"][corpus] if corpus in of_sentences else share]
        for corpus, share in shares["coherence_learned"].items()
    ]
    write_rows(page, __file__, "first, linked | the training part learned", rows)
    if write:
        path = Path(__file__).parents[1] / "pearl_qdrant" / "linking" / "documents" / "documents.json"
        fitted |= {"tasks": list(names), "mentions": sum(len(document.gold) for document in train)}
        path.write_text(json.dumps(fitted, indent=2) + "\n", "utf-8")


def _rounded(model: DocumentModel) -> dict[str, dict[str, float]]:
    return {part: {name: round(value, 3) for name, value in of.items()} for part, of in model.by_name().items()}


if __name__ == "__main__":
    main()
