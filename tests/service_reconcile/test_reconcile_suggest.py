"""Suggestions, flyouts, previews and views.
The work of a batch is bounded as a whole, and ends with the time of its request.
"""

from __future__ import annotations

import contextvars
import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from linker_base import fill
from reconcile_cases import ENDPOINT, HOSTILE, LIGHTHOUSE, post_form, reconciling, serving
from specification import EntitySuggestions, Flyout, Suggestions, check

from pearl_qdrant import Entity
from pearl_qdrant.linking.properties import compare_rows, shipped_weights
from pearl_qdrant.linking.values import BaseColumn
from pearl_qdrant.pieces import with_pauses
from pearl_qdrant.service import ServiceSettings
from pearl_qdrant.service.settings import TimedOutError, timed_out


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
