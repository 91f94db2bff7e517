"""Matches and extensions in the form of the 1.0 draft."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from reconcile_cases import ENDPOINT, LIGHTHOUSE
from specification import DraftExtension, DraftResultBatch, check

NAME = {"matchType": "name", "v": "Springfield"}


def match(client: TestClient, *queries: Any) -> httpx.Response:
    """The answer to a batch of queries."""
    return client.post(f"{ENDPOINT}/match", json={"queries": list(queries)})


def ids(client: TestClient, *conditions: dict[str, Any], **query: Any) -> list[str]:
    """The ids of the candidates of one query."""
    answer = check(DraftResultBatch, match(client, {"conditions": conditions, **query}))
    return [one["id"] for one in answer["results"][0]["candidates"]]


def test_queries_are_answered_in_their_order(client: TestClient) -> None:
    """Results come in the order of the queries; one that is not valid has an error and no candidates."""
    answer = check(
        DraftResultBatch,
        match(
            client,
            {"conditions": [{"matchType": "name", "v": "NYTimes"}], "limit": 1},
            {"conditions": []},
            {"conditions": [NAME], "type": "fiction", "lang": "en"},
        ),
    )
    first, bad, third = answer["results"]

    assert [(one["id"], one["match"]) for one in first["candidates"]] == [("nyt", True)]
    assert bad["candidates"] == []
    assert bad["error"]["code"] == "invalid"
    assert third["candidates"][0]["id"] == "tv"


def test_a_property_counts_or_is_required(client: TestClient) -> None:
    """A property changes the order; one that is required leaves only entities that agree."""
    state = {"matchType": "property", "pid": "state", "v": "Missouri"}

    assert ids(client, NAME, state)[0] == "mo"
    assert ids(client, NAME, {**state, "required": True}) == ["mo"]
    assert "mo" not in ids(client, NAME, {**state, "required": True, "matchQuantifier": "none"})
    both = {**state, "v": ["Missouri", "Illinois"]}
    assert set(ids(client, NAME, {**both, "required": True})) == {"mo", "il"}
    assert ids(client, NAME, {**both, "required": True, "matchQuantifier": "all"}) == []


def test_an_id_is_a_condition(client: TestClient) -> None:
    """A condition on the id gives that entity as a match, alone or beside a name; an unknown id gives nothing."""
    by_id = {"matchType": "id", "v": "ma"}
    answer = match(client, {"conditions": [by_id]}, {"conditions": [NAME, by_id]}).json()["results"]

    for result in answer:
        assert (result["candidates"][0]["id"], result["candidates"][0]["match"]) == ("ma", True)
    assert [one["id"] for one in answer[0]["candidates"]] == ["ma"]
    assert ids(client, {"matchType": "id", "v": "none"}) == []
    assert ids(client, {"matchType": "id", "v": [LIGHTHOUSE, "nyt"]}) == [LIGHTHOUSE, "nyt"]


def test_of_several_names_the_best_counts(client: TestClient) -> None:
    """A condition with several names finds what the best of them finds."""
    assert ids(client, {"matchType": "name", "v": ["qqqq zzzz", "NYTimes"]})[0] == "nyt"


@pytest.mark.parametrize(
    "condition, said",
    [
        ({"v": "x"}, "matchType"),
        ({"matchType": "place", "v": "x"}, "matchType"),
        ({"matchType": "name"}, "v"),
        ({"matchType": "property", "v": "x"}, "pid"),
        ({"matchType": "name", "v": "x", "matchQuantifier": "some"}, "matchQuantifier"),
        ({"matchType": "name", "v": "x", "matchQualifier": "skos:exactMatch"}, "matchQualifier"),
    ],
)
def test_a_condition_that_is_not_valid_is_an_error_of_its_query(
    client: TestClient, condition: dict[str, Any], said: str
) -> None:
    """The error of the query names what is wrong."""
    (result,) = match(client, {"conditions": [condition]}).json()["results"]

    assert said in result["error"]["message"]


def test_a_body_that_is_no_batch_is_refused(client: TestClient) -> None:
    """No list of queries is 422, too many are 413."""
    for body in ({}, [], {"queries": {}}, {"queries": None}):
        assert client.post(f"{ENDPOINT}/match", json=body).status_code == 422
    assert client.post(f"{ENDPOINT}/match", content=b"{").status_code == 422
    assert match(client, *[{"conditions": [NAME]}] * 13).json()["limit"] == "reconcile_batch"


def test_an_extension_has_rows_in_a_list(client: TestClient) -> None:
    """The draft's rows are a list, in the order of the ids."""
    asked = {"ids": ["ma", "nyt"], "properties": [{"id": "state"}]}
    answer = check(DraftExtension, client.post(f"{ENDPOINT}/extend", json=asked))

    assert answer["rows"] == [
        {"id": "ma", "properties": [{"id": "state", "values": [{"str": "Massachusetts"}]}]},
        {"id": "nyt", "properties": [{"id": "state", "values": []}]},
    ]
