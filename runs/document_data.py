"""The documents that `runs/document_model.py` fits: read, scored, with learned names and vectors of passages."""

from __future__ import annotations

import csv
import json
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
import numpy as np

from pearl_qdrant import EntityLinker, load_base
from pearl_qdrant.linking.documents.features.passages import Compare
from pearl_qdrant.linking.documents.linking import CANDIDATES
from pearl_qdrant.linking.documents.mentions import DocumentMention
from pearl_qdrant.linking.documents.model import FloatArray
from pearl_qdrant.linking.documents.passage_vectors import Passages
from pearl_qdrant.linking.documents.spans import DocumentSpan, document_spans
from pearl_qdrant.linking.learned.names import LearnedMention
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.linking.ranking.scored import ScoredMention
from pearl_qdrant.store.schema import NamePoint

FOLDS = 20
"""Parts of the training documents; names are learned in the other parts."""


@dataclass(frozen=True, slots=True)
class Task:
    """A base with the corpora that are linked to it.

    Attributes:
        base: File with its names.
        train, develop: Corpora.
        links: File with the links of its entities, or None.
    """

    base: str
    train: tuple[str, ...]
    develop: tuple[str, ...]
    links: str | None = None


TASKS = {
    "aida": Task("base_aida.tsv", ("aida-train",), ("aida-dev",), "links_aida.tsv"),
    "mesh": Task(
        "base_mesh.tsv",
        ("bio-bc5cdr-training", "bio-ncbi-train"),
        ("bio-bc5cdr-development", "bio-ncbi-devel"),
    ),
}


@dataclass(slots=True)
class Document:
    """A document with its mentions, their right ids (none for NIL) and, once set, their features.

    Attributes:
        task: The task that it is of.
        learned: What was learned of each string in other documents.
        compare: Compares its passages with entities.
    """

    corpus: str
    text: str
    spans: list[DocumentSpan]
    gold: list[frozenset[str]]
    mentions: list[DocumentMention]
    task: str = ""
    learned: dict[str, LearnedMention | None] = field(default_factory=dict)
    compare: Compare | None = None


def read_documents(data: Path, corpora: Sequence[str]) -> list[Document]:
    """The documents of some corpora that have mentions."""
    rows: dict[tuple[str, str], list[dict[str, str]]] = {}
    with (data / "mentions.tsv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            if row["corpus"] in corpora:
                rows.setdefault((row["corpus"], row["doc_id"]), []).append(row)
    documents = []
    with (data / "documents.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            one = json.loads(line)
            mentions = sorted(rows.get((one["corpus"], one["doc_id"]), ()), key=lambda row: int(row["start"]))
            if mentions:
                spans = document_spans(one["text"], [(int(row["start"]), int(row["end"])) for row in mentions])
                gold = [frozenset(row["gold_id"].split("|")) - {"NIL"} for row in mentions]
                documents.append(Document(one["corpus"], one["text"], spans, gold, []))
    return documents


def load(data: Path, work: Path, name: str) -> None:
    """Load the base of a task, with its links as a column, unless it is loaded."""
    task = TASKS[name]
    base = data / task.base
    if task.links is not None:
        links = dict(line.split("\t") for line in (data / task.links).read_text("utf-8").splitlines()[1:])
        base = work / task.base
        if not base.exists():
            header, *rows = (data / task.base).read_text("utf-8").rstrip("\n").split("\n")
            lines = [f"{row}\t{links.get(row.split(chr(9))[0], '')}" for row in rows]
            base.write_text("\n".join([f"{header}\tlinks_to", *lines]) + "\n", "utf-8")
    load_base(base, name, store=str(work / "store"))


def score(linker: EntityLinker, path: Path, documents: Sequence[Document]) -> dict[str, ScoredMention]:
    """The scored strings of some documents; kept in a file."""
    known: dict[str, ScoredMention] = pickle.loads(path.read_bytes()) if path.exists() else {}  # noqa: S301 - our own
    queries = dict.fromkeys(span.query for document in documents for span in document.spans)
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
    queries = dict.fromkeys(span.query for document in target for span in document.spans)
    try:
        learned = {query: linker.learned_in_document(scored[query], LinkOptions()) for query in queries}
    finally:
        linker.undo_learned(batch.number)
    for document in target:
        document.learned = {span.query: learned[span.query] for span in document.spans}


class EntityVectors:
    """Vectors of entities, each read once for all documents."""

    def __init__(self, linker: EntityLinker) -> None:
        self._read = linker.passages("").entity_vectors
        self._known: dict[tuple[str, str], FloatArray] = {}

    def __call__(self, points: Sequence[NamePoint]) -> FloatArray:
        """As `Passages.entity_vectors`."""
        new = [point for point in points if (point.kb, point.entity_id) not in self._known]
        if new:
            keys = [(point.kb, point.entity_id) for point in new]
            self._known |= zip(keys, self._read(new), strict=True)
        return np.array([self._known[point.kb, point.entity_id] for point in points])


def read_task(
    linker: EntityLinker, data: Path, work: Path, name: str, scored: dict[str, ScoredMention]
) -> tuple[list[Document], list[Document]]:
    """The training and the development documents of a task, with what was learned of their names."""
    train, develop = read_documents(data, TASKS[name].train), read_documents(data, TASKS[name].develop)
    of_task: dict[str, ScoredMention] = {}
    for part, read in (("train", train), ("develop", develop)):
        of_task |= score(linker, work / f"{name}-{part}-{CANDIDATES}.pickle", read)
    learn_names(linker, of_task, train, develop)
    encode, entity_vectors = linker.passages("").encode, EntityVectors(linker)
    for document in (*train, *develop):
        document.compare = Passages(document.text, encode, entity_vectors).compare
        document.task = name
    scored |= {f"{name}:{query}": one for query, one in of_task.items()}
    return train, develop
