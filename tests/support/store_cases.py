"""What the tests of both stores share: the kinds of store, points and vectors."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import Manifest, NamePoint

DIM = 8

KINDS: list[Any] = ["edge", "server-http", "server-limited", "server-tls", "server-faulty"]
if os.environ.get("QDRANT_URL"):
    KINDS.append(pytest.param("server-real", marks=pytest.mark.server))


LIMITS = {
    "max_query_limit": 120,
    "search_max_batchsize": 3,
    "upsert_max_batchsize": 50,
    "condition_max_size": 30,
    "search_max_hnsw_ef": 64,
    "search_max_oversampling": 1.5,
}
"""Narrow limits of strict mode."""


def manifest_of(name: str, *, dim: int = DIM, weights_hash: str = "sha256:" + "a" * 64) -> Manifest:
    """A manifest for tests."""
    return Manifest(
        collection=name, kb="test", model="toy", weights_hash=weights_hash, dim=dim, has_head=True, created_by="tests"
    )


def point(entity_id: str, name: str, *, canonical: bool = True, **fields: Any) -> NamePoint:
    """Make a point of an organisation; `fields` replaces its fields."""
    fields = {"canonical_name": name, "types": ("ORG",), "kb_types": ("company",), **fields}
    return NamePoint(kb="test", entity_id=entity_id, name=name, is_canonical=canonical, **fields)


def unit(*rows: list[float]) -> FloatArray:
    """Rows padded to DIM and normalised."""
    vectors = np.zeros((len(rows), DIM), dtype=np.float32)
    for i, row in enumerate(rows):
        vectors[i, : len(row)] = row
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(norms == 0, 1, norms), dtype=np.float32)


def yes(n: int) -> BoolArray:
    """All encodable."""
    return np.ones(n, dtype=np.bool_)


def put(collection: Collection, *pairs: tuple[NamePoint, list[float]]) -> None:
    """Write points with their vectors."""
    collection.upsert([p for p, _ in pairs], unit(*[v for _, v in pairs]), yes(len(pairs)))


def fill(collection: Collection, n: int = 4, **facts: object) -> None:
    """Write points of n / 2 entities, and facts to the manifest."""
    points, vectors = many(n)
    collection.upsert(points, vectors, yes(n))
    collection.write_manifest(collection.manifest.model_copy(update=facts))


def found(collection: Collection, vector: list[float], *, limit: int = 10, types: tuple[str, ...] = ()) -> list[str]:
    """Names found, best first."""
    return [hit.point.name for hit in collection.search(unit(vector), limit=limit, types=types)[0]]


def many(n: int, *, seed: int = 0) -> tuple[list[NamePoint], FloatArray]:
    """Make points with two names for each entity and random unit vectors."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, DIM)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return [point(f"E{i // 2}", f"name {i}", canonical=i % 2 == 0) for i in range(n)], vectors
