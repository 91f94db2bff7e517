"""Retrieval with and without entities, on questions of four kinds: one row of the table a run.

    python benchmarks/retrieval/entity_aware.py --data DIR --documents 500
    python benchmarks/retrieval/entity_aware.py --data DIR --kind names --corpus bio-ncbi-train
    python benchmarks/retrieval/entity_aware.py --data DIR --kind titles --base DIR/base_aida.tsv --corpus aida-dev
    python benchmarks/retrieval/entity_aware.py --data CLAIMS --kind given --base DIR/base_mesh.tsv

DIR has `documents.jsonl` (corpus, doc_id, text), `mentions.tsv` (corpus, doc_id, gold_id, mention) and a base (id,
name, aliases), which the collection holds. Each entity that a document of the corpus mentions is one question:

- aliases: with an alias that no relevant document contains, neither as written nor with its words in another order;
- names: with one of its gold mentions, as most people would ask.

Relevant are all documents with the entity among their gold mentions, which are used for nothing else. In `titles` each
document without its first sentence is to be found by that. In `given` other people wrote the questions: CLAIMS has
`documents.tsv` and `questions.tsv` (id, text), and `relevant.tsv` (question, document), as of SciFact.

`--keep FILE` keeps what the documents were tagged with, and reads it again: tagging takes most of the time.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from qdrant_client import QdrantClient
from sentence_transformers import SentenceTransformer

from pearl_qdrant import EntityLinker
from pearl_qdrant.cells import split_list
from pearl_qdrant.integrations.metadata import document_metadata
from pearl_qdrant.integrations.retrieval import EntityIndex

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "runs"))
from recipe_tables import read_tsv, write_rows

QUESTIONS = ("What is known about {}?", "Which studies report on {}?", "{}: effects and risks")
LIMIT = 10
TIMED = 50  # questions of which the time is taken
HEAD = "questions | dense | BM25 | hybrid, ranks | hybrid | dense, boost | boost | filter"


@dataclass(frozen=True)
class Question:
    """A question, and the ids of its relevant documents."""

    text: str
    relevant: frozenset[str]


def main() -> None:
    """Read, index, ask and print a row: nDCG@10/recall@10."""
    options = parse()
    documents, questions, base = read_set(options)
    title = f"{options.kind}, {options.corpus if options.kind != 'given' else options.data.name}"
    print(f"{title}: {len(documents)} documents, {len(questions)} questions, {len(base)} entities", flush=True)
    encoder = SentenceTransformer(options.model, device="cpu")

    def embed(texts: list[str]) -> Sequence[Sequence[float]]:
        vectors: list[list[float]] = encoder.encode(texts, normalize_embeddings=True, show_progress_bar=False).tolist()
        return vectors

    words = float(np.mean([len(re.findall(r"\w+", text)) for text in documents.values()]))
    with EntityLinker.build(base) as linker:
        start = time.perf_counter()
        tags = tagged(linker, documents, options.keep)
        tagging = time.perf_counter() - start
        client, dim = QdrantClient(":memory:"), len(embed(["x"])[0])
        index = EntityIndex(client, "documents", linker, embed=embed, dim=dim, mean_words=words)
        start = time.perf_counter()
        index.add((one, text, tags[one]) for one, text in documents.items())
        seconds = time.perf_counter() - start
        n = len(documents)
        print(f"documents a second: {n / tagging:.1f} linked, {n / seconds:.1f} embedded and stored", flush=True)
        weights = index.weigh_entities([one.text for one in questions])
        cells = []
        for name, search in systems(index).items():
            found = [search(one.text, entity_ids=known) for one, known in zip(questions, weights, strict=True)]
            ndcg, recall = np.mean([quality(*one) for one in zip(found, questions, strict=True)], axis=0) * 100
            cells.append(f"{ndcg:.1f}/{recall:.1f}")
            print(f"{name}: {cells[-1]}", flush=True)
        hybrid, boost = (seconds_of(index, questions[:TIMED], mode) for mode in ("off", "boost"))
        print(f"a search: {1000 * hybrid:.1f} ms hybrid, {1000 * boost:.1f} ms with the entities of the question")
    write_rows(options.page, __file__, HEAD, [[title, *cells]])


def systems(index: EntityIndex) -> dict[str, Callable[..., Sequence[str]]]:
    """The searches of the table's columns: the ids of what each finds, best first."""

    def ids(question: str, *, limit: int = LIMIT, **keywords: object) -> list[str]:
        return [one.document_id for one in index.search(question, limit=limit, **keywords)]  # type: ignore[arg-type]

    def by_ranks(question: str, *, entity_ids: Mapping[str, float]) -> list[str]:
        """Reciprocal ranks with k = 60, Cormack et al. 2009."""
        scores: Counter[str] = Counter()
        for left_out in ("dense", "sparse"):
            for rank, one in enumerate(ids(question, limit=100, entities="off", **{left_out: False}), 1):
                scores[one] += 1 / (60 + rank)  # type: ignore[assignment]
        return [one for one, _ in scores.most_common(LIMIT)]

    return {
        "dense": partial(ids, sparse=False, entities="off"),
        "BM25": partial(ids, dense=False, entities="off"),
        "hybrid, ranks": by_ranks,
        "hybrid": partial(ids, entities="off"),
        "dense, boost": partial(ids, sparse=False),
        "boost": ids,
        "filter": partial(ids, entities="filter"),
    }


def quality(found: Sequence[str], question: Question) -> tuple[float, float]:
    """nDCG@10, and recall with at most as many relevant documents as are returned."""
    gains = [1 / np.log2(rank + 1) for rank in range(1, LIMIT + 1)]
    hits = [one in question.relevant for one in found]
    n = min(len(question.relevant), LIMIT)
    return sum(gain for gain, hit in zip(gains, hits, strict=False) if hit) / sum(gains[:n]), sum(hits) / n


def seconds_of(index: EntityIndex, questions: Sequence[Question], mode: str) -> float:
    """Median time of a search, embedding and linking of the question included."""
    times = []
    for one in questions:
        start = time.perf_counter()
        index.search(one.text, limit=LIMIT, entities=mode)  # type: ignore[arg-type]
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def tagged(linker: EntityLinker, documents: Mapping[str, str], keep: Path | None) -> dict[str, dict[str, object]]:
    """The tags of each document: those that the file keeps, and new ones, which it gets."""
    tags: dict[str, dict[str, object]] = {}
    if keep is not None and keep.exists():
        tags = dict(map(json.loads, keep.read_text("utf-8").splitlines()))
    new = [one for one in documents if one not in tags]
    for one, found in zip(new, linker.annotate_batch([documents[one] for one in new]), strict=True):
        tags[one] = document_metadata(found, mentions=True)
        if keep is not None:
            with keep.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps([one, tags[one]]) + "\n")
    return tags


def read_set(options: argparse.Namespace) -> tuple[dict[str, str], list[Question], list[dict[str, object]]]:
    """Documents by id, questions and the entities of the base, those of the gold mentions first."""
    data, base = options.data, options.base or options.data / "base_mesh.tsv"
    if options.kind == "given":
        documents = {row["id"]: row["text"] for row in read_tsv(data / "documents.tsv")}
        relevant: dict[str, set[str]] = defaultdict(set)
        for row in read_tsv(data / "relevant.tsv"):
            relevant[row["question"]].add(row["document"])
        asked = [Question(row["text"], frozenset(relevant[row["id"]])) for row in read_tsv(data / "questions.tsv")]
        return documents, asked[: options.questions], read_base(base, {})[: options.entities]
    documents = dict(islice(read_documents(data, options.corpus), options.documents))
    with_entity, mentions = gold_of(data, options.corpus, documents)
    entities = read_base(base, with_entity)
    if options.kind == "titles":
        parts = {one: re.split(r"(?<=[.?!]) (?=[A-Z])|\n", text, maxsplit=1) for one, text in documents.items()}
        parts = {one: both for one, both in parts.items() if len(both) == 2}
        questions = [Question(title, frozenset([one])) for one, (title, _) in parts.items()]
        documents = {one: text for one, (_, text) in parts.items()}
    elif options.kind == "names":
        draw = random.Random(0)
        questions = [
            Question(draw.choice(QUESTIONS).format(draw.choice(sorted(mentions[one]))), frozenset(relevant))
            for one, relevant in sorted(with_entity.items())
        ]
        draw.shuffle(questions)
    else:
        questions = make_questions(entities, with_entity, documents)
    return documents, questions[: options.questions], entities[: options.entities]


def read_documents(data: Path, corpus: str) -> Iterator[tuple[str, str]]:
    """Ids and texts of a corpus."""
    with (data / "documents.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            if record["corpus"] == corpus:
                yield record["doc_id"], record["text"]


def gold_of(data: Path, corpus: str, documents: Mapping[str, str]) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """The documents that mention each entity, and how they name it."""
    with_entity: dict[str, set[str]] = defaultdict(set)
    mentions: dict[str, set[str]] = defaultdict(set)
    for row in read_tsv(data / "mentions.tsv"):
        if row["corpus"] == corpus and row["doc_id"] in documents and row["gold_id"] != "NIL":
            for entity_id in row["gold_id"].split("|"):
                with_entity[entity_id].add(row["doc_id"])
                mentions[entity_id].add(row["mention"])
    return with_entity, mentions


def read_base(path: Path, first: Mapping[str, object]) -> list[dict[str, object]]:
    """The entities of a base: some first, all others after them in a drawn order."""
    mentioned: list[dict[str, object]] = []
    others: list[dict[str, object]] = []
    for row in read_tsv(path):
        entity: dict[str, object] = {"id": row["id"], "name": row["name"], "aliases": list(split_list(row["aliases"]))}
        (mentioned if row["id"] in first else others).append(entity)
    random.Random(0).shuffle(others)
    return [*mentioned, *others]


def make_questions(
    base: Sequence[Mapping[str, object]], with_entity: Mapping[str, set[str]], documents: Mapping[str, str]
) -> list[Question]:
    """Questions with aliases that no relevant document has; those and the order are drawn with a fixed seed."""
    draw, questions = random.Random(0), []
    for entity in sorted(base, key=lambda one: str(one["id"])):
        relevant = with_entity.get(str(entity["id"]), set())
        names = [str(entity["name"]), *entity["aliases"]]  # type: ignore[misc]
        if relevant and (other := other_names(names, [documents[one] for one in sorted(relevant)])):
            questions.append(Question(draw.choice(QUESTIONS).format(draw.choice(other)), frozenset(relevant)))
    draw.shuffle(questions)
    return questions


def other_names(names: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Those names that no text has, neither as written nor with their words in another order."""
    folded = [text.casefold() for text in texts]
    said = [set(re.findall(r"\w+", text)) for text in folded]
    return [
        name
        for name in names
        if len(name) > 2
        and not any(name.casefold() in text for text in folded)
        and not any(set(re.findall(r"\w+", name.casefold())) <= words for words in said)
    ]


def parse() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--kind", choices=("aliases", "names", "titles", "given"), default="aliases")
    parser.add_argument("--base", type=Path, help="the base; default is DATA/base_mesh.tsv")
    parser.add_argument("--corpus", default="bio-bc5cdr-development")
    parser.add_argument("--documents", type=int, help="the first documents only")
    parser.add_argument("--entities", type=int, help="a base of this many entities, those of the documents first")
    parser.add_argument("--model", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--keep", type=Path, help="a file with what the documents are tagged with")
    parser.add_argument("--page", type=Path, help="write the row into the table of this page")
    return parser.parse_args()


if __name__ == "__main__":
    main()
