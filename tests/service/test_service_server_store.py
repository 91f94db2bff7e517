"""A service over a Qdrant server: the same answers, and what happens when the server is away or slow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from edge_cases import wait_until
from fastapi.testclient import TestClient
from linker_base import ENTITIES, fill_server
from pydantic import SecretStr
from qdrant_double import QdrantDouble
from qdrant_double_http import Fault

from pearl_qdrant.service import ServiceSettings, create_app

KEY = "0123456789abcdef-first"


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[QdrantDouble]:
    """A server with the collection `base`, and one of another program."""
    with QdrantDouble() as double:
        fill_server(double.url, "base", str(model), ENTITIES)
        double.client.create_collection("foreign", vectors_config={})
        yield double


@pytest.fixture(scope="module")
def client(server: QdrantDouble, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client of a service over that server, which may write."""
    settings = ServiceSettings(
        store=server.url,
        cache=str(tmp_path_factory.mktemp("cache")),
        allow_writing=True,
        api_keys=(SecretStr(KEY),),
        allowed_hosts=("testserver",),
        reload_s=0.05,
        server_reload_s=0.05,
        store_wait_s=0.1,
    )
    with TestClient(create_app(settings), headers={"X-API-Key": KEY}) as opened:
        wait_until(lambda: opened.get("/health/ready").status_code == 200)
        yield opened


def test_a_server_answers_as_a_folder(client: TestClient) -> None:
    """Links, entities, suggestions and learned names work; collections of other programs are not served."""
    link = client.post("/v1/link", json={"mentions": ["NYTimes"], "threshold": 0}).json()["links"][0]
    wait_until(lambda: client.get("/v1/search", params={"q": "n"}).status_code == 200)

    assert link["entity_id"] == "nyt"
    assert client.get("/v1/entities/base/nyc").json()["aliases"] == ["Big Apple", "NYC"]
    assert client.get("/v1/search", params={"q": "big ap"}).json()["results"][0]["entity_id"] == "nyc"
    assert client.post("/v1/accept", json={"mention": "Gotham", "entity_id": "nyc"}).status_code == 200
    assert client.post("/v1/link", json={"mentions": ["Gotham"]}).json()["links"][0]["entity_id"] == "nyc"
    assert [one["collection"] for one in client.get("/v1/collections").json()["collections"]] == ["base"]


def test_a_server_that_is_away_is_503_and_comes_back(client: TestClient, server: QdrantDouble) -> None:
    """While the server does not answer, a request gets 503 with Retry-After; afterwards, the same answer as before."""
    body = {"mentions": ["New York Post"], "threshold": 0}
    before = client.post("/v1/link", json=body).json()["links"][0]
    server.drop_every = 1
    try:
        gone = client.post("/v1/link", json=body)
        not_ready = client.get("/health/ready")
        assert client.get("/health/live").status_code == 200
    finally:
        server.drop_every = 0

    assert (gone.status_code, gone.json()["error"]) == (503, "store_unavailable")
    assert int(gone.headers["retry-after"]) >= 1
    assert not_ready.status_code == 503
    wait_until(lambda: client.get("/health/ready").status_code == 200)
    after = client.post("/v1/link", json=body).json()["links"][0]
    assert after["entity_id"] == before["entity_id"]
    assert after["probability"] == pytest.approx(before["probability"])


def test_a_request_that_fails_once_is_answered(client: TestClient, server: QdrantDouble) -> None:
    """One fault of the server is not seen by clients, since the store tries again."""
    server.faults.append(Fault("drop", r"POST /collections/base/points/(query|search)"))

    assert client.post("/v1/link", json={"mentions": ["Big Apple"], "threshold": 0}).status_code == 200
    assert server.faults == []
