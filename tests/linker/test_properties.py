"""Values of a row as evidence: how well they agree with those of the base, and what that does to links."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterable, AsyncIterator, Iterable

import numpy as np
import pytest
from linker_base import linker_over
from pair_table import other_outcomes

from pearl_qdrant import Entity, EntityLinker, Link
from pearl_qdrant.errors import OptionError
from pearl_qdrant.linking.properties import HIGHEST, Evidence, compare_rows, shipped_weights
from pearl_qdrant.linking.values import BaseColumn, kind_of

PLACES = "Illinois,Massachusetts,Missouri,Oregon,Ohio,Vermont,Virginia,Georgia,Tennessee,Kentucky".split(",")
TOWNS = [
    Entity(f"t{i}", "Springfield", (), ("town",), ("GPE",), None, {"state": place, "founded": f"{1800 + 7 * i}"})
    for i, place in enumerate(PLACES)
]
OTHERS = [
    Entity(f"o{i}", name, (), ("town",), ("GPE",), None, {"state": PLACES[i % 10], "founded": f"{1700 + i}"})
    for i, name in enumerate(
        "Riverton,Oakdale,Maple Grove,Elmwood,Cedar Falls,Lakeside,Hillsboro,Brookfield,Kingsport,Ashland,Milford,"
        "Clayton,Dover,Salem,Auburn,Newport,Jackson,Madison,Franklin,Greenville".split(",")
    )
]


towns = linker_over([*TOWNS, *OTHERS], model="model")


NUMBERS = [["19.99"], ["5"], ["120"], ["64.5"], ["7.25"]]
DATES = [["1998"], ["1851-09-18"], ["2004-02"], ["1921"], ["1976"]]
CODES = [["2913"], ["4870"], ["3121"], ["0822"], ["6005"]]
TEXTS = [["Illinois"], ["Missouri"], ["Ohio"], ["New York"], ["Division 13"], ["True"]]


def test_values_agree_as_what_they_are() -> None:
    """Texts are compared by words, numbers by size, dates as far as both say, codes but for slips; either way round."""
    columns = {"TEXTS": TEXTS, "NUMBERS": NUMBERS, "DATES": DATES, "CODES": CODES}

    def outcome(kind: str, given: str, has: str) -> str:
        column = BaseColumn.of(columns[kind])
        assert column.level([given], [has]) == column.level([has], [given])
        return str(column.level([given], [has]))

    assert other_outcomes(__file__, "value", outcome) == []


@pytest.mark.parametrize("sample, given", [(NUMBERS, "none here"), (DATES, "spring"), (NUMBERS, "n/a"), (TEXTS, "-")])
def test_a_value_of_another_kind_says_nothing(sample: list[list[str]], given: str) -> None:
    """Text beside prices or years, and what stands for nothing, are no contradiction."""
    assert BaseColumn.of(sample).level([given], sample[0]) is None
    assert BaseColumn.of(sample).level([], sample[0]) is None


def test_kinds_of_columns_are_known_by_their_values() -> None:
    """Years are dates, postcodes are codes, prices are numbers."""
    kinds = [kind_of([value for has in sample for value in has]) for sample in (NUMBERS, DATES, CODES, TEXTS)]

    assert kinds == ["number", "date", "code", "text"]


def test_a_rare_value_says_more_than_a_frequent_one() -> None:
    """An equal value raises the odds by how few entities have it, and a different one lowers them, within bounds."""
    column = BaseColumn.of([["France"]] * 900 + [["Malta"]] + [["Peru"]] * 99)
    weights, candidates = shipped_weights(), [[{"country": ["France"]}], [{"country": ["Malta"]}]]

    def logit(given: str, has: int) -> float:
        rows = compare_rows([{"country": [given]}], [[0.6]], [candidates[has]], {"country": column}, weights)
        return float(Evidence({"country": column}).logits(rows)[0, 0])

    assert logit("Malta", 1) > 1.0 > logit("France", 0) >= 0.0
    assert math.log(weights.astray) <= logit("Malta", 0) < 0
    assert logit("Malta", 1) <= HIGHEST


def test_what_follows_from_a_name_says_little_more() -> None:
    """A maker that all products of a name share raises the nearest one less than a maker that tells them apart."""
    makers = [f"{one} Works" for one in PLACES]
    column = {"maker": BaseColumn.of([[one] for one in makers * 10])}

    def logit(of_second: int) -> float:
        rows = [{"maker": [one]} for one in makers * 10]
        has = [
            [{"maker": [one]}, {"maker": [makers[(i + of_second) % len(makers)]]}] for i, one in enumerate(makers * 10)
        ]
        compared = compare_rows(rows, [[0.5, 0.3]] * len(rows), has, column, shipped_weights())
        evidence = Evidence(column)
        evidence.learn(compared)
        return float(evidence.logits(compared)[:, 0].mean())

    assert 0 <= logit(0) < 0.5 * logit(1)


def test_evidence_is_added_to_the_odds_against_nil() -> None:
    """Odds of a candidate by its name, times its factor, are its odds afterwards; without evidence nothing changes."""
    evidence, before = Evidence({}), np.array([[0.3, 0.2], [0.3, 0.2]])
    after = evidence.updated(before, np.log(np.array([[17.0, 0.1], [1.0, 1.0]])))
    nil = 1 - after[0].sum()

    assert after[0] / nil == pytest.approx(np.array([0.3 / 0.5 * 17, 0.2 / 0.5 * 0.1]))
    assert (after[1] == before[1]).all()


def test_a_property_tells_namesakes_apart(towns: EntityLinker) -> None:
    """Of ten towns of a name, the state says which one it is; the year alone does, too."""
    assert towns.link("Springfield").nil_reason == "ambiguous"
    found = towns.link("Springfield", properties={"state": "missouri"})

    assert (found.entity_id, found.rule) == ("t2", "properties")
    assert found.candidates[0].properties == {"state": 1.0}
    assert found.candidates[1].properties["state"] < 0.5
    assert towns.link("Springfield", properties={"founded": 1821}).entity_id == "t3"
    assert asyncio.run(towns.alink("Springfield", properties={"state": "missouri"})) == found


def test_a_batch_takes_columns_in_step_with_the_mentions(towns: EntityLinker) -> None:
    """Each mention has its cell of each column; null and blank cells leave a link as it is by its name."""
    mentions = ["Springfield", "Springfield", "Salem", "Dover"]
    columns = {"state": ["Ohio", None, "", float("nan")], "founded": [1828, None, None, "n/a"]}
    found = list(towns.link_batch(iter(mentions), properties=columns))
    alone = list(towns.link_batch(mentions, limit=20))

    assert [one.entity_id for one in found] == ["t4", None, alone[2].entity_id, alone[3].entity_id]
    assert [one.probability for one in found[1:]] == [one.probability for one in alone[1:]]

    async def collected(asked: Iterable[str] | AsyncIterable[str]) -> list[Link]:
        return [link async for link in towns.alink_batch(asked, properties=columns)]

    async def stream() -> AsyncIterator[str]:
        yield "Springfield"

    assert asyncio.run(collected(iter(mentions))) == found
    with pytest.raises(TypeError, match="pass the mentions as a list"):
        asyncio.run(collected(stream()))


def test_agreeing_raises_and_contradicting_lowers_the_probability(towns: EntityLinker) -> None:
    """A name with slips is surer with its state, and less sure with another one."""
    name, state = "Brokfeild", next(one.extra["state"] for one in OTHERS if one.canonical_name == "Brookfield")
    plain, with_own, with_other = (
        towns.link(name, limit=20, **given).candidates
        for given in ({}, {"properties": {"state": state}}, {"properties": {"state": "Nevada"}})
    )

    assert len({plain[0].entity_id, with_own[0].entity_id, with_other[0].entity_id}) == 1
    probabilities = [one[0].probability or 0.0 for one in (with_other, plain, with_own)]
    assert probabilities == sorted(probabilities)
    assert len(set(probabilities)) == 3


def test_a_column_of_something_else_changes_no_link(towns: EntityLinker) -> None:
    """Where the states of a list are those of other rows, its links are those of the names."""
    names = [one.canonical_name for one in OTHERS] * 4
    shifted = [OTHERS[(i * 7 + 3) % len(OTHERS)].extra["state"] for i in range(len(names))]
    found = towns.link_batch(names, properties={"state": shifted})

    assert [one.entity_id for one in found] == [one.entity_id for one in towns.link_batch(names)]


def test_an_unknown_property_is_refused_with_those_there_are(towns: EntityLinker) -> None:
    """A property that the base does not have is an error that lists the others; so is a column that is too short."""
    with pytest.raises(OptionError, match=r"no property 'ctiy'; it has: .*state"):
        towns.link("Salem", properties={"ctiy": "Ohio"})
    with pytest.raises(OptionError, match="fewer than mentions"):
        list(towns.link_batch(["Salem", "Dover"], properties={"state": ["Ohio"]}))
