"""Maps of collections."""

from __future__ import annotations

import numpy as np
import pytest
from fastapi.testclient import TestClient

from pearl_qdrant.service.page import lay_out


def test_a_map_has_a_place_for_each_entity(client: TestClient) -> None:
    """Every entity is on the map once, by its canonical name, within the unit square; a sample can be asked for."""
    found = client.get("/v1/map", params={"size": 50}).json()

    assert found["collection"] == "base"
    assert len({point["entity_id"] for point in found["points"]}) == len(found["points"]) >= 6
    assert all(0 <= point[axis] <= 1 for point in found["points"] for axis in ("x", "y"))
    assert {point["canonical_name"]: point["type"] for point in found["points"]}["New York"] == "GPE"
    assert client.get("/v1/map", params={"size": 50}).json() == found
    assert client.get("/v1/map", params={"size": 3}).json()["points"] == found["points"][:3]
    refused = client.get("/v1/map", params={"size": 51})
    assert (refused.status_code, refused.json()["limit"]) == (422, "max_map_size")


def test_vectors_are_placed_by_their_principal_components() -> None:
    """The two directions in which vectors differ most become the axes; proportions are kept."""
    vectors = np.zeros((4, 5), np.float32)
    vectors[:, 2] = [0, 4, 8, 4]
    vectors[:, 4] = [0, 1, 0, -1]

    places = lay_out(vectors)

    assert np.ptp(places, axis=0) == pytest.approx([1, 0.25])
    assert places.mean(axis=0) == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("count", [0, 1, 2])
def test_hardly_any_vectors_have_places(count: int) -> None:
    """Empty and tiny collections have a map."""
    places = lay_out(np.ones((count, 3), np.float32))

    assert places.shape == (count, 2)
    assert np.isfinite(places).all()
