"""The service follows changes of its collections, and makes those that it may make."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from edge_cases import wait_until
from fastapi.testclient import TestClient
from linker_base import ENTITIES, fill
from pydantic import SecretStr

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.errors import OptionError
from pearl_qdrant.service import ServiceSettings, create_app
from pearl_qdrant.service.settings import check_settings
from pearl_qdrant.store import delete_collection

KEYS = (SecretStr("0123456789abcdef-first"),)


@pytest.fixture
def own_settings(service_settings: ServiceSettings, service_store: Path, tmp_path: Path) -> ServiceSettings:
    """Settings of a service over a copy of the store, which a test may change."""
    shutil.copytree(service_store, tmp_path / "store", ignore=shutil.ignore_patterns(".view*", ".lock"))
    return service_settings.model_copy(update={"store": str(tmp_path / "store"), "cache": str(tmp_path / "cache")})


@pytest.fixture
def reader(own_settings: ServiceSettings) -> Iterator[TestClient]:
    """A client of a service that only reads."""
    with TestClient(create_app(own_settings)) as client:
        wait_until(lambda: client.get("/health/ready").status_code == 200)
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
    settings = own_settings.model_copy(update={"allow_writing": True, "api_keys": KEYS})
    with TestClient(create_app(settings), headers={"X-API-Key": KEYS[0].get_secret_value()}) as client:
        wait_until(lambda: client.get("/health/ready").status_code == 200)
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
