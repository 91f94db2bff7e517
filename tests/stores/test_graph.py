"""Both stores build and search the graph with the same parameters; older collections keep theirs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from qdrant_double import QdrantDouble
from store_cases import DIM, manifest_of, many, point, unit

from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.lexical.keys import key_rows, name_keys
from pearl_qdrant.lexical.ngrams import fold_name, ngram_rows
from pearl_qdrant.store import open_store
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.content import read_content
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.search import EF_CONSTRUCT, QUICK_EF, THOROUGH_EF, M, OwnNames


class Recorded:
    """A double that records the queries it receives."""

    def __init__(self, double: QdrantDouble) -> None:
        self.searches: list[list[dict[str, Any]]] = []
        answer = double.answer

        def remember(method: str, path: str, body: bytes) -> Any:
            if path.endswith("/points/query/batch"):
                self.searches.append(json.loads(body)["searches"])
            return answer(method, path, body)

        double.answer = remember  # type: ignore[method-assign]


def never(number: int, found: object) -> bool:
    """No name answers the mention."""
    return False


def search(collection: Collection, vectors: FloatArray, mentions: Sequence[str], is_match: Any) -> Any:
    """Search by keys, by vector and by n-grams."""
    keys = key_rows([name_keys(fold_name(mention)) for mention in mentions])
    own = None if is_match is None else OwnNames(is_match, keys)
    return collection.search_hybrid(vectors, ngram_rows(list(mentions)), limit=5, lexical_limit=3, own=own)


def test_a_server_builds_and_searches_the_graph_as_the_embedded_store_does() -> None:
    """The server gets the links, the candidates while building, and the candidates of a quick and a thorough search.

    Keys come first, for one mention with the quick search; n-grams go with the thorough one. For one mention, what
    they find comes with its dense score: a second query.
    """
    with QdrantDouble() as double:
        store = open_store(double.url)
        collection = store.create(manifest_of("base"))
        points, vectors, encodable = many(10)
        collection.upsert(points, vectors, encodable)
        asked = Recorded(double)
        search(collection, vectors[:1], ["E1 a"], never)
        search(collection, vectors[:2], ["E1 a", "E2 a"], never)
        store.close()

    config = double.created["base"]["hnsw_config"]
    assert (config["m"], config["ef_construct"]) == (M, EF_CONSTRUCT)
    asked.searches = asked.searches[:4]  # after them, dense scores of what n-grams found
    soon, last, keys, thorough = asked.searches
    efs = [[one["params"].get("hnsw_ef") for one in request if one["using"] == "dense"] for request in asked.searches]
    assert [of_one[:1] for of_one in efs] == [[QUICK_EF], [THOROUGH_EF], [], [THOROUGH_EF]]
    used = [[one["using"] for one in request] for request in (soon, last, keys, thorough)]
    assert used == [*[["dense", "lexical", "dense"]] * 2, ["lexical"] * 2, ["dense", "lexical"] * 2]
    assert [len(one.get("prefetch", [])) for one in last] == [0, 0, 1]


def test_a_mention_with_an_exact_match_is_not_searched_again() -> None:
    """If keys find the mention's own name, there is no other request."""
    with QdrantDouble() as double:
        store = open_store(double.url)
        collection = store.create(manifest_of("base"))
        points, vectors, encodable = many(10)
        collection.upsert(points, vectors, encodable)
        asked = Recorded(double)
        found = search(collection, vectors[:1], ["name 0"], lambda number, point: True)
        store.close()

    assert len(asked.searches) == 1
    assert found[0][0].point == points[0]


def test_an_update_keeps_the_parameters_of_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection keeps the links of its graph, also where the default is another one by now."""
    monkeypatch.setattr(edge_shard, "INDEXING_THRESHOLD_KB", 1)
    store = open_store(tmp_path / "store")
    collection = store.create(manifest_of("base"))
    points, vectors, encodable = many(200)
    collection.upsert(points, vectors, encodable)
    collection.finalize()
    folder = collection._folder
    now = folder.index
    assert now is not None
    assert (now.m, now.ef_construct) == (M, EF_CONSTRUCT)
    assert folder.job("finalize").index == now

    folder.write_index_state(replace(now, m=16, ef_construct=100))
    job = folder.job("finalize")
    collection.finalize()

    assert job.index == replace(now, m=16, ef_construct=100)
    store.close()
    index = read_content(tmp_path / "store" / "base", "base")[1].index
    assert index is not None
    assert index.m == 16


def test_names_with_equal_ngrams_are_found_in_the_order_of_their_ids(collection: Collection) -> None:
    """If more namesakes match than requested, every store returns the same ones: those with the first ids."""
    points = [point(f"E{i}", "Springfield") for i in range(30)]
    collection.upsert(points, np.zeros((30, DIM), dtype=np.float32), np.zeros(30, dtype=np.bool_))
    found = search(collection, unit([]), ["Springfield"], None)[0]

    assert [hit.point.id for hit in found] == sorted(p.id for p in points)[:3]
