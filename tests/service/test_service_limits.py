"""Limits, keys and time-outs: what is refused, and with which answer.
Which hosts are answered for, who may write, and what is told to those without a key.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from edge_cases import wait_until
from fastapi.testclient import TestClient
from linker_base import ENTITIES, fill
from pydantic import SecretStr
from service_client import KEY, KEYS, Held, client_of, handle_of, serving

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.errors import CollectionNotFoundError, OptionError, SettingsError
from pearl_qdrant.records import Candidate
from pearl_qdrant.service import ServiceSettings, create_app, serve
from pearl_qdrant.service.gate import read_keys
from pearl_qdrant.service.queues import BATCH_MENTIONS
from pearl_qdrant.store import open_store
from pearl_qdrant.store.schema import Manifest

OTHER_KEY = "0123456789abcdef-second"


@pytest.mark.parametrize(
    "path, body, limit, allowed",
    [
        ("/v1/link", {"mentions": ["x"] * 21}, "max_mentions", 20),
        ("/v1/link", {"mentions": ["x" * 101]}, "max_mention_characters", 100),
        ("/v1/link", {"mentions": ["x"], "limit": 21}, "max_limit", 20),
        ("/v1/link", {"mentions": ["x"], "types": ["a"] * 5}, "max_types", 4),
        ("/v1/link", {"mentions": ["x"], "context": "x" * 1001}, "max_text_characters", 1000),
        ("/v1/annotate", {"text": "x" * 1001}, "max_text_characters", 1000),
        ("/v1/documents", {"text": "xy", "spans": [{"start": 0, "end": 1}] * 21}, "max_mentions", 20),
        ("/v1/link", {"mentions": ["x"] * 20, "limit": 20}, "max_candidates", 150),
        ("/v1/documents", {"text": "xy", "spans": [{"start": 0, "end": 1}] * 10, "limit": 20}, "max_candidates", 150),
    ],
)
def test_what_is_over_a_limit_is_refused_by_its_name(
    client: TestClient, path: str, body: dict[str, Any], limit: str, allowed: int
) -> None:
    """A request over a limit is answered with 422, the name of the limit and its value."""
    answer = client.post(path, json=body)

    assert answer.status_code == 422
    assert (answer.json()["limit"], answer.json()["allowed"]) == (limit, allowed)


@pytest.mark.parametrize("number", [2**63, 2**64, 10**400], ids=["2**63", "2**64", "10**400"])
def test_a_number_without_end_is_over_the_limit(client: TestClient, number: int) -> None:
    """A number that no JSON reader knows is refused as any other that is too large."""
    answers = [
        client.get("/v1/search", params={"q": "x", "limit": number}),
        client.get("/v1/map", params={"size": number}),
        client.get("/reconcile/base/suggest/entity", params={"prefix": "x", "cursor": number}),
        client.post(
            "/v1/link",
            content=f'{{"mentions": ["x"], "limit": {number}}}',
            headers={"Content-Type": "application/json"},
        ),
    ]

    assert [(one.status_code, one.json()["found"]) for one in answers] == [(422, 2**53)] * 4


@pytest.mark.parametrize("properties", [{}, {"kb_types": ["newspaper"] * 400}])
def test_a_large_request_waits_with_little(
    service_settings: ServiceSettings, monkeypatch: pytest.MonkeyPatch, properties: dict[str, list[str]]
) -> None:
    """Of many mentions, no more candidates are in memory with their features at a time than two batches have;
    without a row to compare them with, no more candidates.
    """
    alive: list[int] = []
    gc.freeze()  # what is there already is not looked at

    def n_alive() -> int:
        gc.collect()
        found = [one for one in gc.get_objects() if type(one) is Candidate]
        return sum(bool(one.features) for one in found) if properties else len(found)

    def counting(*given: Any, **named: Any) -> Any:
        alive.append(n_alive())
        return link_batch(*given, **named)

    mentions = [f"New York {i}" for i in range(400)]
    bounds = {"max_mentions": 400, "max_candidates": 20_000, "max_body_bytes": 1 << 20, "timeout_s": 600}
    with serving(service_settings, **bounds) as client:
        linker = handle_of(client).linker
        link_batch = linker.link_batch
        monkeypatch.setattr(linker, "link_batch", counting)
        before = n_alive()
        answer = client.post("/v1/link", json={"mentions": mentions, "limit": 20, "properties": properties})

    links = answer.json()["links"]
    assert [one["mention"] for one in links] == mentions
    of_a_batch = BATCH_MENTIONS * max(len(one["candidates"]) for one in links)
    assert len(alive) >= 400 / BATCH_MENTIONS
    assert max(alive) - before <= 2 * of_a_batch < sum(len(one["candidates"]) for one in links)


def test_a_large_body_is_refused(client: TestClient) -> None:
    """A body over the limit is answered with 413, whether or not its length is known before."""

    def parts() -> Iterator[bytes]:
        for _ in range(30):
            yield b"x" * 1000

    whole = client.post("/v1/link", content=b"x" * 20_001)
    in_parts = client.post("/v1/link", content=parts())

    assert [whole.status_code, in_parts.status_code] == [413, 413]
    assert (whole.json()["limit"], whole.json()["allowed"]) == ("max_body_bytes", 20_000)


def test_limits_are_in_the_schema(client: TestClient) -> None:
    """OpenAPI shows the limits of the settings, and examples; limits hold for parameters of a URL, too."""
    schemas = client.get("/openapi.json").json()["components"]["schemas"]

    link = schemas["LinkBody"]
    assert link["properties"]["mentions"]["maxItems"] == 20
    assert link["properties"]["mentions"]["items"]["maxLength"] == 100
    assert link["examples"]
    for query, limit in (({"q": "x" * 101}, "max_mention_characters"), ({"q": "x", "limit": "21"}, "max_limit")):
        assert client.get("/v1/search", params=query).json()["limit"] == limit


def ask(client: TestClient, n: int) -> Any:
    """Link a mention n times."""
    return client.post("/v1/link", json={"mentions": ["NYC"] * n, "threshold": 0})


def test_a_busy_service_refuses(service_settings: ServiceSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than may wait is answered with 429 and Retry-After; what waits is answered afterwards."""
    with serving(service_settings, max_queued_mentions=2) as client, ThreadPoolExecutor(2) as clients:
        held = Held(client, monkeypatch)
        running = clients.submit(ask, client, 1)
        held.running.acquire()
        waiting = clients.submit(ask, client, 2)
        queued = 'pearl_qdrant_queued_mentions{collection="base"} 2.0'
        wait_until(lambda: queued in client.get("/metrics").text)

        refused = ask(client, 1)

        assert (refused.status_code, refused.json()["error"]) == (429, "busy")
        assert int(refused.headers["retry-after"]) >= 1
        held.may_go.set()
        assert running.result().status_code == 200
        assert [link["entity_id"] for link in waiting.result().json()["links"]] == ["nyc", "nyc"]
        linked = 'pearl_qdrant_batch_mentions_sum{collection="base"} 3.0'
        assert linked in client.get("/metrics").text, "what was refused is not linked later"


guarded = client_of("service_settings", api_keys=(*KEYS, SecretStr(OTHER_KEY)), has_key=False)


def test_a_key_is_needed_in_a_header(guarded: TestClient) -> None:
    """With keys, a request without a valid one is answered with 401; health and the page need none; a URL never has
    one.
    """
    for headers in ({"Authorization": f"Bearer {KEY}"}, {"X-API-Key": OTHER_KEY}):
        assert guarded.get("/v1/collections", headers=headers).status_code == 200
    both = {"Authorization": "Bearer wrong", "X-API-Key": KEY}
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": KEY}, {"X-API-Key": ""}, both):
        refused = guarded.get("/v1/collections", headers=headers)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    for path in ("/v1/collections?api_key=" + KEY, "/metrics", "/health/live/x", "/static", "/v1/link"):
        assert guarded.get(path).status_code == 401
    for path in ("/health/live", "/page/base.css", "/"):
        assert guarded.get(path).status_code == 200
    assert KEY not in repr(ServiceSettings(api_keys=KEYS))
    schema = guarded.get("/openapi.json").json()
    assert schema["paths"]["/v1/link"]["post"]["security"] == [{"bearer": []}, {"key": []}]
    manifest = schema["paths"]["/reconcile/{collection}"]["get"]
    assert {} in manifest["security"], "the manifest needs no key"


def test_keys_come_from_a_file_and_the_environment(tmp_path: Path) -> None:
    """One key a line, comments apart; keys of the environment count beside them."""
    path = tmp_path / "keys.txt"
    path.write_text(f"# for the page\n{KEY}\n\n")

    found = read_keys(path, {"PEARL_QDRANT_SERVICE_KEYS": OTHER_KEY})

    assert {key.get_secret_value() for key in found} == {KEY, OTHER_KEY}
    assert read_keys(None, {}) == ()


@pytest.mark.parametrize(
    "path, body, field",
    [
        ("/v1/link", {"mentions": ["x"], "threshold": "0.5"}, "threshold"),
        ("/v1/link", {"mentions": ["x"], "explain": 1}, "explain"),
        ("/v1/link", {"mentions": [1]}, "mentions"),
        ("/v1/documents", {"text": "xy", "spans": [{"start": "0", "end": 1}]}, "spans"),
    ],
)
def test_a_value_of_another_type_is_refused(client: TestClient, path: str, body: dict[str, Any], field: str) -> None:
    """A number as text, or 1 for true, is not what the schema says; a whole number is a number."""
    answer = client.post(path, json=body)

    assert answer.status_code == 422
    assert field in answer.json()["message"]
    assert client.post("/v1/link", json={"mentions": ["x"], "threshold": 1}).status_code == 200


@pytest.mark.parametrize(
    "text, part", [("", "no key"), ("short\n", "API key 1"), ("\u00e9" * 20, "API key 1"), (None, "cannot be read")]
)
def test_a_file_of_keys_that_cannot_be_used_is_an_error(tmp_path: Path, text: str | None, part: str) -> None:
    """A file without a usable key says so, and shows no key."""
    path = tmp_path / "keys.txt"
    if text is not None:
        path.write_text(text)

    with pytest.raises(SettingsError, match=part) as error:
        read_keys(path, {})

    assert "short" not in str(error.value)


NAMED = {"allowed_hosts": ("names.internal",), "public_url": "https://names.example.org/link"}
named = client_of("service_settings", base_url="http://127.0.0.1", **NAMED)


ALLOWED = (
    *("127.0.0.1:8765", "[::1]:8765", "10.1.2.3", "localhost:8765", "LOCALHOST.", "base.localhost"),
    *("names.internal:80", "names.example.org"),
)
REFUSED = (
    *("attacker.example", "attacker.example:8765", "localhost.attacker.example"),
    *("localhost@attacker.example", "attacker.example@localhost", "["),
)


@pytest.mark.parametrize("host, status", [*((one, 200) for one in ALLOWED), *((one, 421) for one in REFUSED)])
def test_a_host_that_is_not_the_services_is_refused(named: TestClient, host: str, status: int) -> None:
    """Another site that points its name at this machine gets no answer, on any path."""
    for path in ("/health/live", "/", "/v1/collections", "/openapi.json", "/reconcile/base"):
        answer = named.get(path, headers={"Host": host})
        assert answer.status_code == status
        assert status == 200 or answer.json()["error"] == "host_not_allowed"


def test_a_star_allows_any_host(service_settings: ServiceSettings) -> None:
    """Whoever has a proxy that checks hosts may allow all."""
    settings = service_settings.model_copy(update=ServiceSettings.read(["allowed_hosts=*"]))
    with TestClient(create_app(settings)) as client:
        assert client.get("/health/live", headers={"Host": "any.example"}).status_code == 200


def test_writing_asks_for_keys() -> None:
    """A service that may write and has no key does not start, and says how to make one."""
    for start in (serve, create_app):
        with pytest.raises(OptionError, match="openssl rand") as error:
            start(ServiceSettings(store="folder", allow_writing=True))
        assert error.value.option == "api_keys"


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
    store = open_store(tmp_path / "store")
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
