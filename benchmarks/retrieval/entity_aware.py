"""Entity-aware retrieval against dense, BM25 and hybrid search: questions that name an entity by another alias.

    python benchmarks/retrieval/entity_aware.py --data DIR --model MODEL --documents 250 --entities 3000

DIR has `documents.jsonl` (corpus, doc_id, text), `mentions.tsv` (corpus, doc_id, gold_id, mention) and the base
`base_mesh.tsv` (id, name, aliases), which the collection holds. Each entity that a document of the corpus mentions is
one question, with an alias that no relevant document contains, neither as written nor with its words in another order.
Relevant are all documents with the entity among their gold mentions; the gold mentions are used for nothing else.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from qdrant_client import QdrantClient
from sentence_transformers import SentenceTransformer

from pearl_qdrant import EntityLinker
from pearl_qdrant.cells import split_list
from pearl_qdrant.integrations.metadata import ENTITY_IDS, document_metadata
from pearl_qdrant.integrations.retrieval import EntityIndex

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "runs"))
from recipe_tables import read_tsv, write_rows

QUESTIONS = ("What is known about {}?", "Which studies report on {}?", "{}: effects and risks")
LIMIT = 10


@dataclass(frozen=True)
class Question:
    """A question, and the ids of its relevant documents."""

    text: str
    relevant: frozenset[str]
    entity_id: str


def main() -> None:
    """Read, index, ask and print a table."""
    options = parse()
    documents = dict(islice(read_documents(options.data, options.corpus), options.documents))
    questions, base = make_questions(options.data, options.corpus, documents, n=options.questions)
    chosen = base[: options.entities]
    print(
        f"{options.corpus}: {len(documents)} documents, {len(questions)} questions, {len(chosen)} entities", flush=True
    )
    encoder = SentenceTransformer(options.model, device="cpu")

    known: dict[str, Sequence[float]] = {}

    def embed(texts: list[str]) -> Sequence[Sequence[float]]:
        if new := [text for text in texts if text not in known]:
            vectors = encoder.encode(new, normalize_embeddings=True, show_progress_bar=False)
            known.update(zip(new, vectors.tolist(), strict=True))
        return [known[text] for text in texts]

    words = float(np.mean([len(re.findall(r"\w+", text)) for text in documents.values()]))
    start = time.perf_counter()
    with EntityLinker.build(chosen) as linker:
        print(f"base built in {time.perf_counter() - start:.0f} s", flush=True)
        client, dim = QdrantClient(":memory:"), len(embed(["x"])[0])
        index = EntityIndex(client, "documents", linker, embed=embed, dim=dim, mean_words=words)
        start = time.perf_counter()
        index.add(documents.items())
        print(f"indexed in {time.perf_counter() - start:.0f} s")
        tags = linker.annotate_batch([one.text for one in questions], workers=1)
        asked = [(one, document_metadata(tag)[ENTITY_IDS]) for one, tag in zip(questions, tags, strict=True)]
        found = sum(one.entity_id in ids for one, ids in asked)
        print(f"the question's entity is among those that were linked in {found / len(asked):.1%}")
        table = []
        for name, keywords in SYSTEMS.items():
            ranks = [
                rank_of(index.search(one.text, limit=LIMIT, entity_ids=ids, **keywords), one.relevant)
                for one, ids in asked
            ]
            recall, mrr = (100 * float(np.mean(column)) for column in zip(*ranks, strict=True))
            table.append([name, f"{recall:.1f}", f"{mrr:.1f}"])
    write_rows(options.page, __file__, "search | recall@10 | MRR@10", table)


SYSTEMS: dict[str, dict[str, object]] = {
    "dense": {"sparse": False, "entities": "off"},
    "BM25": {"dense": False, "entities": "off"},
    "hybrid": {"entities": "off"},
    "dense, boost": {"sparse": False},
    "hybrid, boost": {},
    "hybrid, filter": {"entities": "filter"},
}


def rank_of(found: Sequence[object], relevant: frozenset[str]) -> tuple[float, float]:
    """Recall, with at most as many relevant documents as are returned, and the reciprocal rank of the first."""
    hits = [getattr(one, "document_id") in relevant for one in found]  # noqa: B009 (any record with an id)
    first = hits.index(True) + 1 if True in hits else 0
    return sum(hits) / min(len(relevant), LIMIT), 1 / first if first else 0.0


def read_documents(data: Path, corpus: str) -> Iterator[tuple[str, str]]:
    """Ids and texts of a corpus."""
    with (data / "documents.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            if record["corpus"] == corpus:
                yield record["doc_id"], record["text"]


def make_questions(
    data: Path, corpus: str, documents: dict[str, str], *, n: int
) -> tuple[list[Question], list[dict[str, object]]]:
    """At most n questions, with aliases and their order drawn with a fixed seed; and the base.

    The entities of the base that the documents mention come first, all others after them in a drawn order.
    """
    with_entity: dict[str, set[str]] = defaultdict(set)
    for row in read_tsv(data / "mentions.tsv"):
        if row["corpus"] == corpus and row["doc_id"] in documents:
            for entity_id in row["gold_id"].split("|"):
                with_entity[entity_id].add(row["doc_id"])
    draw, questions, mentioned, others = random.Random(0), [], [], []
    for row in read_tsv(data / "base_mesh.tsv"):
        aliases = list(split_list(row["aliases"]))
        entity: dict[str, object] = {"id": row["id"], "name": row["name"], "aliases": aliases}
        relevant = with_entity.get(row["id"])
        (mentioned if relevant else others).append(entity)
        if relevant and (other := other_names([row["name"], *aliases], [documents[one] for one in sorted(relevant)])):
            text = draw.choice(QUESTIONS).format(draw.choice(other))
            questions.append(Question(text, frozenset(relevant), row["id"]))
    draw.shuffle(questions)
    draw.shuffle(others)
    return questions[:n], [*mentioned, *others]


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
    parser.add_argument("--corpus", default="bio-bc5cdr-development")
    parser.add_argument("--documents", type=int, help="the first documents only")
    parser.add_argument("--entities", type=int, help="a base of this many entities, those of the documents first")
    parser.add_argument("--model", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--page", type=Path, help="write the table into this page")
    return parser.parse_args()


if __name__ == "__main__":
    main()
