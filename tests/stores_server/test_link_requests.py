"""How many requests a single link takes: most of its time on a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from double_fixtures import empty_double, running_double  # noqa: F401 (fixtures)
from qdrant_double import QdrantDouble

from pearl_qdrant import EntityLinker, load_base
from pearl_qdrant.store.search import QUICK_EF, THOROUGH_EF

NAMES = ("w1 times", "w2 post", "w3 city", "new york", "post office", "city times")


@pytest.fixture
def linker(double: QdrantDouble, model: Path, tmp_path: Path) -> Iterator[EntityLinker]:
    """Names on a server in strict mode."""
    base = tmp_path / "base.tsv"
    base.write_text("".join(f"E{i}\t{name}\n" for i, name in enumerate(NAMES)), encoding="utf-8")
    load_base(base, "base", store=double.url, model=model)
    with EntityLinker.open("base", store=double.url) as opened:
        opened.link("w1 times")  # what the linker reads once
        yield opened


@pytest.mark.parametrize(
    "mention, entity, most",
    [("w1 times", "E0", 1), ("W3 City", "E2", 1), ("new yrok", "E3", 2), ("something else entirely", None, 2)],
)
def test_a_link_takes_one_or_two_requests(
    linker: EntityLinker,
    double: QdrantDouble,
    monkeypatch: pytest.MonkeyPatch,
    mention: str,
    entity: str | None,
    most: int,
) -> None:
    """A mention whose own name is there takes one quick request, a misspelt or an unknown one a thorough one too."""
    double.requests.clear()
    answer, efs = double.answer, []

    def remember(method: str, path: str, body: bytes) -> object:
        efs.append({one["params"]["hnsw_ef"] for one in json.loads(body)["searches"] if "params" in one})
        return answer(method, path, body)

    monkeypatch.setattr(double, "answer", remember)
    link = linker.link(mention)

    assert link.entity_id == entity
    assert len(double.requests) <= most, double.requests
    assert efs == [{QUICK_EF}, {THOROUGH_EF}][:most]
    assert {request.rpartition("/points/")[2] for request in double.requests} == {"query/batch"}
