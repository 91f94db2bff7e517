"""POST /v1/link answers as the linker does."""

from __future__ import annotations

from fastapi.testclient import TestClient


def test_mentions_are_linked_in_their_order(client: TestClient) -> None:
    """A batch of mentions has one link each, with candidates and probability, or NIL with a reason."""
    answer = client.post("/v1/link", json={"mentions": ["NYTimes", "Big Apple"], "limit": 1, "threshold": 0})

    assert answer.status_code == 200
    first, second = answer.json()["links"]
    assert (first["mention"], first["entity_id"]) == ("NYTimes", "nyt")
    assert (second["mention"], second["entity_id"]) == ("Big Apple", "nyc")
    assert len(first["candidates"]) == 1


def test_an_entity_has_all_its_names(client: TestClient) -> None:
    """An entity is found by base and id."""
    answer = client.get("/v1/entities/base/nyc")

    assert answer.json()["canonical_name"] == "New York"
    assert answer.json()["aliases"] == ["Big Apple", "NYC"]
    assert client.get("/v1/entities/base/none").json()["error"] == "entity_not_found"
