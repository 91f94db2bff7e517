"""Data extension: values of properties, and which properties to propose."""

from __future__ import annotations

import json

import pytest
from fastapi.testclient import TestClient
from reconcile_cases import ENDPOINT, LIGHTHOUSE, post_form
from specification import Extension, Proposal, check

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
