"""The service manifest, cross-origin access and keys.

OpenRefine's sequence of requests, in the shape in which OpenRefine sends them.

It reads the manifest in the browser, guesses types by a batch of ten names with three candidates each, sends batches
with type_strict "should", sorts candidates by score and takes the first one if it is a match, and fetches columns.

Data extension: values of properties, and which properties to propose. The same over a Qdrant server.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from edge_cases import wait_until
from fastapi.testclient import TestClient
from linker_base import fill, fill_server
from qdrant_double import QdrantDouble
from reconcile_cases import ENDPOINT, ENTITIES, LIGHTHOUSE, candidates, matched, post_form, reconciling, serving
from service_client import KEY, KEYS
from specification import EntitySuggestions, Extension, Manifest, Proposal, check

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.errors import OptionError
from pearl_qdrant.service import ServiceSettings
from pearl_qdrant.service.settings import read_settings

ORIGIN = "http://127.0.0.1:3333"


def test_the_manifest_has_what_version_0_2_demands(client: TestClient) -> None:
    """The manifest names all services with absolute addresses of the host that was asked."""
    manifest = check(Manifest, client.get(ENDPOINT))

    assert (manifest["versions"], manifest["name"]) == (["0.2"], "places (pearl-qdrant)")
    assert manifest["preview"]["url"] == "http://127.0.0.1:8765/reconcile/places/preview?id={{id}}"
    assert manifest["suggest"]["type"]["service_url"] == "http://127.0.0.1:8765/reconcile/places"
    assert manifest["defaultTypes"][0] == {"id": "GPE", "name": "GPE"}
    assert "authentication" not in manifest


def test_addresses_of_the_manifest_answer(client: TestClient) -> None:
    """Each address of the manifest is that of a service, put together as the specification says."""
    manifest = client.get(ENDPOINT).json()
    addresses = [
        manifest["preview"]["url"].replace("{{id}}", "nyt"),
        manifest["view"]["url"].replace("{{id}}", "nyt"),
        manifest["documentation"],
        "{service_url}{service_path}?type=city".format(**manifest["extend"]["propose_properties"]),
    ]
    for one in manifest["suggest"].values():
        addresses.append("{service_url}{service_path}?prefix=n".format(**one))
        flyout = "{flyout_service_url}{flyout_service_path}".format(**one)
        addresses.append(flyout.replace("${id}", "nyt"))

    assert [client.get(one).status_code for one in addresses] == [200] * len(addresses)


def test_any_page_may_read_answers_and_errors(client: TestClient) -> None:
    """Every path of reconciliation allows other origins, with errors and pre-flight requests; no other path does."""
    preflight = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST"}
    for answer in (
        client.get(ENDPOINT, headers={"Origin": ORIGIN}),
        client.get("/reconcile/none", headers={"Origin": ORIGIN}),
        client.get(f"{ENDPOINT}/suggest/type", headers={"Origin": ORIGIN}),
        client.options(ENDPOINT, headers={**preflight, "Access-Control-Request-Headers": "x-api-key"}),
    ):
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
        assert "Access-Control-Allow-Credentials" not in answer.headers
    elsewhere = client.get("/v1/collections", headers={"Origin": ORIGIN})
    assert "Access-Control-Allow-Origin" not in elsewhere.headers


PROXY = {"public_url": "https://names.example.org/link/", "reconcile_origins": (ORIGIN,)}  # for pages of one origin
guarded = reconciling(api_keys=KEYS, **PROXY)


def test_a_service_with_keys_says_so_in_an_open_manifest(guarded: TestClient) -> None:
    """The manifest needs no key and says where it goes; its addresses are those of the proxy, and have no key."""
    answer = guarded.get(ENDPOINT)
    manifest = check(Manifest, answer)

    assert manifest["authentication"] == {"type": "apiKey", "name": "X-API-Key", "in": "header"}
    assert KEY not in answer.text
    with_key = guarded.get(ENDPOINT, headers={"X-API-Key": KEY})
    assert with_key.text == answer.text
    other = guarded.get(ENDPOINT, headers={"Host": "10.1.2.3"}).json()
    assert other["view"]["url"] == "https://names.example.org/link/reconcile/places/view?id={{id}}"


def test_a_service_with_keys_opens_nothing_but_the_manifest(guarded: TestClient) -> None:
    """Queries, suggestions, previews and extensions need the key, in a header."""
    batch = {"q0": {"query": "NYTimes"}}
    closed = [
        guarded.get(ENDPOINT, params={"queries": json.dumps(batch)}),
        guarded.get(ENDPOINT, params={"x": "y"}),
        guarded.get(ENDPOINT, params={"api_key": KEY}),
        post_form(guarded, "queries", batch),
        guarded.get(f"{ENDPOINT}/suggest/type"),
        guarded.get(f"{ENDPOINT}/preview", params={"id": "nyt"}),
    ]

    assert [one.status_code for one in closed] == [401] * len(closed)
    assert post_form(guarded, "queries", batch, **{"X-API-Key": KEY}).status_code == 200


def test_other_origins_may_be_shut_out(guarded: TestClient) -> None:
    """With reconcile_origins, only pages of these origins may read answers; a 401 may be read as well."""
    allowed = guarded.get(f"{ENDPOINT}/suggest/type", headers={"Origin": ORIGIN})
    refused = guarded.get(f"{ENDPOINT}/suggest/type", headers={"Origin": "https://evil.example"})

    assert allowed.status_code == 401
    assert allowed.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert "Access-Control-Allow-Origin" not in refused.headers
    settings = read_settings({}, ["reconcile_origins=http://a,http://b", "public_url=https://names.example.org"])
    assert settings.reconcile_origins == ("http://a", "http://b")
    with pytest.raises(OptionError, match="public_url"):
        read_settings({}, ["public_url=names.example.org"])


def test_a_method_that_a_path_does_not_take_is_told_those_that_it_takes(client: TestClient) -> None:
    """The header and the message name the methods of all routes of the path."""
    answer = client.put(ENDPOINT)

    assert answer.status_code == 405
    assert {"GET", "POST"} <= set(answer.headers["Allow"].split(", "))
    assert answer.json()["message"] == f"This path takes {answer.headers['Allow']}, not PUT."


BROWSER = {
    "Origin": "http://127.0.0.1:3333",
    "Referer": "http://127.0.0.1:3333/project?project=1",
    "Accept": "application/json, text/javascript, */*; q=0.01",
}

PROGRAM = {"User-Agent": "OpenRefine/3.9", "Accept-Encoding": "gzip, x-gzip, deflate"}


def guess_types(client: TestClient, names: list[str]) -> list[str]:
    """The types that OpenRefine shows for a column, most frequent first: it counts them by rank and position."""
    queries = {f"q{i}": {"query": name, "limit": 3} for i, name in enumerate(names)}
    counts: dict[str, tuple[int, float]] = {}
    for answer in post_form(client, "queries", queries, **PROGRAM).json().values():
        for rank, candidate in enumerate(answer["result"]):
            types = candidate["type"]
            for place, one in enumerate(types):
                n, score = counts.get(one["id"], (0, 0.0))
                counts[one["id"]] = n + 1, score + (len(types) - place) / len(types) / (1 + rank)
    return sorted(counts, key=lambda one: (-counts[one][0], -counts[one][1]))


def judge(result: list[dict[str, Any]]) -> str | None:
    """The match that OpenRefine sets by itself."""
    best = sorted(result, key=lambda one: -one["score"])
    return best[0]["id"] if best and best[0]["match"] else None


def test_the_sequence_of_openrefine(client: TestClient) -> None:
    """A column is reconciled with a type and a second column, and two columns are fetched for it."""
    manifest = client.get(ENDPOINT, headers=BROWSER).json()
    types = guess_types(client, ["Springfield", "Springfield "])
    proposed = manifest["extend"]["propose_properties"]
    properties = client.get(f"{proposed['service_url']}{proposed['service_path']}?type={types[0]}", headers=BROWSER)
    column = next(one["id"] for one in properties.json()["properties"] if one["name"] == "state")
    query = {"query": "Springfield", "type": types[0], "type_strict": "should"}
    queries = {
        f"q{i}": {**query, "properties": [{"pid": column, "v": state}]}
        for i, state in enumerate(("Illinois", "Massachusetts", "Missouri"))
    }
    answer = post_form(client, "queries", queries, **PROGRAM).json()
    matches = [judge(answer[key]["result"]) for key in queries]
    extension = {"ids": matches, "properties": [{"id": "founded"}, {"id": "links_to", "settings": {"limit": "0"}}]}
    rows = post_form(client, "extend", extension, **PROGRAM).json()["rows"]

    assert types[0] in ("city", "GPE")
    assert matches == ["il", "ma", "mo"]
    assert [rows[one]["founded"][0]["str"] for one in matches] == ["1821", "1636", "1838"]


def test_names_of_all_scripts_arrive(client: TestClient) -> None:
    """A form in UTF-8 with signs of every kind is read, and the answers are keyed as it was."""
    names = ["Zürich & Söhne + 50 %", "東京", "مدينة", "🗞", 'a "quoted" name', "a\\b", "  spaces  "]
    answer = post_form(client, "queries", {name: {"query": name} for name in names}).json()

    assert list(answer) == names


@pytest.mark.slow
def test_a_changed_collection_has_its_new_properties(
    reconcile_settings: ServiceSettings, tmp_path: Path, model: Path
) -> None:
    """After an edit by another process, new columns are suggested and count."""
    store = str(tmp_path / "store")
    fill(tmp_path / "store", "places", str(model), ENTITIES[:2], is_loaded=True)
    with serving(reconcile_settings, store=store, cache=str(tmp_path / "cache"), reload_s=0.02) as client:
        assert "river" not in client.get(f"{ENDPOINT}/suggest/property").text
        with EntityLinker.open("places", store=store) as linker:
            linker.add([Entity("or", "Springfield", (), ("city",), ("GPE",), None, {"river": "McKenzie"})])
        wait_until(lambda: "river" in client.get(f"{ENDPOINT}/suggest/property").text)
        found = candidates(client, query="Springfield", properties=[{"pid": "river", "v": "McKenzie"}])
        assert found[0]["id"] == "or"


ASKED = {
    "ids": ["nyt", LIGHTHOUSE, "none"],
    "properties": [{"id": "country"}, {"id": "links_to"}, {"id": "popularity"}, {"id": "no such"}],
}


def test_values_are_returned_for_each_entity_and_property(client: TestClient) -> None:
    """A row has a list for each property, empty where nothing is known; links are entities, numbers are numbers."""
    answer = check(Extension, post_form(client, "extend", ASKED))

    assert [one["id"] for one in answer["meta"]] == ["country", "links_to", "popularity", "no such"]
    assert answer["rows"]["nyt"] == {
        "country": [{"str": "United States"}],
        "links_to": [],
        "popularity": [],
        "no such": [],
    }
    assert answer["rows"][LIGHTHOUSE]["links_to"] == [
        {"id": "nyt", "name": "The New York Times"},
        {"id": "gone", "name": "gone"},
    ]
    assert answer["rows"][LIGHTHOUSE]["popularity"] == [{"float": 12.5}]
    assert answer["rows"]["none"] == {one["id"]: [] for one in answer["meta"]}
    assert answer == client.get(ENDPOINT, params={"extend": json.dumps(ASKED)}).json()
    assert answer == client.post(ENDPOINT, json={"extend": ASKED}).json()


def test_names_types_and_descriptions_can_be_fetched(client: TestClient) -> None:
    """What every base has is a property, too; the setting limit bounds the values, also as a form sends it."""
    own = ("name", "aliases", "description", "kb_types", "types")
    asked = {"ids": ["nyt"], "properties": [{"id": one} for one in own]}
    row = post_form(client, "extend", asked).json()["rows"]["nyt"]

    assert {key: [value["str"] for value in values] for key, values in row.items()} == {
        "name": ["The New York Times"],
        "aliases": ["NYTimes", "Times of New York"],
        "description": ["A daily newspaper"],
        "kb_types": ["newspaper"],
        "types": ["ORG"],
    }
    limited = {"ids": ["nyt"], "properties": [{"id": "aliases", "settings": {"limit": "1"}}]}
    assert len(post_form(client, "extend", limited).json()["rows"]["nyt"]["aliases"]) == 1


@pytest.mark.parametrize(
    "asked, where",
    [
        ({}, "extend.ids"),
        ([], "extend"),
        ({"ids": [1], "properties": []}, "extend.ids.0"),
        ({"ids": [], "properties": [{}]}, "extend.properties.0.id"),
        ({"ids": [], "properties": [{"id": "a", "settings": {"limit": -1}}]}, "extend.properties.0.settings.limit"),
        ({"ids": ["x"] * 51, "properties": []}, "ids"),
        ({"ids": ["x"], "properties": [{"id": "a"}] * 7}, "properties"),
    ],
)
def test_an_extension_that_is_not_valid_is_refused(client: TestClient, asked: object, where: str) -> None:
    """The answer names the field, or the limit that was passed."""
    answer = post_form(client, "extend", asked)

    assert (answer.status_code, answer.json()["where"]) == (422, where)


def test_properties_are_proposed_for_a_type(client: TestClient) -> None:
    """A type proposes the properties that its entities have; no type, or one without a sample, proposes all."""
    url = f"{ENDPOINT}/extend/propose"
    of_city = check(Proposal, client.get(url, params={"type": "city", "limit": 10}))
    of_all = check(Proposal, client.get(url, params={"type": ""}))

    assert {"state", "founded"} <= {one["id"] for one in of_city["properties"]}
    assert "country" not in {one["id"] for one in of_city["properties"]}
    assert of_city["limit"] == 10
    assert {"country", "links_to"} <= {one["id"] for one in of_all["properties"]}
    assert len(client.get(url, params={"type": "", "limit": 1}).json()["properties"]) == 1
    assert client.get(url, params={"limit": 21}).json()["limit"] == "max_limit"


@pytest.mark.slow
def test_a_server_answers_as_a_folder(
    client: TestClient, reconcile_settings: ServiceSettings, model: Path, tmp_path: Path
) -> None:
    """Manifest, matches by properties, suggestions, previews and columns are those of an embedded store."""
    state = [{"pid": "state", "v": "Missouri"}]
    asked = {"ids": ["nyt", LIGHTHOUSE], "properties": [{"id": "country"}, {"id": "links_to"}, {"id": "aliases"}]}
    with QdrantDouble() as double:
        double.strict = True
        fill_server(double.url, "places", str(model), ENTITIES)
        with serving(reconcile_settings, store=double.url, cache=str(tmp_path)) as on_server:
            assert check(Manifest, on_server.get(ENDPOINT)) == client.get(ENDPOINT).json()
            assert matched(candidates(on_server, query="Springfield", properties=state)) == ["mo"]
            answer = check(Extension, post_form(on_server, "extend", asked))
            assert answer == post_form(client, "extend", asked).json()
            found = check(EntitySuggestions, on_server.get(f"{ENDPOINT}/suggest/entity?prefix={LIGHTHOUSE}"))
            assert found["result"][0]["id"] == LIGHTHOUSE
            assert on_server.get(f"{ENDPOINT}/preview?id=nyt").status_code == 200
