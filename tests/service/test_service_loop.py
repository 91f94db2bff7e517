"""The event loop is free: what takes time runs in threads, is bounded, and ends with the time of its request."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from edge_cases import wait_until
from fastapi.testclient import TestClient

from pearl_qdrant.service.names.find import NameIndex


def on_loop(call: Any, seen: list[bool]) -> Any:
    """A function that also notes whether it runs on an event loop."""

    def noted(*given: Any, **named: Any) -> Any:
        try:
            asyncio.get_running_loop()
            seen.append(True)
        except RuntimeError:
            seen.append(False)
        return call(*given, **named)

    return noted


def test_a_search_runs_in_a_thread(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are looked for beside the event loop, for type-ahead and for reconciliation."""
    wait_until(lambda: client.get("/v1/search?q=n").status_code == 200)
    seen: list[bool] = []
    monkeypatch.setattr(NameIndex, "find", on_loop(NameIndex.find, seen))

    assert client.get("/v1/search?q=new").json()["results"]
    assert client.get("/reconcile/base/suggest/entity?prefix=new").json()["result"]
    assert seen == [False, False]


@pytest.mark.parametrize(
    "path, body, where",
    [
        ("/v1/link", {"mentions": ["\ufdfa" * 6]}, "mentions"),
        ("/v1/link", {"mentions": ["x"], "context": "\ufdfa" * 56}, "context"),
        ("/v1/annotate", {"text": "\ufdfa " * 60}, "text"),
        ("/v1/documents", {"text": "\ufdfa " * 60, "spans": []}, "text"),
    ],
)
def test_characters_are_counted_after_normalisation(
    client: TestClient, path: str, body: dict[str, Any], where: str
) -> None:
    """A character that stands for many counts as many, wherever characters are limited."""
    answer = client.post(path, json=body)

    assert (answer.status_code, answer.json()["where"]) == (422, where)


@pytest.mark.parametrize(
    "path",
    ["/v1/search?q=", "/reconcile/base/suggest/entity?prefix=", "/reconcile/base/preview?id="],
)
def test_parameters_are_counted_after_normalisation(client: TestClient, path: str) -> None:
    """The same holds for what a URL asks."""
    assert client.get(path + "%EF%B7%BA" * 6).json()["limit"] == "max_mention_characters"
    assert client.get(path + "e%CC%81" * 50).status_code != 422, "a letter and its accent count as both"


@pytest.mark.parametrize(
    "body",
    [
        '{"mentions": [' + ",".join(["1"] * 5000) + "]}",
        '{"mentions": ["x"], ' + ",".join(f'"x{i}": 1' for i in range(1500)) + "}",
        '{"mentions": ["x"], "types": [' + ",".join(["1"] * 5000) + "]}",
    ],
)
def test_a_body_with_many_errors_is_refused_at_the_first(
    client: TestClient, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The errors of a body that is wrong throughout are not all collected."""
    answer = client.post("/v1/link", content=body, headers={"Content-Type": "application/json"})

    assert answer.status_code == 422
    assert len(answer.json()["details"]) == 1
