"""The service answers as the linker does."""

from __future__ import annotations

import pytest
from edge_cases import wait_until
from fastapi.testclient import TestClient
from linker_base import ENTITIES

from pearl_qdrant.service import ServiceSettings, create_app


def test_mentions_are_linked_in_their_order(client: TestClient) -> None:
    """A batch of mentions has one link each, with candidates and probability, or NIL with a reason."""
    answer = client.post("/v1/link", json={"mentions": ["NYTimes", "Big Apple"], "limit": 1, "threshold": 0})

    assert answer.status_code == 200
    first, second = answer.json()["links"]
    assert (first["mention"], first["entity_id"]) == ("NYTimes", "nyt")
    assert (second["mention"], second["entity_id"]) == ("Big Apple", "nyc")
    assert len(first["candidates"]) == 1
    assert "features" not in first["candidates"][0]


def test_options_of_the_linker_count(client: TestClient) -> None:
    """Types filter, a threshold makes NIL, and an explanation has features and lines."""
    typed = {"mentions": ["New York"], "types": ["state"], "threshold": 0, "explain": True}
    found = client.post("/v1/link", json=typed).json()["links"][0]
    nil = client.post("/v1/link", json={"mentions": ["zzz qqq"], "threshold": 1}).json()["links"][0]

    assert found["entity_id"] == "nys"
    assert found["explanation"][0].startswith("linked")
    assert "dense" in found["candidates"][0]["features"]
    assert (nil["entity_id"], nil["nil_reason"]) == (None, "below_threshold")


def test_a_list_adapts_the_decision_to_itself(service_settings: ServiceSettings) -> None:
    """With `adapt` the answer says what was estimated, and its `nil_bias` counts in later requests; few mentions are
    refused.
    """
    wide = service_settings.model_copy(update={"max_mentions": 1000, "max_body_bytes": 1_000_000})
    mentions = [f"the New York {i} paper" for i in range(220)]
    with TestClient(create_app(wide)) as client:
        wait_until(lambda: client.get("/health/ready").status_code == 200)
        adapted = client.post("/v1/link", json={"mentions": mentions, "adapt": True}).json()
        few = client.post("/v1/link", json={"mentions": mentions[:20], "adapt": True})
        plain, biased = (
            client.post("/v1/link", json={"mentions": mentions[:1], "nil_bias": bias}).json()["links"][0]
            for bias in (0, -3)
        )

    assert adapted["adaptation"]["mentions"] == 220
    assert -2 <= adapted["adaptation"]["nil_bias"] <= 0.1
    assert len(adapted["links"]) == 220
    assert (few.status_code, few.json()["where"]) == (422, "mentions")
    assert biased["candidates"][0]["probability"] > plain["candidates"][0]["probability"]


def test_a_program_in_javascript_gives_the_spans_of_its_recogniser(client: TestClient) -> None:
    """Spans with labels, offsets in UTF-16 code units, and HTML; what is outside the text is named."""
    body = {
        "text": "<p>🦄 wrote in the <b>NYTimes</b> of New&nbsp;York.</p>",
        "markup": "html",
        "offsets": "utf-16",
        "threshold": 0,
        "include_nil": True,
        "spans": [{"start": 22, "end": 29, "label": "PAPER"}, {"start": 37, "end": 50, "label": "PLACE"}],
        "label_types": {"PAPER": ["newspaper"], "PLACE": ["state"]},
    }

    first, second = client.post("/v1/annotate", json=body).json()["annotations"]

    assert (first["start"], first["text"], first["link"]["entity_id"]) == (22, "NYTimes", "nyt")
    assert (second["text"], second["link"]["entity_id"]) == ("New&nbsp;York", "nys")
    assert first["sentence"] == [3, 51]
    assert first["section"] is None
    outside = client.post("/v1/annotate", json={**body, "spans": [{"start": 0, "end": 56}]})
    assert outside.status_code == 422
    assert "spans.0 is 0 to 56, but the text has 55 UTF-16 code units" in outside.json()["message"]
    both = client.post("/v1/annotate", json={**body, "document": True})
    assert (both.status_code, "label_types is not for document" in both.json()["message"]) == (422, True)


def test_an_unknown_type_is_named_with_a_similar_one(client: TestClient) -> None:
    """A type that no entity has is an error of the request."""
    answer = client.post("/v1/link", json={"mentions": ["NYC"], "types": ["newspapr"]})

    assert (answer.status_code, answer.json()["error"]) == (422, "unknown_type")
    assert "newspaper" in answer.json()["message"]


def test_mentions_in_a_text_are_found(client: TestClient) -> None:
    """A text is annotated; offsets count code points."""
    text = "\U0001f5de She read the NYTimes."
    found = client.post("/v1/annotate", json={"text": text, "threshold": 0.2}).json()["annotations"]

    at = text.index("NYTimes")
    assert [one["link"]["entity_id"] for one in found if one["start"] == at] == ["nyt"]
    assert all(text[one["start"] : one["end"]] == one["text"] for one in found)


def test_annotations_say_what_the_text_says(client: TestClient) -> None:
    """Each mention has an assertion and its trigger, and the request may keep some."""
    body = {"text": "She never read the NYTimes.", "threshold": 0.2}
    (found,) = client.post("/v1/annotate", json=body).json()["annotations"]

    assert (found["text"], found["assertion"], found["trigger"]) == ("NYTimes", "negated", "never")
    kept = client.post("/v1/annotate", json={**body, "assertions": ["affirmed"]}).json()["annotations"]
    assert kept == []


def test_mentions_of_a_document_are_linked_at_their_places(client: TestClient) -> None:
    """A document with known places has one annotation for each."""
    body = {"text": "The NYTimes is in NYC.", "spans": [{"start": 4, "end": 11}, {"start": 18, "end": 21}]}
    found = client.post("/v1/documents", json={**body, "threshold": 0}).json()["annotations"]

    assert [one["link"]["entity_id"] for one in found] == ["nyt", "nyc"]


def test_a_span_outside_the_text_is_named(client: TestClient) -> None:
    """A place behind the end of the text is an error that names it."""
    answer = client.post("/v1/documents", json={"text": "short", "spans": [{"start": 0, "end": 9}]})

    assert (answer.status_code, answer.json()["where"]) == (422, "spans.0")


def test_an_entity_has_all_its_names(client: TestClient) -> None:
    """An entity is found by base and id."""
    answer = client.get("/v1/entities/base/nyc")

    assert answer.json()["canonical_name"] == "New York"
    assert answer.json()["aliases"] == ["Big Apple", "NYC"]
    assert client.get("/v1/entities/base/none").json()["error"] == "entity_not_found"
    assert client.get("/v1/entities/other/nyc").json()["error"] == "entity_not_found"


def test_names_are_suggested_while_they_are_typed(client: TestClient) -> None:
    """The beginning of a name finds its entity, with types, also with a slip."""
    wait_until(lambda: client.get("/v1/search", params={"q": "n"}).status_code == 200)

    def found(query: str, **more: str) -> list[str]:
        results = client.get("/v1/search", params={"q": query, **more}).json()["results"]
        return [one["entity_id"] for one in results]

    assert found("new york t") == ["nyt"]
    assert found("apple") == ["nyc"]
    assert set(found("new yrok", type="state")) == {"nys"}
    assert found("heart attakc") == ["mi"]
    assert found("!?") == []


def test_a_body_that_is_no_json_is_invalid(client: TestClient) -> None:
    """Bytes that are no JSON, or no UTF-8, are an error of the request."""
    for content in (b"{", b"\xff", b"", b'{"mentions": ["\\ud800"]}'):
        answer = client.post("/v1/link", content=content, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["error"]) == (422, "invalid")


def test_collections_are_listed(client: TestClient) -> None:
    """A collection has state, base, counts and model."""
    [found] = client.get("/v1/collections").json()["collections"]

    assert (found["collection"], found["kb"], found["entities"]) == ("base", "base", 7)


@pytest.mark.parametrize(
    "method, path, body, code",
    [
        ("POST", "/v1/link", {"mentions": ["x"], "collection": "none"}, "collection_not_found"),
        ("GET", "/v1/nothing", None, "not_found"),
        ("GET", "/v1/link", None, "method_not_allowed"),
        ("POST", "/v1/link", {"mentions": ["x"], "mention": "y"}, "invalid"),
        ("POST", "/v1/accept", {"mention": "x", "entity_id": "nyc"}, "writing_not_allowed"),
    ],
)
def test_errors_are_json_with_a_code(
    client: TestClient, method: str, path: str, body: dict[str, object] | None, code: str
) -> None:
    """Every error has a code for programs, a message for people, and the id of the request."""
    answer = client.request(method, path, json=body)

    assert answer.json()["error"] == code
    assert answer.json()["message"]
    assert answer.json()["request_id"] == answer.headers["x-request-id"]


@pytest.mark.parametrize(
    "query, expected",
    [
        ("q=new%20y", {"nyt", "nyp", "nyc", "nys"}),
        ("q=new+y&collection=base&limit=10", {"nyt", "nyp", "nyc", "nys"}),
        ("q=new%20y&type=state&type=newspaper", {"nyt", "nyp", "nys"}),
        ("q=new%20york&limit=2", {"nyc", "nys"}),
        ("q=new%20york&limit=%2B2", {"nyc", "nys"}),
        ("q=x&q=new%20york%20t", {"nyt"}),
        ("q=new%20york%20t&unknown=1", {"nyt"}),
        ("q=", set()),
    ],
)
def test_every_way_to_ask_for_names_is_read(client: TestClient, query: str, expected: set[str]) -> None:
    """All parameters count, the last of several values does, and unknown parameters do not."""
    wait_until(lambda: client.get("/v1/search", params={"q": "n"}).status_code == 200)
    results = client.get(f"/v1/search?{query}").json()["results"]

    assert {one["entity_id"] for one in results} == expected


@pytest.mark.parametrize("query", ["", "limit=3", "q=x&limit=0", "q=x&limit=-1", "q=x&limit=a"])
def test_a_query_that_cannot_be_read_is_refused(client: TestClient, query: str) -> None:
    """A missing mention, and a limit that is no number from 1 on, are errors of the request."""
    answer = client.get(f"/v1/search?{query}")

    assert (answer.status_code, answer.json()["error"]) == (422, "invalid")


def test_a_collection_says_what_it_takes_for_granted(client: TestClient) -> None:
    """The thresholds where a request names none, and some names to try, each of another entity."""
    found = client.get("/v1/collections/base").json()

    assert 0 < found["threshold"] < 1
    assert found["passage_threshold"] == 0.5
    names = {name: entity.entity_id for entity in ENTITIES for name in entity.names()}
    assert len({names[example] for example in found["examples"]}) == 5
    assert client.get("/v1/collections/none").status_code == 404
