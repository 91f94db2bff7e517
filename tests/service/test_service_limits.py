"""Limits, keys and time-outs: what is refused, and with which answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from edge_cases import wait_until
from fastapi.testclient import TestClient
from pydantic import SecretStr

from pearl_qdrant.errors import SettingsError
from pearl_qdrant.service import ServiceSettings, create_app
from pearl_qdrant.service.gate import KeyCheck, read_keys

KEY = "0123456789abcdef-first"
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
        ("/v1/documents", {"text": "xy", "spans": [{"start": 0, "end": 1}] * 11}, "max_spans", 10),
    ],
)
def test_what_is_over_a_limit_is_refused_by_its_name(
    client: TestClient, path: str, body: dict[str, Any], limit: str, allowed: int
) -> None:
    """A request over a limit is answered with 422, the name of the limit and its value."""
    answer = client.post(path, json=body)

    assert answer.status_code == 422
    assert (answer.json()["limit"], answer.json()["allowed"]) == (limit, allowed)


def test_a_search_over_a_limit_is_refused(client: TestClient) -> None:
    """Limits hold for parameters of a URL, too."""
    assert client.get("/v1/search", params={"q": "x" * 101}).json()["limit"] == "max_mention_characters"
    assert client.get("/v1/search", params={"q": "x", "limit": 21}).json()["limit"] == "max_limit"


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
    """OpenAPI shows the limits of the settings, and examples."""
    schemas = client.get("/openapi.json").json()["components"]["schemas"]

    link = schemas["LinkBody"]
    assert link["properties"]["mentions"]["maxItems"] == 20
    assert link["properties"]["mentions"]["items"]["maxLength"] == 100
    assert link["examples"]


def test_an_id_of_a_request_is_kept(client: TestClient) -> None:
    """A valid X-Request-ID is returned; another one is replaced."""
    kept = client.get("/health/live", headers={"X-Request-ID": "abc-1"})
    replaced = client.get("/health/live", headers={"X-Request-ID": "a b\tc"})

    assert kept.headers["x-request-id"] == "abc-1"
    assert len(replaced.headers["x-request-id"]) == 32


class Held:
    """Lets no batch of a service pass until it is told to."""

    def __init__(self, client: TestClient, patch: pytest.MonkeyPatch) -> None:
        self.is_linking, self.may_link = threading.Event(), threading.Event()
        linker = client.app.state.collections._handles["base"].linker  # type: ignore[attr-defined]
        link_batch = linker.link_batch

        def held(*given: Any, **named: Any) -> Any:
            self.is_linking.set()
            self.may_link.wait()
            return link_batch(*given, **named)

        patch.setattr(linker, "link_batch", held)


def ask(client: TestClient, n: int) -> Any:
    """Link a mention n times."""
    return client.post("/v1/link", json={"mentions": ["NYC"] * n, "threshold": 0})


def test_a_busy_service_refuses(service_settings: ServiceSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than may wait is answered with 429 and Retry-After; what waits is answered afterwards."""
    settings = service_settings.model_copy(update={"max_queued_mentions": 2})
    with TestClient(create_app(settings)) as client, ThreadPoolExecutor(2) as clients:
        wait_until(lambda: client.get("/health/ready").status_code == 200)
        held = Held(client, monkeypatch)
        running = clients.submit(ask, client, 1)
        held.is_linking.wait()
        waiting = clients.submit(ask, client, 2)
        queued = 'pearl_qdrant_queued_mentions{collection="base"} 2.0'
        wait_until(lambda: queued in client.get("/metrics").text)

        refused = ask(client, 1)

        assert (refused.status_code, refused.json()["error"]) == (429, "busy")
        assert int(refused.headers["retry-after"]) >= 1
        held.may_link.set()
        assert running.result().status_code == 200
        assert [link["entity_id"] for link in waiting.result().json()["links"]] == ["nyc", "nyc"]


def test_a_slow_service_gives_up(service_settings: ServiceSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes too long is answered with 504 and the name of the limit; afterwards, requests are answered."""
    with TestClient(create_app(service_settings)) as client:
        wait_until(lambda: client.get("/health/ready").status_code == 200)
        held = Held(client, monkeypatch)
        joiner = client.app.state.collections._handles["base"]._joiner  # type: ignore[attr-defined]
        with monkeypatch.context() as soon:
            soon.setattr(joiner, "_timeout_s", 0.01)
            late = ask(client, 1)
        held.may_link.set()

        assert (late.status_code, late.json()["limit"]) == (504, "timeout_s")
        assert ask(client, 1).json()["links"][0]["entity_id"] == "nyc"


def test_a_key_is_needed_in_a_header(service_settings: ServiceSettings) -> None:
    """With keys, a request without a valid one is answered with 401; health needs none; a URL never has one."""
    settings = service_settings.model_copy(update={"api_keys": (SecretStr(KEY), SecretStr(OTHER_KEY))})
    with TestClient(create_app(settings)) as client:
        for headers in ({"Authorization": f"Bearer {KEY}"}, {"X-API-Key": OTHER_KEY}):
            assert client.get("/v1/collections", headers=headers).status_code == 200
        both = {"Authorization": "Bearer wrong", "X-API-Key": KEY}
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": KEY}, {"X-API-Key": ""}, both):
            refused = client.get("/v1/collections", headers=headers)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert client.get("/v1/collections", params={"api_key": KEY}).status_code == 401
        assert client.get("/metrics").status_code == 401
        assert client.get("/health/live").status_code == 200
        assert KEY not in repr(settings)
        schema = client.get("/openapi.json").json()
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


def test_paths_below_a_public_one_are_public() -> None:
    """A public path that ends in / stands for all below it, and for nothing else."""
    check = KeyCheck([SecretStr(KEY)])

    assert [check.allows(path, []) for path in ("/health/live", "/page/a.js", "/")] == [True] * 3
    assert [check.allows(path, []) for path in ("/health/live/x", "/static", "/v1/link")] == [False] * 3
