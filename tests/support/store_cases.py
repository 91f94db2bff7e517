"""What the tests of both stores share: manifests, points and vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from pearl_qdrant.encoder.protocol import BoolArray, FloatArray
from pearl_qdrant.settings import DEFAULT_QUANTIZATION
from pearl_qdrant.store import Collection
from pearl_qdrant.store.schema import Manifest, NamePoint, Quantization

DIM = 8
CLOSE = 1e-6
"""Of vectors and probabilities: a name's last bits depend on the names that it was encoded with."""
HALF = 5e-4
"""Of vectors that were stored: a number has 11 bits, and the engine normalises it again when it moves."""

LIMITS = {
    "max_query_limit": 120,
    "search_max_batchsize": 3,
    "upsert_max_batchsize": 50,
    "condition_max_size": 30,
    "search_max_hnsw_ef": 64,
    "search_max_oversampling": 1.5,
}
"""Narrow limits of strict mode."""


def manifest_of(name: str = "toy", *, dim: int = DIM, quantization: Quantization = DEFAULT_QUANTIZATION) -> Manifest:
    """A manifest for tests."""
    made = Manifest(collection=name, kb="test", model="toy", weights_hash="sha256:0", dim=dim, has_head=True)
    return made.model_copy(update={"quantization": quantization})


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
    collection.upsert(*many(n, types=("ORG",)))
    collection.write_manifest(collection.manifest.model_copy(update=facts))


def found(collection: Collection, vector: list[float], *, limit: int = 10, types: tuple[str, ...] = ()) -> list[str]:
    """Names found, best first."""
    return [hit.point.name for hit in collection.search(unit(vector), limit=limit, types=types)[0]]


def many(n: int, *, dim: int = DIM, start: int = 0, **fields: Any) -> tuple[list[NamePoint], FloatArray, BoolArray]:
    """Make points with two names for each entity, three types, and random unit vectors; `fields` as in `point`."""
    vectors = np.random.default_rng(start).normal(size=(n, dim)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    points = [
        point(
            f"E{i // 2}",
            f"name {i}",
            canonical=i % 2 == 0,
            **{
                "canonical_name": f"name {i - i % 2}",
                "types": (("ORG", "GPE", "PERSON")[i % 3],),
                "kb_types": (),
                **fields,
            },
        )
        for i in range(start, start + n)
    ]
    return points, vectors, yes(n)


def vectors_of(collection: Collection) -> FloatArray:
    """Dense vectors of all points, in the order of their ids; zeros without one."""
    return np.concatenate([rows.vectors for rows in collection.scroll_rows()])


def check_same_load(ours: Collection, theirs: Collection) -> None:
    """Two complete loads of one base have the same points and manifests, but for the last bits of what is encoded."""
    pairs = list(zip(ours.scroll(), theirs.scroll(), strict=True))
    assert all(replace(one, type_probability=None) == replace(two, type_probability=None) for one, two in pairs)
    assert all(abs((one.type_probability or 0) - (two.type_probability or 0)) < 10 * CLOSE for one, two in pairs)
    assert np.abs(vectors_of(ours) - vectors_of(theirs)).max() < HALF
    assert ours.count() == theirs.count() == len(pairs)
    one, two = (
        {
            **collection.manifest.model_dump(exclude={"collection", "loaded", "content", "checksum"}),
            "loaded": [loaded.digest for loaded in collection.manifest.loaded],
        }
        for collection in (ours, theirs)
    )
    assert one == two
    assert (one["state"], one["checkpoints"]) == ("ready", ())
