"""Properties: how well values agree, and what that does to the scores."""

from __future__ import annotations

import math

import pytest
from fastapi.testclient import TestClient
from reconcile_cases import candidates, matched

from pearl_qdrant.service.reconcile.evidence import (
    HIGHEST_FACTOR,
    LOWEST_CHANCE,
    Condition,
    Level,
    agreement,
    chances,
    compare,
    factor,
    updated,
)


@pytest.mark.parametrize(
    "given, has, level",
    [
        ("Illinois", "ILLINOIS", Level.EQUAL),
        ("Côte d'Ivoire", "cote d ivoire", Level.EQUAL),
        ("Ilinois", "Illinois", Level.NEAR),
        ("Illinois", "Illinois, United States", Level.NEAR),
        ("Illinois", "Missouri", Level.DIFFERENT),
        ("1821", "1821.0", Level.EQUAL),
        ("1821", "1822", Level.NEAR),
        ("-5", "5", Level.DIFFERENT),
        ("1e400", "5", Level.DIFFERENT),
        ("1851-09-18", "1851-09-18T00:00:00Z", Level.EQUAL),
        ("1851", "1851-09-18", Level.NEAR),
        ("1851-09-18", "1851-09-19", Level.DIFFERENT),
        ("1852", "1851-09-18", Level.DIFFERENT),
        ("A daily newspaper of New York", "The daily newspaper that New York reads", Level.NEAR),
        ("Division 14", "Division 13", Level.DIFFERENT),
        ("%", "%", Level.EQUAL),
        ("%", "&", Level.DIFFERENT),
        ("true", "True", Level.EQUAL),
    ],
)
def test_values_agree_as_what_they_are(given: str, has: str, level: Level) -> None:
    """Texts are compared but for case, accents and slips, numbers by value, and dates as far as both say."""
    assert compare(given, has) is level
    assert compare(has, given) is level


def test_several_values_agree_as_the_quantifier_says() -> None:
    """By default one value must agree, with "all" each of them, with "none" no one; no value says nothing."""
    has = ["Illinois", "1821"]

    assert agreement(["Ohio", "illinois"], has) is Level.EQUAL
    assert agreement(["Ohio", "illinois"], has, "all") is Level.DIFFERENT
    assert agreement(["Ohio"], has, "none") is Level.MISSING
    assert agreement(["illinois"], has, "none") is Level.DIFFERENT
    assert agreement(["Ohio"], []) is Level.MISSING


def test_a_rare_value_says_more_than_a_frequent_one() -> None:
    """The factor of an equal value falls with the share of the base that has it; a difference speaks against."""
    sample = [["France"]] * 900 + [["Malta"]] + [["Peru"]] * 99
    frequent, rare = (chances(Condition("country", (one,)), sample) for one in ("France", "Malta"))

    assert factor(Level.EQUAL, frequent) == pytest.approx(0.85 / 0.858, abs=0.01)
    assert factor(Level.EQUAL, rare) == pytest.approx(0.85 / LOWEST_CHANCE)
    assert factor(Level.DIFFERENT, rare) < 0.11
    assert factor(Level.MISSING, rare) == 1


def test_evidence_multiplies_the_odds_against_nil() -> None:
    """Odds of a candidate by its name, times its factor, are its odds afterwards; without evidence nothing changes."""
    before = [0.3, 0.2]
    after = updated(before, [17.0, 0.1])
    nil = 1 - math.fsum(after)

    assert after[0] / nil == pytest.approx(0.3 / 0.5 * 17)
    assert after[1] / nil == pytest.approx(0.2 / 0.5 * 0.1)
    assert updated(before, [1.0, 1.0]) == pytest.approx(before)
    odds = 0.4 * HIGHEST_FACTOR
    assert updated([0.4, 0.4], [0.0, 1e9]) == [0.0, pytest.approx(odds / (odds + 0.2))]
    assert updated([0.0], [HIGHEST_FACTOR]) == [0.0]
    assert updated([1.0], [0.0]) == [0.0]


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
    """Two columns that agree say more than one, and one that differs lowers the score."""
    state, year, wrong = {"pid": "state", "v": "Illinois"}, {"pid": "founded", "v": "1821"}, {"pid": "founded", "v": 5}
    one, two, mixed = (
        candidates(client, query="Springfield", properties=given)[0]["score"]
        for given in ([state], [state, year], [state, wrong])
    )

    assert two > one > mixed


def test_a_name_that_fits_in_no_column_is_doubtful(client: TestClient) -> None:
    """A sure link by name falls below the threshold where several columns differ."""
    differing = [
        {"pid": "country", "v": "Peru"},
        {"pid": "founded", "v": "1990"},
        {"pid": "description", "v": "A fish"},
    ]

    assert matched(candidates(client, query="NYTimes", properties=differing)) == []
    agreeing = [{"pid": "country", "v": "United States"}, {"pid": "founded", "v": "1851"}]
    assert matched(candidates(client, query="NYTimes", properties=agreeing)) == ["nyt"]


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
