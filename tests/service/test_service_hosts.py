"""Which hosts are answered for, who may write, and what is told to those without a key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from edge_cases import wait_until
from fastapi.testclient import TestClient
from linker_base import ENTITIES, fill
from pydantic import SecretStr

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.errors import CollectionNotFoundError, OptionError
from pearl_qdrant.service import ServiceSettings, create_app, serve
from pearl_qdrant.service.settings import read_settings
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.schema import Manifest

KEY = "0123456789abcdef-first"


@pytest.fixture(scope="module")
def named(service_settings: ServiceSettings) -> Iterator[TestClient]:
    """A client of a service with names of its own."""
    changed = {"allowed_hosts": ("names.internal",), "public_url": "https://names.example.org/link"}
    with TestClient(create_app(service_settings.model_copy(update=changed)), base_url="http://127.0.0.1") as opened:
        wait_until(lambda: opened.get("/health/ready").status_code == 200)
        yield opened


@pytest.mark.parametrize(
    "host, status",
    [
        ("127.0.0.1:8765", 200),
        ("[::1]:8765", 200),
        ("10.1.2.3", 200),
        ("localhost:8765", 200),
        ("LOCALHOST.", 200),
        ("base.localhost", 200),
        ("names.internal:80", 200),
        ("names.example.org", 200),
        ("attacker.example", 421),
        ("attacker.example:8765", 421),
        ("localhost.attacker.example", 421),
        ("localhost@attacker.example", 421),
        ("attacker.example@localhost", 421),
        ("[", 421),
    ],
)
def test_a_host_that_is_not_the_services_is_refused(named: TestClient, host: str, status: int) -> None:
    """Another site that points its name at this machine gets no answer, on any path."""
    for path in ("/health/live", "/", "/v1/collections", "/openapi.json", "/reconcile/base"):
        answer = named.get(path, headers={"Host": host})
        assert answer.status_code == status
        assert status == 200 or answer.json()["error"] == "host_not_allowed"


def test_a_star_allows_any_host(service_settings: ServiceSettings) -> None:
    """Whoever has a proxy that checks hosts may allow all."""
    settings = read_settings(service_settings.model_dump(exclude={"allowed_hosts"}), ["allowed_hosts=*"])
    with TestClient(create_app(settings)) as client:
        assert client.get("/health/live", headers={"Host": "any.example"}).status_code == 200


def test_writing_asks_for_keys() -> None:
    """A service that may write and has no key does not start, and says how to make one."""
    for start in (serve, create_app):
        with pytest.raises(OptionError, match="openssl rand") as error:
            start(ServiceSettings(store="folder", allow_writing=True))
        assert error.value.option == "api_keys"


@pytest.fixture(scope="module")
def guarded(service_settings: ServiceSettings) -> Iterator[TestClient]:
    """A client without a key of a service that has one."""
    with TestClient(create_app(service_settings.model_copy(update={"api_keys": (SecretStr(KEY),)}))) as opened:
        wait_until(lambda: opened.get("/health/ready").status_code == 200)
        yield opened


def test_names_of_collections_need_a_key(guarded: TestClient) -> None:
    """A manifest of a collection that is not there names no other one to those without a key."""
    without = guarded.get("/reconcile/nope")
    with_key = guarded.get("/reconcile/nope", headers={"X-API-Key": KEY})

    assert (without.status_code, "base" in without.text) == (401, False)
    assert (with_key.status_code, "base" in with_key.json()["message"]) == (404, True)
    assert guarded.get("/reconcile/base").status_code == 200


def test_readiness_tells_nothing_of_the_service(service_settings: ServiceSettings, tmp_path: Path, model: Path) -> None:
    """Why the service is not ready is said in fixed texts, without names, paths and addresses."""
    (tmp_path / "file").write_text("no folder")
    away = {"store": "http://user:secret@127.0.0.1:9", "store_wait_s": 0.0}
    fill(tmp_path / "store", "secret-name", str(model), ENTITIES[:1])
    for changed in (away, {"store": str(tmp_path / "file")}, {"store": str(tmp_path / "store"), "model": "gone"}):
        with TestClient(create_app(service_settings.model_copy(update=changed))) as client:
            answer = client.get("/health/ready")

        assert answer.status_code == 503
        assert all(part not in answer.text for part in ("secret", str(tmp_path), "9", "gone"))


def test_a_collection_whose_first_load_was_killed_is_not_ready(
    service_settings: ServiceSettings, tmp_path: Path, model: Path
) -> None:
    """A load that stored nothing leaves a collection that opens, and that nobody should be sent to."""
    info = load_encoder(str(model), device="cpu").info
    store = EdgeStore(tmp_path / "store")
    made = Manifest.for_model(info, collection="base", kb="base").model_copy(update={"model": str(model)})
    store.create(made)
    store.close()
    settings = service_settings.model_copy(update={"store": str(tmp_path / "store")})
    with TestClient(create_app(settings)) as client:
        wait_until(lambda: "base" in client.app.state.collections._handles)  # type: ignore[attr-defined]
        answer = client.get("/health/ready")

    assert (answer.status_code, answer.json()["problems"]) == (503, ["The load of a collection did not finish."])


def test_a_collection_that_is_not_there_is_not_served(service_settings: ServiceSettings) -> None:
    """`serve --collection nope` does not start, and names what there is."""
    with pytest.raises(CollectionNotFoundError, match="there are: base"):
        serve(service_settings.model_copy(update={"collections": ("base", "nope"), "port": 0}))


@pytest.mark.parametrize("path", ["/v1/link", "/v1/annotate", "/v1/documents", "/v1/accept", "/v1/reject"])
@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", ""])
def test_json_without_its_header_is_told_which(client: TestClient, path: str, kind: str) -> None:
    """What `curl -d` sends is answered with the header that lacks."""
    answer = client.post(path, content=b'{"mentions": ["x"]}', headers={"Content-Type": kind} if kind else {})

    assert (answer.status_code, answer.json()["error"]) == (415, "unsupported_media_type")
    assert "Content-Type: application/json" in answer.json()["message"]


def test_there_is_a_page_of_paths(client: TestClient) -> None:
    """/docs lists every path of the schema, and loads nothing."""
    page = client.get("/docs")

    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    for path, operations in client.get("/openapi.json").json()["paths"].items():
        assert all(f"{method.upper()} {path}" in page.text for method in operations)
    assert "<script" not in page.text


@pytest.mark.parametrize(
    "method, path, body",
    [
        ("GET", "/v1/entities/base/none", None),
        ("GET", "/v1/entities/none/none", None),
        ("POST", "/v1/link", {"mentions": ["x"], "types": ["none"]}),
        ("POST", "/v1/link", {"mentions": ["x"], "collection": "none"}),
        ("POST", "/v1/accept", {"mention": "x", "entity_id": "nyc"}),
    ],
)
def test_clients_are_told_no_command_of_a_shell(client: TestClient, method: str, path: str, body: Any) -> None:
    """An error says what a client of HTTP can do."""
    answer = client.request(method, path, json=body)

    assert answer.status_code in (403, 404, 422)
    assert "pearl-qdrant " not in answer.json()["message"]
