"""Entity-aware retrieval: documents tagged with entity ids in Qdrant, found by dense vector, words and entities.

    from pearl_qdrant.integrations.retrieval import EntityIndex

    index = EntityIndex(client, "articles", linker, embed=encode_texts, dim=384)
    index.add([("1", "Aspirin relieves headache."), ("2", "Ibuprofen relieves pain.")])
    for found in index.search("What is acetylsalicylic acid good for?"):
        print(found.document_id, found.score, found.entity_ids)

Each document is a point with a dense vector of the caller's encoder, a sparse vector of its words and entities
(`entity_terms`), and the ids of its entities in the payload `entity_ids`, which is indexed. A question is linked with
the same linker, so that another alias finds the same id.

    score(q, d) = scaled(cosine(q, d)) + scaled(lexical(q, d))

Each search is scaled from 0 (its worst) to 1 (its best): CombSUM, Fox and Shaw 1994. Ranks would hide by how much one
is better than the next. Entities beside dense vectors alone are scaled by the best of the words, so that those that
tell little count little.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from pearl_qdrant.integrations.entity_terms import document_terms, mention_weight, question_terms
from pearl_qdrant.integrations.metadata import ENTITY_IDS, ENTITY_NAMES, document_metadata
from pearl_qdrant.linking.linker import EntityLinker

if TYPE_CHECKING:
    from qdrant_client import QdrantClient
    from qdrant_client.models import ScoredPoint

Embed = Callable[[list[str]], Sequence[Sequence[float]]]  # Vectors of texts, (n, dim), as a list or an array

Mode = Literal["boost", "filter", "off"]

_NAMESPACE = uuid.UUID("6d1f2a4c-5b0e-5f7a-8f57-0d5c1b8e2a90")  # of point ids; it must never change
_BATCH = 64
_DEPTH = 100  # documents of each search that are joined
_HAS_TERMS = {"entity_terms": 1}  # metadata of a collection whose sparse vectors have entities among their terms


@dataclass(frozen=True, slots=True)
class FoundDocument:
    """A document as it was added, its score (comparable within one search only), and the entities of the question that
    it mentions: none says that it was found without them.
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
        entity_weight: float = 1.0,
        threshold: float | None = None,
    ) -> None:
        """Use a collection of documents; it is created if it does not exist. The documents of one that an earlier
        version wrote get terms for the entities that they are tagged with; nothing is linked again.

        Args:
            client: Any client of Qdrant: a server's, or `QdrantClient(":memory:")`.
            embed: Makes dense vectors of documents and questions, of width `dim`.
            mean_words: Words of an average document, for BM25.
            entity_weight: How much the entities of a question count; 1 for what `entity_terms` gives them.
            threshold: Least probability of a mention; None for the default of `AnnotateOptions`.
        """
        self._client, self._collection, self._linker = client, collection, linker
        self._embed, self._dim, self._mean_words = embed, dim, mean_words
        self.entity_weight, self.threshold = entity_weight, threshold
        if not client.collection_exists(collection):
            self._create()
        elif "entity_terms" not in (client.get_collection(collection).config.metadata or {}):
            self._add_terms()

    def add(self, documents: Iterable[tuple[str, str] | tuple[str, str, Mapping[str, Any]]]) -> int:
        """Tag and store documents: id, text and maybe metadata; one whose id exists is replaced. One that has
        `entity_ids` in its metadata, as the taggers of the connectors write them, is not linked again. Returns their
        number.
        """
        from qdrant_client.models import PointStruct

        remaining, n_added = iter(documents), 0
        while batch := list(islice(remaining, _BATCH)):
            texts = [one[1] for one in batch]
            points = [
                PointStruct(
                    id=str(uuid.uuid5(_NAMESPACE, one[0])),
                    vector={
                        "dense": [float(x) for x in vector],
                        "words": document_terms(one[1], tags, self._mean_words),
                    },
                    payload={
                        "metadata": dict(one[2]) if len(one) > 2 else {},
                        "id": one[0],
                        "text": one[1],
                        **{key: list(tags.get(key, ())) for key in (ENTITY_IDS, ENTITY_NAMES)},
                    },
                )
                for one, vector, tags in zip(batch, self._embed(texts), self._tags(batch), strict=True)
            ]
            self._client.upsert(self._collection, points, wait=True)
            n_added += len(batch)
        return n_added

    def entities_of(self, question: str) -> list[str]:
        """Ids of the entities that a question names."""
        return list(self.weigh_entities([question])[0])

    def weigh_entities(self, questions: Sequence[str]) -> list[dict[str, float]]:
        """For each question its entities, each with what its surest mention counts."""
        found: list[dict[str, float]] = []
        for mentions in self._linker.annotate_batch(questions, threshold=self.threshold):
            weights: dict[str, float] = {}
            for one in mentions:
                if (entity_id := one.link.entity_id) is not None:
                    weight = mention_weight(one.text, one.link.probability)
                    weights[entity_id] = max(weight, weights.get(entity_id, 0.0))
            found.append(weights)
        return found

    def search(
        self,
        question: str,
        *,
        limit: int = 10,
        entities: Mode = "boost",
        entity_ids: Sequence[str] | Mapping[str, float] | None = None,
        dense: bool = True,
        sparse: bool = True,
    ) -> list[FoundDocument]:
        """Find documents, best first. Raises ValueError if the limit is below 1, or nothing is left to search by.

        Args:
            entities: "boost" prefers documents with the question's entities; "filter" does, and from the first of them
                on takes others only to fill the limit; "off" leaves entities out. Without `dense` only what has a word
                or an entity of the question is found, which can be fewer.
            entity_ids: The question's entities, if they are known, maybe with what each counts as `weigh_entities`
                gives it; else they are found in it.
            dense, sparse: Whether to search by the dense vector, and by words.
        """
        from qdrant_client.models import QueryRequest

        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit}")
        if not (dense or sparse):
            raise ValueError("search by dense vectors, by words, or by both")
        wanted: dict[str, float] = {}
        if entities != "off":
            known = self.weigh_entities([question])[0] if entity_ids is None else entity_ids
            wanted = dict(known) if isinstance(known, Mapping) else dict.fromkeys(known, 1.0)
        queries: dict[str, Any] = {"dense": [float(x) for x in self._embed([question])[0]]} if dense else {}
        if sparse or wanted:
            queries["words"] = question_terms(question, wanted, weight=self.entity_weight, has_words=sparse)
        is_filter = bool(wanted) and entities == "filter"
        payload: Any = [ENTITY_IDS] if is_filter else False
        requests = [
            QueryRequest(query=query, using=using, limit=max(limit, _DEPTH), with_payload=payload)
            for using, query in queries.items()
        ]
        if wanted and not sparse:
            requests.append(QueryRequest(query=question_terms(question, {}), using="words", limit=1))
        answers = self._client.query_batch_points(self._collection, requests)
        of_words = answers.pop().points if len(requests) > len(queries) else None
        scores = _joined([one.points for one in answers], of_words)
        best = sorted(scores, key=lambda point: (-scores[point], str(point)))
        if is_filter:
            tags = {one.id: (one.payload or {}).get(ENTITY_IDS, ()) for answer in answers for one in answer.points}
            first = next((i for i, one in enumerate(best) if wanted.keys() & tags[one]), 0)
            best[first:] = sorted(best[first:], key=lambda point: wanted.keys().isdisjoint(tags[point]))
        payloads = {one.id: one.payload or {} for one in self._client.retrieve(self._collection, best[:limit])}
        return [_found(payloads[point], scores[point], wanted) for point in best[:limit] if point in payloads]

    def _tags(self, documents: Sequence[Sequence[Any]]) -> Iterator[Mapping[str, Any]]:
        """What each document mentions: what its metadata says, or else what is found in it."""
        given = [one[2] if len(one) > 2 and ENTITY_IDS in one[2] else None for one in documents]
        new = [one[1] for one, tags in zip(documents, given, strict=True) if tags is None]
        linked = iter(self._linker.annotate_batch(new, threshold=self.threshold) if new else ())
        for tags in given:
            yield document_metadata(next(linked), mentions=True) if tags is None else tags

    def _create(self) -> None:
        from qdrant_client import models

        self._client.create_collection(
            self._collection,
            vectors_config={"dense": models.VectorParams(size=self._dim, distance=models.Distance.COSINE)},
            sparse_vectors_config={"words": models.SparseVectorParams(modifier=models.Modifier.IDF)},
            metadata=_HAS_TERMS,
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Payload indexes have no effect in the local Qdrant")
            self._client.create_payload_index(self._collection, ENTITY_IDS, models.PayloadSchemaType.KEYWORD)

    def _add_terms(self) -> None:
        """Write the sparse vectors of an earlier version anew, with terms for the ids in the payload."""
        from qdrant_client.models import PointVectors

        offset: Any = None
        while True:
            points, offset = self._client.scroll(self._collection, limit=_BATCH, offset=offset)
            payloads = {one.id: one.payload or {} for one in points}
            vectors = [
                PointVectors(id=point, vector={"words": document_terms(payload["text"], payload, self._mean_words)})
                for point, payload in payloads.items()
                if "text" in payload
            ]
            if vectors:
                self._client.update_vectors(self._collection, vectors, wait=True)
            if offset is None:
                break
        self._client.update_collection(self._collection, metadata=_HAS_TERMS)


def _joined(
    searches: Sequence[Sequence[ScoredPoint]], of_words: Sequence[ScoredPoint] | None = None
) -> dict[Any, float]:
    """The sum of each point's scores, scaled so that the worst of a search has 0 and the best 1. Where the last search
    is by entities alone, 0 is the score of nothing, and 1 the best of it and of the one by words.
    """
    scores: dict[Any, float] = {}
    for points in searches:
        low, high = (least([one.score for one in points], default=0.0) for least in (min, max))
        if of_words is not None and points is searches[-1]:
            low, high = 0.0, max([high, *(one.score for one in of_words)])
        for one in points:
            scores[one.id] = scores.get(one.id, 0.0) + ((one.score - low) / (high - low) if high > low else 1.0)
    return scores


def _found(payload: Mapping[str, Any], score: float, wanted: Iterable[str]) -> FoundDocument:
    ids = tuple(one for one in wanted if one in payload.get(ENTITY_IDS, ()))
    return FoundDocument(str(payload["id"]), str(payload["text"]), score, ids, payload.get("metadata", {}))
