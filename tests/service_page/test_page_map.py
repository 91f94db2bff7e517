"""Maps of collections."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from pearl_qdrant.service.errors import NotReadyError
from pearl_qdrant.service.page import routes as maps
from pearl_qdrant.service.page.routes import lay_out, principal_components


def test_a_map_has_a_place_for_each_entity(client: TestClient) -> None:
    """Every entity is on the map once, by its canonical name, within the unit square."""
    found = client.get("/v1/map", params={"size": 50}).json()

    assert (found["collection"], found["method"]) == ("base", "pca")
    assert len({point["entity_id"] for point in found["points"]}) == len(found["points"]) >= 6
    assert all(0 <= point[axis] <= 1 for point in found["points"] for axis in ("x", "y"))
    assert {point["canonical_name"]: point["type"] for point in found["points"]}["New York"] == "GPE"
    assert client.get("/v1/map", params={"size": 50}).json() == found


def test_a_map_may_be_a_sample(client: TestClient) -> None:
    """Fewer entities than there are can be asked for, and more than the limit cannot."""
    whole = client.get("/v1/map", params={"size": 50}).json()["points"]
    assert client.get("/v1/map", params={"size": 3}).json()["points"] == whole[:3]
    refused = client.get("/v1/map", params={"size": 51})
    assert refused.status_code == 422
    assert refused.json()["limit"] == "max_map_size"


def test_few_vectors_are_placed_by_their_principal_components() -> None:
    """The two directions in which vectors differ most become the axes; proportions are kept."""
    vectors = np.zeros((4, 5), np.float32)
    vectors[:, 2] = [0, 4, 8, 4]
    vectors[:, 4] = [0, 1, 0, -1]

    places, method = lay_out(vectors)

    assert method == "pca"
    assert np.ptp(places, axis=0) == pytest.approx([1, 0.25])
    assert places.mean(axis=0) == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("count", [0, 1, 2])
def test_hardly_any_vectors_have_places(count: int) -> None:
    """Empty and tiny collections have a map."""
    places, _ = lay_out(np.ones((count, 3), np.float32))

    assert places.shape == (count, 2)
    assert np.isfinite(places).all()


def test_without_scikit_learn_the_components_are_the_map(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many vectors are placed by PCA where scikit-learn is missing."""
    monkeypatch.setattr(maps, "find_spec", lambda name: None)
    vectors = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)

    places, method = lay_out(vectors)

    assert method == "pca"
    assert np.corrcoef(places[:, 0], principal_components(vectors, 2)[:, 0])[0, 1] == pytest.approx(1)


@pytest.mark.slow
def test_near_vectors_are_near_on_the_map() -> None:
    """With scikit-learn, t-SNE puts the members of a cluster together, the same at each call."""
    random = np.random.default_rng(0)
    centres = np.repeat(np.eye(3, 20) * 8, 15, axis=0)
    vectors = (centres + random.normal(size=centres.shape)).astype(np.float32)

    places, method = lay_out(vectors)

    assert method == "t-sne"
    groups = places.reshape(3, 15, 2)
    within = np.linalg.norm(groups - groups.mean(axis=1, keepdims=True), axis=2).max()
    apart = min(np.linalg.norm(groups[a].mean(0) - groups[b].mean(0)) for a, b in ((0, 1), (0, 2), (1, 2)))
    assert within < apart
    assert np.array_equal(lay_out(vectors)[0], places)


class _Handle:
    """A collection whose state can be changed."""

    def __init__(self) -> None:
        self.name = "base"
        self.token = "one"
        manifest = SimpleNamespace(kb_version=None, names=1, entities=1)
        self.linker: Any = SimpleNamespace(
            encoder=None, collections=[SimpleNamespace(scroll=list, manifest=manifest, state_token=None)]
        )

    async def call(self, function: Any) -> Any:
        self.linker.collections[0].state_token = self.token
        return function(self.linker)


async def made_again(kept: maps.Maps) -> None:
    """Wait until no map is being made."""
    await asyncio.wait([one.task for one in kept._kept.values()])


def test_a_map_is_kept_until_the_collection_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests at the same time share one map; after a change, an error or an hour the former answers till the next."""
    made: list[int] = []
    now = [0.0]

    def make_map(points: object, encoder: object) -> maps.EntityMap:
        made.append(len(made))
        if len(made) == 2:
            raise ValueError("no memory")
        return maps.EntityMap("pca", ())

    monkeypatch.setattr(maps, "make_map", make_map)

    async def ask() -> None:
        kept, handle = maps.Maps(2000, clock=lambda: now[0]), _Handle()
        both = [kept.get(handle, 5, wait_s=60), kept.get(handle, 5, wait_s=60)]  # type: ignore[arg-type]
        first, second = await asyncio.gather(*both)
        assert first is second
        handle.token = "two"
        assert await kept.get(handle, 5, wait_s=60) is first  # type: ignore[arg-type]
        await made_again(kept)  # fails
        assert await kept.get(handle, 5, wait_s=60) is first  # type: ignore[arg-type]
        await made_again(kept)
        renewed = await kept.get(handle, 5, wait_s=60)  # type: ignore[arg-type]
        assert renewed is not first
        now[0] = maps.KEPT_S + 1
        assert await kept.get(handle, 5, wait_s=60) is renewed  # type: ignore[arg-type]
        await made_again(kept)
        assert await kept.get(handle, 5, wait_s=60) is not renewed  # type: ignore[arg-type]

    asyncio.run(ask())
    assert len(made) == 4


def test_who_asks_for_a_long_map_is_asked_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a map is made, a request ends in time with Retry-After, and a later one gets the map."""

    async def ask() -> None:
        kept, handle = maps.Maps(2000), _Handle()
        ready = asyncio.Event()

        async def slow(handle: object, size: int) -> maps.EntityMap:
            await ready.wait()
            return maps.EntityMap("pca", ())

        monkeypatch.setattr(kept, "_make", slow)
        with pytest.raises(NotReadyError) as found:
            await kept.get(handle, 5, wait_s=0)  # type: ignore[arg-type]
        assert found.value.retry_after_s
        ready.set()
        assert (await kept.get(handle, 5, wait_s=60)).method == "pca"  # type: ignore[arg-type]

    asyncio.run(ask())


def test_any_number_of_sizes_takes_two_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of many sizes, while the collection changes, make one map up to the default size and one above it."""
    made: list[int] = []

    async def ask() -> None:
        kept, handle = maps.Maps(2000), _Handle()
        ready = asyncio.Event()

        async def slow(handle: object, size: int) -> maps.EntityMap:
            made.append(size)
            await ready.wait()
            return maps.EntityMap("pca", tuple(maps.MapPointAnswer(0, 0, str(i), "", None) for i in range(size)))

        monkeypatch.setattr(kept, "_make", slow)
        asked = [asyncio.create_task(kept.get(handle, size, wait_s=60)) for size in range(1, 2000, 13)]  # type: ignore[arg-type]
        await asyncio.sleep(0)
        handle.token = "two"
        asked.append(asyncio.create_task(kept.get(handle, 600, wait_s=60)))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        ready.set()
        found = await asyncio.gather(*asked)
        assert [len(one.points) for one in found] == [*range(1, 2000, 13), 600]

    asyncio.run(ask())
    assert made == [600, 2000]
