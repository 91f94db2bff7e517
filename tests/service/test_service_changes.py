"""The service follows changes of its collections, and makes those that it may make.
A service over a Qdrant server: the same answers, and what happens when the server is away or slow.
What takes time is bounded, and ends with the time of its request.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from edge_cases import wait_until
from fastapi.testclient import TestClient
from linker_base import ENTITIES, fill, fill_server
from qdrant_double import QdrantDouble
from service_client import KEYS, handle_of, serving

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.errors import OptionError
from pearl_qdrant.service import ServiceSettings, create_app
from pearl_qdrant.service.settings import TimedOutError, check_settings
from pearl_qdrant.store import delete_collection


@pytest.fixture
def own_settings(service_settings: ServiceSettings, base_store: Path, tmp_path: Path) -> ServiceSettings:
    """Settings of a service over a copy of the store, which a test may change."""
    shutil.copytree(base_store, tmp_path / "store", ignore=shutil.ignore_patterns(".view*", ".lock"))
    return service_settings.model_copy(update={"store": str(tmp_path / "store"), "cache": str(tmp_path / "cache")})


@pytest.fixture
def reader(own_settings: ServiceSettings) -> Iterator[TestClient]:
    """A client of a service that only reads."""
    with serving(own_settings) as client:
        yield client


def entity_of(client: TestClient, mention: str, collection: str | None = None) -> str | None:
    """The id that a mention is linked to."""
    body = {"mentions": [mention], "threshold": 0.4, "collection": collection}
    answer = client.post("/v1/link", json=body)
    found: str | None = answer.json()["links"][0]["entity_id"] if answer.status_code == 200 else answer.json()["error"]
    return found


def test_changes_collections_and_their_end_are_followed(
    reader: TestClient, own_settings: ServiceSettings, model: Path
) -> None:
    """What a writer adds is linked and suggested soon; a new collection is served; one that is deleted is not."""
    assert own_settings.store is not None
    assert entity_of(reader, "Gotham") != "gotham"
    with EntityLinker.open("base", store=own_settings.store) as writer:
        writer.add([Entity("gotham", "Gotham", (), ("city",), ("GPE",))])

    wait_until(lambda: entity_of(reader, "Gotham") == "gotham")
    wait_until(lambda: reader.get("/v1/search", params={"q": "goth"}).json().get("results"))

    fill(Path(own_settings.store), "second", str(model), ENTITIES[:1])
    wait_until(lambda: entity_of(reader, "NYTimes", "second") == "nyt")
    assert reader.post("/v1/link", json={"mentions": ["NYC"]}).json()["error"] == "collection_missing"

    delete_collection("second", store=own_settings.store)
    wait_until(lambda: entity_of(reader, "NYTimes", "second") == "collection_not_found")
    assert entity_of(reader, "NYTimes") == "nyt"


def test_an_answer_is_accepted_and_rejected(own_settings: ServiceSettings) -> None:
    """A service that may write learns what people accept and reject, effective at once; it holds the collection."""
    with serving(own_settings, allow_writing=True, api_keys=KEYS) as client:
        accepted = client.post("/v1/accept", json={"mention": "Gotham", "entity_id": "nyc"}).json()
        assert (accepted["number"], accepted["kind"]) == (1, "accept")
        assert entity_of(client, "Gotham") == "nyc"
        for _ in range(3):
            assert client.post("/v1/reject", json={"mention": "Gotham", "entity_id": "nyc"}).status_code == 200
        assert entity_of(client, "Gotham") != "nyc"
        unknown = client.post("/v1/accept", json={"mention": "Gotham", "entity_id": "none"})
        assert unknown.json()["error"] == "entity_not_found"
        assert client.post("/v1/accept", json={"mention": "Nobody", "entity_id": None}).status_code == 200


def test_a_store_that_is_not_there_yet_is_waited_for(
    service_settings: ServiceSettings, tmp_path: Path, model: Path
) -> None:
    """A service over an empty store is alive and not ready, and serves what is made there later."""
    settings = service_settings.model_copy(update={"store": str(tmp_path / "later")})
    with TestClient(create_app(settings)) as client:
        assert client.get("/health/live").status_code == 200
        not_ready = client.get("/health/ready")
        assert (not_ready.status_code, not_ready.json()["status"]) == (503, "not ready")
        fill(tmp_path / "later", "base", str(model), ENTITIES[:1])
        wait_until(lambda: client.get("/health/ready").status_code == 200)
        wait_until(lambda: entity_of(client, "NYTimes") == "nyt")  # opened before its names, maybe


def test_several_workers_do_not_write_to_a_folder() -> None:
    """An embedded collection has one writer, so that such a service has one worker; a server may have several."""
    with pytest.raises(OptionError, match="one writer"):
        check_settings(ServiceSettings(store="folder", workers=2, allow_writing=True, api_keys=KEYS))
    check_settings(ServiceSettings(store="http://localhost:6333", workers=2, allow_writing=True, api_keys=KEYS))
    check_settings(ServiceSettings(store="folder", workers=2))


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[QdrantDouble]:
    """A server with the collection `base`, and one of another program."""
    with QdrantDouble() as double:
        fill_server(double.url, "base", str(model), ENTITIES)
        double.client.create_collection("foreign", vectors_config={})
        yield double


@pytest.fixture(scope="module")
def writer(server: QdrantDouble, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client of a service over that server, which may write."""
    settings = ServiceSettings(
        store=server.url,
        cache=str(tmp_path_factory.mktemp("cache")),
        allow_writing=True,
        api_keys=KEYS,
        allowed_hosts=("testserver",),
        reload_s=0.05,
        server_reload_s=0.05,
        store_wait_s=0.1,
    )
    with serving(settings) as opened:
        yield opened


def test_a_server_answers_as_a_folder(writer: TestClient) -> None:
    """Links, entities, suggestions and learned names work; collections of other programs are not served."""
    link = writer.post("/v1/link", json={"mentions": ["NYTimes"], "threshold": 0}).json()["links"][0]
    wait_until(lambda: writer.get("/v1/search", params={"q": "n"}).status_code == 200)

    assert link["entity_id"] == "nyt"
    assert writer.get("/v1/entities/base/nyc").json()["aliases"] == ["Big Apple", "NYC"]
    assert writer.get("/v1/search", params={"q": "big ap"}).json()["results"][0]["entity_id"] == "nyc"
    assert writer.post("/v1/accept", json={"mention": "Gotham", "entity_id": "nyc"}).status_code == 200
    assert writer.post("/v1/link", json={"mentions": ["Gotham"]}).json()["links"][0]["entity_id"] == "nyc"
    assert [one["collection"] for one in writer.get("/v1/collections").json()["collections"]] == ["base"]


def test_a_server_that_is_away_is_503_and_comes_back(writer: TestClient, server: QdrantDouble) -> None:
    """While the server does not answer, a request gets 503 with Retry-After; afterwards, the same answer as before."""
    body = {"mentions": ["New York Post"], "threshold": 0}
    before = writer.post("/v1/link", json=body).json()["links"][0]
    server.drop_every = 1
    try:
        gone = writer.post("/v1/link", json=body)
        not_ready = writer.get("/health/ready")
        assert writer.get("/health/live").status_code == 200
    finally:
        server.drop_every = 0

    assert (gone.status_code, gone.json()["error"]) == (503, "store_unavailable")
    assert int(gone.headers["retry-after"]) >= 1
    assert not_ready.status_code == 503
    wait_until(lambda: writer.get("/health/ready").status_code == 200)
    after = writer.post("/v1/link", json=body).json()["links"][0]
    assert after["entity_id"] == before["entity_id"]
    assert after["probability"] == pytest.approx(before["probability"])


def test_a_text_ends_with_the_time_of_its_request(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a 504 the text is not annotated further, and the next one is answered."""
    handle = handle_of(client)
    annotate, ended = handle.linker.annotate, []

    def endless(text: str, options: Any, **_: object) -> Any:
        try:
            for number in count():  # other words each time: what is known already takes no time
                annotate(f"{text} Then Mrs. Word{number} came.", options)
        except TimedOutError as error:
            ended.append(error)
            raise

    with monkeypatch.context() as soon:
        soon.setattr(handle._texts, "_timeout_s", 0.05)
        soon.setattr(handle.linker, "annotate", endless)
        late = client.post("/v1/annotate", json={"text": "She read the NYTimes."})

    assert (late.status_code, late.json()["error"]) == (504, "timed_out")
    assert client.post("/v1/annotate", json={"text": "She read the NYTimes."}).status_code == 200
    assert len(ended) == 1
