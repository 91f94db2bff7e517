"""Entity-aware retrieval: documents tagged with entity ids in Qdrant, and a question's entities beside dense and sparse
search.

    from pearl_qdrant.integrations.retrieval import EntityIndex

    index = EntityIndex(client, "articles", linker, embed=encode_texts, dim=384)
    index.add([("1", "Aspirin relieves headache."), ("2", "Ibuprofen relieves pain.")])
    for found in index.search("What is acetylsalicylic acid good for?"):
        print(found.document_id, found.score, found.entity_ids)

Each document is a point with a dense vector of the caller's encoder, a sparse vector of its words (BM25 with Qdrant's
IDF), and the ids of its entities in the payload `entity_ids`, which is indexed. A question is linked with the same
linker, so that another alias finds the same id. One request searches by dense vector and by words, among all documents
and among those of each entity of the question. The rankings are joined here, since Qdrant's weights stretch ranks:

    score(d) = sum over the searches of weight / (RRF_K + rank of d)        Cormack et al. 2009, with weights
"""

from __future__ import annotations

import re
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal
from zlib import crc32

from pearl_qdrant.integrations.metadata import ENTITY_IDS, document_metadata
from pearl_qdrant.linking.linker import EntityLinker

if TYPE_CHECKING:
    from qdrant_client import QdrantClient
    from qdrant_client.models import QueryRequest, SparseVector

Embed = Callable[[list[str]], Sequence[Sequence[float]]]
"""Vectors of texts, (n, dim), as a list or an array."""

Mode = Literal["boost", "filter", "off"]

RRF_K = 60  # Cormack et al. 2009
_K1, _B = 1.2, 0.75  # BM25, as in Lucene
_WORD = re.compile(r"\w+")
_NAMESPACE = uuid.UUID("6d1f2a4c-5b0e-5f7a-8f57-0d5c1b8e2a90")  # of point ids; it must never change
_BATCH = 64
_DEPTH = 100  # documents of each search that are joined
_MAX_ENTITIES = 4  # of a question; each adds two searches to the request


@dataclass(frozen=True, slots=True)
class FoundDocument:
    """A document as it was added, its score (the sum of weighted reciprocal ranks, comparable within one search only),
    and the entities of the question that it mentions.
    """

    document_id: str
    text: str
    score: float
    entity_ids: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


class EntityIndex:
    """Documents in a collection of Qdrant, with the ids of their entities."""

    def __init__(
        self,
        client: QdrantClient,
        collection: str,
        linker: EntityLinker,
        *,
        embed: Embed,
        dim: int,
        mean_words: float = 200.0,
        entity_weight: float = 2.0,
        threshold: float | None = None,
    ) -> None:
        """Use a collection of documents; it is created if it does not exist.

        Args:
            client: Any client of Qdrant: a server's, or `QdrantClient(":memory:")`.
            embed: Makes dense vectors of documents and questions, of width `dim`.
            mean_words: Words of an average document, for BM25.
            entity_weight: Weight of the searches among the documents of an entity; those among all have 1.
            threshold: Least probability of a mention; None for the default of `AnnotateOptions`.
        """
        self._client, self._collection, self._linker = client, collection, linker
        self._embed, self._dim, self._mean_words = embed, dim, mean_words
        self.entity_weight, self.threshold = entity_weight, threshold
        if not client.collection_exists(collection):
            self._create()

    def add(self, documents: Iterable[tuple[str, str] | tuple[str, str, Mapping[str, Any]]]) -> int:
        """Tag and store documents: id, text and maybe metadata; one whose id exists is replaced. Returns their
        number.
        """
        from qdrant_client.models import PointStruct

        remaining, n_added = iter(documents), 0
        while batch := list(islice(remaining, _BATCH)):
            texts = [one[1] for one in batch]
            tags = [document_metadata(one) for one in self._linker.annotate_batch(texts, threshold=self.threshold)]
            points = [
                PointStruct(
                    id=str(uuid.uuid5(_NAMESPACE, one[0])),
                    vector={"dense": [float(x) for x in vector], "words": self._words_of_document(one[1])},
                    payload={"metadata": dict(one[2]) if len(one) > 2 else {}, "id": one[0], "text": one[1], **tag},
                )
                for one, vector, tag in zip(batch, self._embed(texts), tags, strict=True)
            ]
            self._client.upsert(self._collection, points, wait=True)
            n_added += len(batch)
        return n_added

    def entities_of(self, question: str) -> list[str]:
        """Ids of the entities that a question names."""
        found = self._linker.annotate(question, threshold=self.threshold)
        return list(document_metadata(found)[ENTITY_IDS])

    def search(
        self,
        question: str,
        *,
        limit: int = 10,
        entities: Mode = "boost",
        entity_ids: Sequence[str] | None = None,
        dense: bool = True,
        sparse: bool = True,
    ) -> list[FoundDocument]:
        """Find documents, best first. Raises ValueError if the limit is below 1, or nothing is left to search by.

        Args:
            entities: "boost" prefers documents with the question's entities; "filter" returns only those, or all if the
                question has no entity or no document has one; "off" leaves entities out.
            entity_ids: The question's entities, if they are known; else they are found in it.
            dense, sparse: Whether to search all documents by the dense vector, and by words. Those of an entity are always
                ordered by the dense vector, too: they may share no word with the question.
        """
        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit}")
        if not (dense or sparse):
            raise ValueError("search by dense vectors, by words, or by both")
        wanted: list[str] = []
        if entities != "off":
            wanted = list(entity_ids) if entity_ids is not None else self.entities_of(question)
            wanted = wanted[:_MAX_ENTITIES]
        queries = self._queries(question, dense=dense, sparse=sparse)
        tagged = queries if dense or not wanted else self._queries(question, dense=True, sparse=sparse)
        if wanted and entities == "filter":
            among = self._searches(tagged, limit, [wanted], 1.0)
            if found := self._fused(among, limit, wanted):
                return found
        searches = self._searches(queries, limit, [()], 1.0)
        if wanted and entities == "boost":
            searches += self._searches(tagged, limit, [[one] for one in wanted], self.entity_weight)
        return self._fused(searches, limit, wanted)

    def _queries(self, question: str, *, dense: bool, sparse: bool) -> dict[str, Any]:
        """The queries by the name of their vector."""
        found: dict[str, Any] = {}
        if dense:
            found["dense"] = [float(x) for x in self._embed([question])[0]]
        if sparse:
            found["words"] = _words_of_question(question)
        return found

    def _searches(
        self, queries: Mapping[str, Any], limit: int, among: Sequence[Sequence[str]], weight: float
    ) -> list[tuple[QueryRequest, float]]:
        """One search a query and a group of entities, of which documents must have one; with its weight."""
        from qdrant_client.models import FieldCondition, Filter, MatchAny, QueryRequest

        depth = max(limit, _DEPTH)
        return [
            (QueryRequest(query=query, using=using, limit=depth, filter=condition), weight)
            for ids in among
            for condition in [
                Filter(must=[FieldCondition(key=ENTITY_IDS, match=MatchAny(any=list(ids)))]) if ids else None
            ]
            for using, query in queries.items()
        ]

    def _fused(
        self, searches: Sequence[tuple[QueryRequest, float]], limit: int, wanted: Sequence[str]
    ) -> list[FoundDocument]:
        answers = self._client.query_batch_points(self._collection, [one for one, _ in searches])
        scores: Counter[Any] = Counter()
        for answer, (_, weight) in zip(answers, searches, strict=True):
            for rank, point in enumerate(answer.points, 1):
                scores[point.id] += weight / (RRF_K + rank)  # type: ignore[assignment]
        best = sorted(scores, key=lambda point: (-scores[point], str(point)))[:limit]
        payloads = {one.id: one.payload or {} for one in self._client.retrieve(self._collection, best)}
        return [_found(payloads[point], scores[point], wanted) for point in best if point in payloads]

    def _words_of_document(self, text: str) -> SparseVector:
        """Words with the saturated counts of BM25; Qdrant multiplies with their IDF."""
        words = _words(text)
        norm = _K1 * (1 - _B + _B * len(words) / self._mean_words)
        return _sparse({word: n * (_K1 + 1) / (n + norm) for word, n in Counter(words).items()})

    def _create(self) -> None:
        from qdrant_client import models

        self._client.create_collection(
            self._collection,
            vectors_config={"dense": models.VectorParams(size=self._dim, distance=models.Distance.COSINE)},
            sparse_vectors_config={"words": models.SparseVectorParams(modifier=models.Modifier.IDF)},
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Payload indexes have no effect in the local Qdrant")
            self._client.create_payload_index(self._collection, ENTITY_IDS, models.PayloadSchemaType.KEYWORD)


def _found(payload: Mapping[str, Any], score: float, wanted: Sequence[str]) -> FoundDocument:
    has = set(payload.get(ENTITY_IDS, ()))
    ids = tuple(one for one in wanted if one in has)
    return FoundDocument(str(payload["id"]), str(payload["text"]), score, ids, payload.get("metadata", {}))


def _words_of_question(text: str) -> SparseVector:
    return _sparse(Counter(_words(text)))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _sparse(weights: Mapping[str, float]) -> SparseVector:
    """Words, hashed to 32 bits; the weights of words with an equal hash are added."""
    from qdrant_client.models import SparseVector

    by_index: Counter[int] = Counter()
    for word, weight in weights.items():
        by_index[crc32(word.encode())] += weight  # type: ignore[assignment]
    return SparseVector(indices=list(by_index), values=[float(x) for x in by_index.values()])
