"""The event loop is free: what takes time runs in threads, is bounded, and ends with the time of its request."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import pytest
from edge_cases import wait_until
from fastapi.testclient import TestClient

from pearl_qdrant.service import ServiceSettings, create_app, linking, requests
from pearl_qdrant.service.errors import TimedOutError
from pearl_qdrant.service.names import NameIndex
from pearl_qdrant.service.reconcile import answers, queries


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


def test_the_candidates_of_a_request_are_bounded_together(service_settings: ServiceSettings) -> None:
    """Many mentions with many candidates each are refused, though each number is within its limit."""
    with TestClient(create_app(service_settings.model_copy(update={"max_candidates": 100}))) as client:
        link = {"mentions": ["x"] * 20, "limit": 20}
        document = {"text": "xy", "spans": [{"start": 0, "end": 1}] * 10, "limit": 20}

        assert client.post("/v1/link", json=link).json()["limit"] == "max_candidates"
        assert client.post("/v1/documents", json=document).json()["limit"] == "max_candidates"


def test_a_text_ends_with_the_time_of_its_request(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a 504 the text is not annotated further, and the next one is answered."""
    handle = client.app.state.collections._handles["base"]  # type: ignore[attr-defined]
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


def test_what_takes_long_is_made_beside_the_event_loop(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large bodies are read, and large answers are made, in threads."""
    seen: list[bool] = []
    monkeypatch.setattr(requests, "LARGE", 0)
    for module, name in ((linking, "annotation_record"), (queries, "read_batch"), (answers, "answer_record")):
        monkeypatch.setattr(module, name, on_loop(getattr(module, name), seen))
    batch = {"queries": {"q0": {"query": "NYTimes"}}}

    assert client.post("/v1/annotate", json={"text": "She read the NYTimes.", "threshold": 0}).json()["annotations"]
    assert client.post("/reconcile/base", json=batch).json()["q0"]["result"]
    assert len(seen) >= 3
    assert not any(seen)
