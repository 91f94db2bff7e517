"""OpenRefine's sequence of requests, in the shape in which OpenRefine sends them.

It reads the manifest in the browser, guesses types by a batch of ten names with three candidates each, sends batches
with type_strict "should", sorts candidates by score and takes the first one if it is a match, and fetches columns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from edge_cases import wait_until
from fastapi.testclient import TestClient
from linker_base import fill
from reconcile_cases import ENDPOINT, ENTITIES, candidates, post_form, serving

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.service import ServiceSettings

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
    changed = {"store": store, "cache": str(tmp_path / "cache"), "reload_s": 0.02}
    with serving(reconcile_settings.model_copy(update=changed)) as client:
        assert "river" not in client.get(f"{ENDPOINT}/suggest/property").text
        with EntityLinker.open("places", store=store) as linker:
            linker.add([Entity("or", "Springfield", (), ("city",), ("GPE",), None, {"river": "McKenzie"})])
        wait_until(lambda: "river" in client.get(f"{ENDPOINT}/suggest/property").text)
        found = candidates(client, query="Springfield", properties=[{"pid": "river", "v": "McKenzie"}])
        assert found[0]["id"] == "or"
