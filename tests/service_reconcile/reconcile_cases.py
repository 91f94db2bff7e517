"""A base with homonyms that differ in their columns, and what a client does with a service over it."""

from __future__ import annotations

import json
from functools import partial
from typing import Any
from urllib.parse import quote_plus

import httpx
import service_client
from fastapi.testclient import TestClient

from pearl_qdrant import Entity

ENDPOINT = "/reconcile/places"

LIGHTHOUSE = "http://example.org/item/7"
HOSTILE = "x&y"

ENTITIES = [
    Entity(
        *("nyt", "The New York Times", ("NYTimes", "Times of New York"), ("newspaper",), ("ORG",)),
        *("A daily newspaper", {"country": "United States", "founded": "1851-09-18"}),
    ),
    Entity(
        *("il", "Springfield", (), ("city",), ("GPE",)),
        *("The capital of Illinois", {"state": "Illinois", "founded": "1821"}),
    ),
    Entity("ma", "Springfield", (), ("city",), ("GPE",), None, {"state": "Massachusetts", "founded": "1636"}),
    Entity("mo", "Springfield", (), ("city",), ("GPE",), None, {"state": "Missouri", "founded": "1838"}),
    Entity("tv", "Springfield", (), ("fiction",), (), "A town in a series"),
    Entity(LIGHTHOUSE, "Lighthouse", (), ("building",), (), None, {"links_to": "nyt|gone"}, 12.5),
    Entity(
        *(HOSTILE, "<script>alert(1)</script>", ("<img src=x onerror=alert(2)>",), ("<i>type</i>",), ()),
        *('a "description" <b>', {"<u>column</u>": "<svg onload=alert(3)>"}),
    ),
    *(Entity(f"twin-{i}", "Twins", (), ("lake", "reservoir")[:i], ()) for i in (1, 2)),
    *(Entity(f"crowd-{i}", "Crowded Name", (), (), (), None, {"state": f"State {i}"}) for i in range(16)),
]

READY = {"base_url": "http://127.0.0.1:8765", "waits_for": "/v1/search?q=n&collection=places", "has_key": False}
"""Of a client, without a key, of a service that is ready to suggest names."""

serving = partial(service_client.serving, **READY)
reconciling = partial(service_client.client_of, "reconcile_settings", **READY)


def post_form(client: TestClient, name: str, value: Any, **headers: str) -> httpx.Response:
    """Post JSON in a field of a form, encoded as Java's URLEncoder does."""
    body = f"{name}={quote_plus(json.dumps(value, ensure_ascii=False), safe='*-._')}"
    sent = {"Content-Type": "application/x-www-form-urlencoded; charset=UTF-8", **headers}
    return client.post(ENDPOINT, content=body.encode("ascii"), headers=sent)


def results(client: TestClient, **queries: Any) -> dict[str, list[dict[str, Any]]]:
    """The candidates of each query of a batch."""
    answer = post_form(client, "queries", queries)
    assert answer.status_code == 200, answer.text
    return {key: one["result"] for key, one in answer.json().items()}


def candidates(client: TestClient, **query: Any) -> list[dict[str, Any]]:
    """The candidates of one query."""
    return results(client, q0=query)["q0"]


def matched(found: list[dict[str, Any]]) -> list[str]:
    """The ids of the candidates that are matches."""
    return [one["id"] for one in found if one["match"]]
