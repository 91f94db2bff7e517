"""Batches of queries: their forms, types and limits, and errors of one query."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient
from reconcile_cases import ENDPOINT, LIGHTHOUSE, candidates, matched, post_form, results
from specification import ResultBatch, check

QUERIES = {"q0": {"query": "NYTimes"}, "any key": {"query": "Springfield", "limit": 2}}


def test_a_batch_may_come_in_three_ways(client: TestClient) -> None:
    """A form, a URL and JSON have the same answer, keyed as the batch, with score, match, types and features."""
    answer = check(ResultBatch, post_form(client, "queries", QUERIES))

    assert list(answer) == ["q0", "any key"]
    assert answer == client.get(ENDPOINT, params={"queries": json.dumps(QUERIES)}).json()
    assert answer == client.post(ENDPOINT, json={"queries": QUERIES}).json()
    first = answer["q0"]["result"][0]
    assert (first["id"], first["name"], first["match"]) == ("nyt", "The New York Times", True)
    assert first["score"] == pytest.approx(98.5)
    assert first["description"] == "A daily newspaper"
    assert first["type"] == [{"id": "newspaper", "name": "newspaper"}, {"id": "ORG", "name": "ORG"}]
    assert {"id": "equal_name", "name": "Equal name", "value": True} in first["features"]
    assert len(answer["any key"]["result"]) == 2


def test_scores_are_those_of_a_link(client: TestClient) -> None:
    """A score is 100 times the probability of the linker, and its link is the match; of namesakes none is."""
    body = {"mentions": ["NYTimes", "Springfield"], "collection": "places", "limit": 10}
    links = client.post("/v1/link", json=body).json()["links"]
    found = results(client, q0={"query": "NYTimes"}, q1={"query": "Springfield"})

    for link, of_query in zip(links, found.values(), strict=True):
        assert [one["id"] for one in of_query] == [one["entity_id"] for one in link["candidates"]]
        expected = [100 * one["probability"] for one in link["candidates"]]
        assert [one["score"] for one in of_query] == pytest.approx(expected, abs=0.006)
        assert matched(of_query) == ([link["entity_id"]] if link["entity_id"] else [])


def test_an_id_is_a_candidate(client: TestClient) -> None:
    """A query that is the id of an entity finds it, with a high score."""
    first = candidates(client, query=LIGHTHOUSE)[0]

    assert (first["id"], first["match"]) == (LIGHTHOUSE, True)
    assert first["score"] > 99


def test_types_restrict_or_prefer(client: TestClient) -> None:
    """Types restrict with "any" and by default, all must be there with "all"; with "should" they come first."""
    found = results(
        client,
        any={"query": "Springfield", "type": ["fiction", "newspaper"], "type_strict": "any"},
        default={"query": "Springfield", "type": "fiction"},
        object={"query": "Springfield", "type": {"id": "fiction", "name": "Fiction"}},
        all={"query": "Springfield", "type": ["city", "GPE"], "type_strict": "all"},
        none={"query": "Springfield", "type": ["city", "fiction"], "type_strict": "all"},
        should={"query": "Springfield", "type": "fiction", "type_strict": "should"},
    )

    for key in ("any", "default", "object"):
        assert {one["id"] for one in found[key]} <= {"tv", "nyt"}
        assert matched(found[key]) == ["tv"]
    assert {one["id"] for one in found["all"]} == {"il", "ma", "mo"}
    assert found["none"] == []
    assert matched(found["should"]) == ["tv"]
    assert len(found["should"]) > 3


def test_an_unknown_type_restricts_but_does_not_prefer(client: TestClient) -> None:
    """A type that no entity has is an error of its query, or without effect with "should"."""
    queries = {
        "hard": {"query": "NYTimes", "type": "nope"},
        "soft": {"query": "NYTimes", "type": "nope", "type_strict": "should"},
        "fine": {"query": "NYTimes"},
    }
    answer = check(ResultBatch, post_form(client, "queries", queries))

    assert answer["hard"]["error"]["code"] == "unknown_type"
    assert "nope" in answer["hard"]["error"]["message"]
    assert answer["soft"]["result"][0]["id"] == answer["fine"]["result"][0]["id"] == "nyt"


@pytest.mark.parametrize(
    "query, said",
    [
        ({}, "no name"),
        ({"query": " "}, "no name"),
        ({"properties": []}, "no name"),
        (5, "is an object"),
        (None, "is an object"),
        ({"query": "x", "limit": 0}, "limit"),
        ({"query": "x", "limit": "many"}, "limit"),
        ({"query": ["x"]}, "query"),
        ({"query": "x", "type_strict": "perhaps"}, "type_strict"),
        ({"query": "x" * 101}, "max_mention_characters"),
        ({"query": "x", "type": ["a"] * 5}, "max_types"),
        ({"query": "x", "properties": [{"pid": "state"}]}, "properties.0.v"),
        ({"query": "x", "properties": [{"pid": "state", "v": ["a"] * 7}]}, "max_properties"),
    ],
)
def test_an_error_of_one_query_does_not_break_the_others(client: TestClient, query: Any, said: str) -> None:
    """A query that is not valid has an error and no candidates; the others of the batch are answered."""
    answer = check(ResultBatch, post_form(client, "queries", {"bad": query, "good": {"query": "NYTimes"}}))

    assert answer["bad"]["result"] == []
    assert said in answer["bad"]["error"]["message"]
    assert answer["good"]["result"][0]["id"] == "nyt"
    assert "error" not in answer["good"]


def test_what_a_client_leaves_out_or_adds_does_not_matter(client: TestClient) -> None:
    """Null is as if left out, a field that nobody knows is ignored, and a number is a name."""
    query = {"query": "NYTimes", "type": None, "properties": None, "limit": 3.0, "type_strict": None, "lang": "en"}

    assert matched(candidates(client, **query)) == ["nyt"]
    assert isinstance(candidates(client, query=1851), list)


def test_a_limit_over_that_of_the_service_is_that_of_the_service(client: TestClient) -> None:
    """More candidates than allowed are as many as allowed."""
    assert 5 <= len(candidates(client, query="Springfield", limit=1000)) <= 20


@pytest.mark.parametrize(
    "body, status, code",
    [
        (b"queries=%7Bnot", 422, "invalid"),
        (b"queries=%5B%5D", 422, "invalid"),
        (b"queries=", 422, "invalid"),
        (b"", 422, "invalid"),
        (b"other=1", 422, "invalid"),
        (b"queries=%7B%7D&extend=%7B%7D", 422, "invalid"),
        (b"queries=\xff", 422, "invalid"),
        (b"&".join(b"f%d=1" % i for i in range(30)), 422, "invalid"),
        (b"queries=" + b"%5B" * 5000, 422, "invalid"),
    ],
)
def test_a_body_that_is_no_batch_is_refused(client: TestClient, body: bytes, status: int, code: str) -> None:
    """What is no batch at all is refused as a whole, and the answer says why."""
    answer = client.post(ENDPOINT, content=body, headers={"Content-Type": "application/x-www-form-urlencoded"})

    assert (answer.status_code, answer.json()["error"]) == (status, code)


def test_other_media_types_are_refused(client: TestClient) -> None:
    """A body that is neither a form nor JSON is refused with 415."""
    assert client.post(ENDPOINT, content=b"x", headers={"Content-Type": "text/plain"}).status_code == 415
    assert client.post(ENDPOINT, content=b"x").status_code == 415
    assert client.post(ENDPOINT, json=[1]).status_code == 422


def test_a_batch_over_the_batch_size_is_refused(client: TestClient) -> None:
    """More queries than the manifest's batchSize are refused with 413 and the name of the limit."""
    queries = {f"q{i}": {"query": "x"} for i in range(13)}
    answer = post_form(client, "queries", queries)

    assert answer.status_code == 413
    assert (answer.json()["limit"], answer.json()["allowed"]) == ("reconcile_batch", 12)
    assert client.get(ENDPOINT).json()["batchSize"] == 12


def test_a_collection_that_is_not_there_is_404(client: TestClient) -> None:
    """The endpoint of an unknown collection does not exist."""
    assert client.get("/reconcile/none").json()["error"] == "collection_not_found"
    assert client.get("/reconcile/none").status_code == 404


def test_an_empty_batch_has_an_empty_answer(client: TestClient) -> None:
    """No queries, no results."""
    assert post_form(client, "queries", {}).json() == {}


def test_forms_are_in_the_openapi_schema(client: TestClient) -> None:
    """A fuzzer finds the fields of the forms, with examples, and the limits of parameters."""
    paths = client.get("/openapi.json").json()["paths"]
    content = paths["/reconcile/{collection}"]["post"]["requestBody"]["content"]

    assert set(content) == {"application/x-www-form-urlencoded", "application/json"}
    form = content["application/x-www-form-urlencoded"]["schema"]["properties"]
    assert set(form) == {"queries", "extend"}
    assert json.loads(form["queries"]["examples"][0])
    assert {one["name"] for one in paths["/reconcile/{collection}"]["get"]["parameters"]} >= {"queries", "extend"}
    suggest = paths["/reconcile/{collection}/suggest/entity"]["get"]["parameters"]
    assert {one["name"]: one["schema"].get("maxLength") for one in suggest}["prefix"] == 100
