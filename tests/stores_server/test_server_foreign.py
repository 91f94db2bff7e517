"""Points that another program wrote into our collection: named, left alone, and no obstacle."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from cli_runner import Run
from double_fixtures import connect
from qdrant_client import models
from qdrant_double import QdrantDouble

from pearl_qdrant import EntityLinker, load_base
from pearl_qdrant.store.administration import verify_collection
from pearl_qdrant.transfer import pull_collection

NAME = "base"
FOREIGN = (7, 8, "8f9e1a52-6a0b-4d43-9a57-2d1f0c1b7e11")


@pytest.fixture
def base(double: QdrantDouble, tmp_path: Path, model: Path) -> Path:
    """A loaded base, and three points of another program beside it, one of them where every search finds it."""
    path = tmp_path / "base.tsv"
    path.write_text("".join(f"E{i}\tw{i} times\tORG\n" for i in range(9)), encoding="utf-8")
    load_base(path, NAME, store=double.url, model=model)
    (near,), _ = double.client.scroll(NAME, limit=1, with_vectors=True)
    payloads: list[dict[str, object] | None] = [{"text": "a document"}, {"kb": 7, "name": "w1 times"}, None]
    double.client.upsert(
        NAME,
        [
            models.PointStruct(id=one, vector=near.vector, payload=payload)  # type: ignore[arg-type]
            for one, payload in zip(FOREIGN, payloads, strict=True)
        ],
    )
    return path


def foreign_in(double: QdrantDouble) -> int:
    """How many of the points of the other program are there."""
    return len(double.client.retrieve(NAME, [*FOREIGN]))


def test_foreign_points_are_named_and_no_update_is_advised(double: QdrantDouble, base: Path, run: Run) -> None:
    """`verify` says how many there are, that they are not linked, and does not count them among the names."""
    found = verify_collection(NAME, store=double.url)
    assert [problem.kind for problem in found.problems] == ["foreign_points"]
    assert found.problems[0].message.startswith("3 points of another program")
    assert found.points == 9
    outcome = run("collections", "verify", NAME, "--store", double.url)
    assert "another program" in outcome.err + outcome.out
    assert "--update" not in outcome.err + outcome.out


def test_linking_leaves_foreign_points_out(double: QdrantDouble, base: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Names are linked beside points that are nearer than they are, and that is said once."""
    with EntityLinker.open(NAME, store=double.url) as linker:
        links = [linker.link(f"w{i} times") for i in range(9)]
        assert [one.entity_id for one in links] == [f"E{i}" for i in range(9)]
        assert [one.entity_id for one in linker.link_batch([f"w{i} times" for i in range(9)])] == [
            f"E{i}" for i in range(9)
        ]
        assert linker.link("nothing like it", limit=20).entity_id is None
    assert sum("another program wrote" in record.getMessage() for record in caplog.records) == 1


def test_an_update_works_beside_foreign_points(double: QdrantDouble, base: Path, model: Path) -> None:
    """Names are added, changed and deleted, the collection is complete afterwards, and the other points stay."""
    base.write_text("".join(f"E{i}\tw{i} post\tORG\n" for i in range(5, 12)), encoding="utf-8")
    load_base(base, NAME, store=double.url, model=model, update=True, may_remove=lambda n, points: True)
    with closing(connect(double.url).open(NAME)) as collection:
        assert sorted(point.entity_id for point in collection.scroll()) == sorted(f"E{i}" for i in range(5, 12))
        assert (collection.manifest.state, collection.manifest.names, collection.count()) == ("ready", 7, 7)
    assert foreign_in(double) == 3
    assert [one.kind for one in verify_collection(NAME, store=double.url).problems] == ["foreign_points"]


def test_a_load_and_a_pull_go_on_beside_foreign_points(
    double: QdrantDouble, base: Path, model: Path, tmp_path: Path
) -> None:
    """The same load again has nothing to do, a pull brings our names alone, and another model is possible."""
    result = load_base(base, NAME, store=double.url, model=model)
    assert (result.points, result.added) == (9, 0)
    assert pull_collection(NAME, source=double.url, store=tmp_path / "here").names == 9
    assert foreign_in(double) == 3
