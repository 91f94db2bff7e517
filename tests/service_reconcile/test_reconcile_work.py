"""The work of a batch is bounded as a whole, and ends with the time of its request."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from reconcile_cases import ENDPOINT, post_form, serving

from pearl_qdrant.service import ServiceSettings
from pearl_qdrant.service.errors import TimedOutError
from pearl_qdrant.service.queues import Lane, check_time, set_time
from pearl_qdrant.service.reconcile import evidence
from pearl_qdrant.service.reconcile.evidence import Condition
from pearl_qdrant.service.reconcile.properties import Catalogue


@pytest.fixture(scope="module")
def bounded(reconcile_settings: ServiceSettings) -> Iterator[TestClient]:
    """A client of a service with low limits for a whole batch."""
    changed = {"max_values": 20, "max_mentions": 10, "max_candidates": 60}
    with serving(reconcile_settings.model_copy(update=changed)) as opened:
        yield opened


def query(values: int = 0, properties: int = 0, names: int = 1, limit: int = 1) -> dict[str, Any]:
    """A query of the 1.0 draft."""
    conditions = [{"matchType": "property", "pid": f"p{i}", "v": ["x"] * values} for i in range(properties)]
    return {"conditions": [{"matchType": "name", "v": ["Springfield"] * names}, *conditions], "limit": limit}


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
    answer = bounded.post(f"{ENDPOINT}/match", json={"queries": queries})

    assert (answer.status_code, answer.json()["error"], answer.json()["limit"]) == (413, "batch_too_large", limit)
    assert "Send less" in answer.json()["message"]
    assert bounded.post(f"{ENDPOINT}/match", json={"queries": queries[:1]}).status_code == (200 if queries[1:] else 413)


def test_a_batch_of_the_old_form_is_bounded_too(bounded: TestClient) -> None:
    """The same holds for batches of version 0.2."""
    heavy = {"query": "Springfield", "properties": [{"pid": f"p{i}", "v": ["x"] * 5} for i in range(5)]}

    assert post_form(bounded, "queries", {"q0": heavy}).json()["limit"] == "max_values"


def test_long_values_are_cut_as_limits_count(monkeypatch: pytest.MonkeyPatch, client: TestClient) -> None:
    """Of a value whose characters stand for many, so much is compared as of any other."""
    seen: list[str] = []
    level = Condition.level

    def noted(self: Condition, has: Any) -> Any:
        seen.extend(self.values)
        return level(self, has)

    monkeypatch.setattr(Condition, "level", noted)
    value = {"matchType": "property", "pid": "state", "v": ["\ufdfa" * 1000, "x" * 1000, "\u00e9" * 1000]}
    answer = client.post(f"{ENDPOINT}/match", json={"queries": [{"conditions": [query()["conditions"][0], value]}]})

    assert answer.status_code == 200
    assert {value[0]: len(value) for value in seen} == {"\ufdfa": 500 // 18, "x": 500, "\u00e9": 500}


def test_a_call_whose_time_is_over_ends_and_its_lane_is_free() -> None:
    """A call that loops stops soon after its client has got its 504, and the next one runs."""

    async def run() -> str:
        lane = Lane("tests", threads=1, max_queued=2, timeout_s=0.05)

        def loop() -> None:
            while True:
                check_time()

        with pytest.raises(TimedOutError):
            await lane.run(loop)
        while lane.queued:
            await asyncio.sleep(0.01)
        return await lane.run(lambda: "free")

    assert asyncio.run(run()) == "free"


def test_comparing_ends_with_the_time_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """No value is compared any more when the time is over, neither with a candidate nor with the sample."""
    compared: list[object] = []
    monkeypatch.setattr(evidence, "compare", lambda *given: compared.append(given))
    condition = Condition("state", ("x",) * 50)

    def late() -> None:
        set_time(-1)
        with pytest.raises(TimedOutError):
            condition.level(["y"])
        with pytest.raises(TimedOutError):
            Catalogue({}, {}, {}, {"state": [["y"]] * 150}).chances(condition)

    contextvars.copy_context().run(late)

    assert compared == []


def test_few_values_of_clients_are_kept() -> None:
    """However many different values clients send, what is kept of them is bounded in all."""
    catalogue = Catalogue({}, {}, {}, {})
    for number in range(1000):
        catalogue.chances(Condition("state", tuple(f"{number} {i}" for i in range(50))))

    assert sum(len(condition.values) for condition in catalogue._chances) <= 20_050
