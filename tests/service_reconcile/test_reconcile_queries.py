"""Batches of queries: their forms, types and limits, and errors of one query. Properties: how well values agree, and
what that does to the scores. Suggestions, flyouts, previews and views.

The work of a batch is bounded as a whole, and ends with the time of its request.
"""

from __future__ import annotations

import contextvars
import json
import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from linker_base import fill
from reconcile_cases import ENDPOINT, HOSTILE, LIGHTHOUSE, candidates, matched, post_form, reconciling, results, serving
from specification import EntitySuggestions, Flyout, ResultBatch, Suggestions, check

from pearl_qdrant import Entity
from pearl_qdrant.linking.properties import compare_rows, shipped_weights
from pearl_qdrant.linking.values import BaseColumn
from pearl_qdrant.pieces import with_pauses
from pearl_qdrant.service import ServiceSettings
from pearl_qdrant.service.settings import TimedOutError, timed_out

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


def test_an_entity_without_all_types_leaves_its_share_to_one_that_has_them(client: TestClient) -> None:
    """Of two entities of a name, the one with all types is a match, as if the other were not there."""
    alone = candidates(client, query="Twins", type="lake")
    both = candidates(client, query="Twins", type=["lake", "reservoir"], type_strict="all")

    assert (matched(alone), matched(both)) == ([], ["twin-2"])
    assert both[0]["score"] > 90


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
    """Null is as if left out, a field that nobody knows is ignored, a number is a name, and a limit has a limit."""
    query = {"query": "NYTimes", "type": None, "properties": None, "limit": 3.0, "type_strict": None, "lang": "en"}

    assert matched(candidates(client, **query)) == ["nyt"]
    assert isinstance(candidates(client, query=1851), list)
    assert 5 <= len(candidates(client, query="Springfield", limit=1000)) <= 20


@pytest.mark.parametrize(
    "body",
    [
        *(b"queries=%7Bnot", b"queries=%5B%5D", b"queries=", b"", b"other=1", b"queries=%7B%7D&extend=%7B%7D"),
        *(b"queries=\xff", b"&".join(b"f%d=1" % i for i in range(30)), b"queries=" + b"%5B" * 5000),
    ],
)
def test_a_body_that_is_no_batch_is_refused(client: TestClient, body: bytes) -> None:
    """What is no batch at all is refused as a whole, and so is a body that is neither a form nor JSON."""
    answer = client.post(ENDPOINT, content=body, headers={"Content-Type": "application/x-www-form-urlencoded"})

    assert (answer.status_code, answer.json()["error"]) == (422, "invalid")
    assert client.post(ENDPOINT, content=b"x", headers={"Content-Type": "text/plain"}).status_code == 415
    assert client.post(ENDPOINT, content=b"x").status_code == 415
    assert client.post(ENDPOINT, json=[1]).status_code == 422


def test_a_batch_over_the_batch_size_is_refused(client: TestClient) -> None:
    """More queries than the manifest's batchSize are refused with 413 and the name of the limit; none are none."""
    queries = {f"q{i}": {"query": "x"} for i in range(13)}
    answer = post_form(client, "queries", queries)

    assert answer.status_code == 413
    assert (answer.json()["limit"], answer.json()["allowed"]) == ("reconcile_batch", 12)
    assert client.get(ENDPOINT).json()["batchSize"] == 12
    assert post_form(client, "queries", {}).json() == {}
    missing = client.get("/reconcile/none")
    assert (missing.status_code, missing.json()["error"]) == (404, "collection_not_found")


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


def test_a_property_tells_namesakes_apart(client: TestClient) -> None:
    """Of four entities of a name, the one with the state of the query is the match; without it there is none."""
    assert matched(candidates(client, query="Springfield")) == []
    found = candidates(client, query="Springfield", properties=[{"pid": "state", "v": "missouri"}])

    assert matched(found) == [found[0]["id"]] == ["mo"]
    assert found[0]["score"] > 80
    features = {one["id"]: one["value"] for one in found[0]["features"]}
    assert features["property:state"] == 1.0
    assert features["name_probability"] == pytest.approx(0.985 / 4, abs=0.001)
    others = {one["id"]: {feature["id"]: feature["value"] for feature in one["features"]} for one in found[1:]}
    assert others["il"]["property:state"] == 0.0
    assert "property:state" not in others["tv"]


@pytest.mark.parametrize(
    "properties, best",
    [
        ([{"pid": "founded", "v": 1636}], "ma"),
        ([{"pid": "state", "v": ["Ohio", "Illinois"]}], "il"),
        ([{"pid": "description", "v": "capital of Illinois"}], "il"),
        ([{"pid": "kb_types", "v": "fiction"}], "tv"),
        ([{"pid": "kb_types", "v": {"id": "fiction", "name": "Fiction"}}], "tv"),
        ([{"pid": "state", "v": {"id": "", "name": "Illinois"}}], "il"),
        ([{"pid": "state", "v": "Illinois"}, {"pid": "founded", "v": "1821"}], "il"),
        ([{"pid": "state", "v": "Ilinois"}, {"pid": "founded", "v": 1821.0}], "il"),
    ],
)
def test_properties_of_every_kind_count(client: TestClient, properties: list[dict[str, object]], best: str) -> None:
    """Columns of the base, its description and its types count, as text, number, list or entity."""
    assert candidates(client, query="Springfield", properties=properties)[0]["id"] == best


def test_more_evidence_makes_a_higher_score(client: TestClient) -> None:
    """Two columns that agree say more than one, one that differs lowers the score, and several undo a sure link."""
    state, year, wrong = (
        {"pid": "state", "v": "Illinois"},
        {"pid": "founded", "v": "1821"},
        {"pid": "founded", "v": 1905},
    )
    one, two, mixed = (
        candidates(client, query="Springfield", properties=given)[0]["score"]
        for given in ([state], [state, year], [state, wrong])
    )

    assert two > one > mixed
    for country, founded, about, match in (
        ("Peru", "1990", "A fish", []),
        ("United States", "1851", "A daily newspaper", ["nyt"]),
    ):
        values = {"country": country, "founded": founded, "description": about}
        properties = [{"pid": name, "v": value} for name, value in values.items()]
        assert matched(candidates(client, query="NYTimes", properties=properties)) == match


def test_an_unknown_property_says_nothing(client: TestClient) -> None:
    """A property that no candidate has leaves the answer as it is by name."""
    plain = candidates(client, query="NYTimes")
    with_unknown = candidates(
        client, query="NYTimes", properties=[{"pid": "no such", "v": "x"}, {"pid": "a", "v": None}]
    )

    assert with_unknown[0] == plain[0]


def test_other_names_are_a_property(client: TestClient) -> None:
    """An alias in another column counts; a query without a name is looked for by the name among its properties."""
    by_alias = candidates(client, query="NYTimes", properties=[{"pid": "aliases", "v": "times of new york"}])
    features = {one["id"]: one["value"] for one in by_alias[0]["features"]}

    assert features["property:aliases"] == 1.0
    assert matched(candidates(client, properties=[{"pid": "name", "v": "The New York Times"}])) == ["nyt"]
    assert candidates(client, properties=[{"pid": "state", "v": "Illinois"}]) == []


def test_more_namesakes_than_the_limit_are_told_apart(client: TestClient) -> None:
    """A property finds the right one of more namesakes than candidates are asked for."""
    states = [{"pid": "state", "v": "State 14"}]

    assert matched(candidates(client, query="Crowded Name", limit=2, properties=states)) == ["crowd-14"]


def test_entities_are_suggested_by_prefix_and_by_id(client: TestClient) -> None:
    """A prefix of a name, a slip in it, or an id suggest an entity, with description and types; a cursor skips some."""
    url = f"{ENDPOINT}/suggest/entity"
    by_name = check(EntitySuggestions, client.get(url, params={"prefix": "times of n"}))
    by_id = check(EntitySuggestions, client.get(url, params={"prefix": LIGHTHOUSE}))

    assert by_name["result"][0] == {
        "id": "nyt",
        "name": "The New York Times",
        "description": "A daily newspaper",
        "notable": [{"id": "newspaper", "name": "newspaper"}, {"id": "ORG", "name": "ORG"}],
    }
    assert by_id["result"][0]["id"] == LIGHTHOUSE
    assert client.get(url, params={"prefix": "sprinfield"}).json()["result"]
    assert client.get(url, params={"prefix": " "}).json() == {"result": []}
    whole = client.get(url, params={"prefix": "spring", "callback": "x", "_": "1"}).json()["result"]
    assert len(whole) == 4
    assert client.get(url, params={"prefix": "spring", "cursor": 1}).json()["result"] == whole[1:]
    fiction = client.get(url, params={"prefix": "spring", "type": "fiction"}).json()["result"]
    assert [one["id"] for one in fiction] == ["tv"]


def test_types_and_properties_are_suggested(client: TestClient) -> None:
    """Types and properties are found by the start of their id or name; an empty prefix gives all."""
    types = check(Suggestions, client.get(f"{ENDPOINT}/suggest/type", params={"prefix": "ci"}))
    properties = check(Suggestions, client.get(f"{ENDPOINT}/suggest/property", params={"prefix": "Fou"}))
    everything = check(Suggestions, client.get(f"{ENDPOINT}/suggest/property"))

    assert types["result"] == [{"id": "city", "name": "city", "description": "3 names"}]
    assert properties["result"] == [{"id": "founded", "name": "founded"}]
    assert {"description", "state", "founded", "links_to", "popularity"} <= {one["id"] for one in everything["result"]}


@pytest.mark.parametrize("parameters", [{"prefix": "x" * 101}, {"prefix": "x", "cursor": 51}, {"cursor": "x"}])
def test_suggestions_have_limits(client: TestClient, parameters: dict[str, str]) -> None:
    """A prefix or cursor over the limit is refused."""
    assert client.get(f"{ENDPOINT}/suggest/type", params=parameters).status_code == 422
    assert client.get(f"{ENDPOINT}/suggest/entity", params={"prefix": "x", **parameters}).status_code == 422


@pytest.mark.parametrize(
    "kind, id_, said",
    [
        ("entity", "nyt", "A daily newspaper"),
        ("entity", "none", "Not found"),
        ("type", "city", "3 names"),
        ("property", "state", "Illinois"),
    ],
)
def test_flyouts_say_what_something_is(client: TestClient, kind: str, id_: str, said: str) -> None:
    """A flyout has the id that was asked for, and HTML."""
    flyout = check(Flyout, client.get(f"{ENDPOINT}/flyout/{kind}", params={"id": id_}))

    assert flyout["id"] == id_
    assert said in flyout["html"]


def test_names_are_escaped(client: TestClient) -> None:
    """No HTML of the base gets into a preview, a page, a flyout, or an error, and no page may run or load anything."""
    pages = [client.get(f"{ENDPOINT}/{path}", params={"id": HOSTILE}).text for path in ("preview", "view")]
    pages.append(client.get(f"{ENDPOINT}/preview", params={"id": "<script>"}).text)
    for kind, id_ in (("entity", HOSTILE), ("type", "<i>type</i>"), ("property", "<u>column</u>")):
        pages.append(client.get(f"{ENDPOINT}/flyout/{kind}", params={"id": id_}).json()["html"])

    for page in pages:
        assert not re.search(r"<(script|img|svg|i|u|b)\b", page), page
    assert "&lt;svg onload=alert(3)&gt;" in pages[0]
    answer = client.get(f"{ENDPOINT}/preview", params={"id": "nyt"})
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
    assert "x-frame-options" not in answer.headers
    assert "<dd>United States</dd>" in answer.text


def test_a_view_shows_all_and_links_an_address(client: TestClient) -> None:
    """A view has what is known of an entity; an id that is an address is a link; an unknown id is 404."""
    page = client.get(f"{ENDPOINT}/view", params={"id": LIGHTHOUSE}).text

    assert f'<a href="{LIGHTHOUSE}" target="_blank" rel="noopener noreferrer">' in page
    assert "12.5" in page
    missing = client.get(f"{ENDPOINT}/view", params={"id": "none"})
    assert (missing.status_code, missing.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert client.get(f"{ENDPOINT}/view", params={"id": "x" * 101}).json()["limit"] == "max_mention_characters"


def test_a_name_counts_once_for_a_type(tmp_path: Path, model: Path) -> None:
    """A coarse type that the base has as its own, too, has as many names as have it."""
    base = [Entity("a", "Acme", ("Acme Inc",), ("ORG",), ("ORG",)), Entity("b", "Bravo", (), ("firm",), ("ORG",))]
    fill(tmp_path / "store", "places", str(model), base, is_loaded=True)
    with serving(ServiceSettings(store=str(tmp_path / "store"), cache=str(tmp_path / "cache"))) as client:
        found = client.get(f"{ENDPOINT}/suggest/type").json()["result"]

    assert {one["id"]: one["description"] for one in found} == {"ORG": "3 names", "firm": "1 name"}


bounded = reconciling(max_values=20, max_mentions=10, max_candidates=60)
"""A client of a service with low limits for a whole batch."""


def query(values: int = 0, properties: int = 0, names: int = 1, limit: int = 1) -> dict[str, Any]:
    """A query with properties, one of which has the names."""
    given = [{"pid": f"p{i}", "v": ["x"] * values} for i in range(properties)]
    return {"properties": [{"pid": "name", "v": ["Springfield"] * names}, *given], "limit": limit}


@pytest.mark.parametrize(
    "queries, limit",
    [
        ([query(values=5, properties=5)], "max_values"),
        ([query(values=3, properties=2)] * 4, "max_values"),
        ([query(names=6)] * 2, "max_mentions"),
        ([query(limit=20)] * 4, "max_candidates"),
    ],
)
def test_a_batch_that_is_too_much_as_a_whole_is_refused(
    bounded: TestClient, queries: list[dict[str, Any]], limit: str
) -> None:
    """Queries, properties, values and candidates are bounded together; the answer names the limit and what to do."""
    answer = post_form(bounded, "queries", dict(enumerate(queries)))

    assert (answer.status_code, answer.json()["error"], answer.json()["limit"]) == (413, "batch_too_large", limit)
    assert "Send less" in answer.json()["message"]
    assert post_form(bounded, "queries", {"0": queries[0]}).status_code == (200 if queries[1:] else 413)


def test_comparing_ends_with_the_time_of_a_request() -> None:
    """No value is compared any more when the time is over, neither with a candidate nor with the sample."""
    column = BaseColumn.of([["a"], ["b"]])

    def end() -> None:
        raise timed_out(1)

    def late() -> None:
        with_pauses(end)
        with pytest.raises(TimedOutError):
            column.level(("x",) * 50, ["y"])
        with pytest.raises(TimedOutError):
            compare_rows([{"state": ("x",)}], [[0.5]], [[{"state": ["y"]}]], {"state": column}, shipped_weights())

    contextvars.copy_context().run(late)
