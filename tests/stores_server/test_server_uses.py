"""What held on a real server: aliases of the user's, restored copies, weaker keys, a full disk, equal answers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from cli_runner import Outcome, Run
from double_fixtures import QUICK, connect, empty_double, running_double  # noqa: F401 (fixtures)
from qdrant_client import models
from qdrant_double import QdrantDouble
from qdrant_double_http import POINTS, Fault

from pearl_qdrant import Entity, EntityLinker, load_base
from pearl_qdrant.errors import ManifestError, StoreFullError, StoreRejectedError
from pearl_qdrant.linking import mention_stream
from pearl_qdrant.settings import TESTED_SERVER
from pearl_qdrant.store import Store
from pearl_qdrant.store.search import THOROUGH_EF
from pearl_qdrant.store.server import collection as server_collection
from pearl_qdrant.transfer import push_collection

NAMES = ("w1 times", "w2 post", "w3 city", "new york", "post office", "city times")
MENTIONS = ("w1 times", "W2 Post", "new yorkk", None, "office post", "something else")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A few names with types."""
    path = tmp_path / "base.tsv"
    path.write_text("".join(f"E{i}\t{name}\tORG\n" for i, name in enumerate(NAMES)), encoding="utf-8")
    return path


@pytest.fixture
def server(double: QdrantDouble, base: Path, model: Path) -> Iterator[Store]:
    """A store with the collection `base`."""
    opened = connect(double.url)
    load_base(base, "base", store=opened, model=model)
    yield opened
    opened.close()


def links(linker: EntityLinker) -> list[object]:
    """Entities of some mentions, alone and in a batch, with rounded probabilities."""
    answers = [linker.link(mention, threshold=0) for mention in MENTIONS]
    answers += linker.link_batch([*MENTIONS], threshold=0)
    answers += linker.link_batch([*MENTIONS], threshold=0, types=["ORG"])
    assert [link.mention for link in answers] == [*MENTIONS] * 3
    return [[(one.entity_id, round(one.probability, 3)) for one in link.candidates] for link in answers]


def test_a_server_answers_as_the_embedded_store(
    server: Store, base: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exact names, slips, other mentions, invalid and filtered ones have the same candidates, alone and in batches."""
    monkeypatch.setattr(mention_stream, "REMOTE_BATCH", 2)
    load_base(base, "base", store=tmp_path / "store", model=model)
    with (
        EntityLinker.open("base", store=server.location) as over,
        EntityLinker.open("base", store=str(tmp_path / "store")) as here,
    ):
        assert links(over) == links(here)


def test_quantization_and_memory_of_the_user_stay(server: Store, base: Path, model: Path, run: Run) -> None:
    """TurboQuant and tiers of memory, set on the server, outlast an update; the collection links and is verified."""
    wanted = {"quantization_config": {"turbo": {"bits": "bits4", "memory": "pinned"}}, "memory": "cold"}
    url = f"{server.location}/collections/base"
    httpx.patch(url, json={"vectors": {"dense": wanted}}).raise_for_status()

    base.write_text(base.read_text("utf-8") + "E9\tseven times\tORG\n", encoding="utf-8")
    load_base(base, "base", store=server, model=model, update=True)
    assert run("collections", "verify", "base", "--store", server.location).status == 0
    with EntityLinker.open("base", store=server.location) as linker:
        assert linker.link("seven times").entity_id == "E9"
    kept = httpx.get(url).json()["result"]["config"]["params"]["vectors"]["dense"]
    assert {name: kept[name] for name in wanted} == wanted


def test_a_collection_of_another_program_is_left_alone(
    double: QdrantDouble, base: Path, model: Path, tmp_path: Path
) -> None:
    """Nobody loads into it, restarts it or replaces it, and no message says to delete what is not ours."""
    double.client.create_collection("base", models.VectorParams(size=2, distance=models.Distance.DOT))
    load_base(base, "base", store=tmp_path / "store", model=model)
    for call in (
        lambda: EntityLinker.open("base", store=double.url),
        lambda: load_base(base, "base", store=double.url, model=model),
        lambda: load_base(base, "base", store=double.url, model=model, restart=True),
        lambda: push_collection("base", to=double.url, store=tmp_path / "store"),
        lambda: push_collection("base", to=double.url, store=tmp_path / "store", replace=True),
    ):
        with pytest.raises(ManifestError, match=r"another program made it.*use another collection") as refused:
            call()
        assert "delete" not in str(refused.value)
    assert {request.split()[0] for request in double.requests} <= {"GET", "POST"}


def test_a_server_behind_a_path_is_reached(double: QdrantDouble, base: Path, model: Path) -> None:
    """Behind a proxy a server may have a path of its own, with or without a slash at its end."""
    double.prefix = "/qdrant"
    load_base(base, "base", store=f"{double.url}/qdrant/", model=model)
    with EntityLinker.open("base", store=f"{double.url}/qdrant") as linker:
        assert linker.link("w1 times").entity_id == "E0"


def test_a_newer_server_is_noted_once(double: QdrantDouble, caplog: pytest.LogCaptureFixture) -> None:
    """A minor version that nobody tried works, with one line in the log."""
    double.version = "1.20.1"
    with closing(connect(double.url)) as store:
        assert [store.collections() for _ in range(3)] == [[]] * 3
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert line.endswith(f"is 1.20.1; this program was tested with {TESTED_SERVER}")


def test_a_snapshot_may_be_restored_under_another_name(server: Store, double: QdrantDouble) -> None:
    """A copy has the names and the model of the original, and can be written."""
    httpx.post(f"{server.location}/collections/base/snapshots").raise_for_status()
    (packed,) = double.snapshots.values()
    httpx.post(f"{server.location}/collections/copy/snapshots/upload", content=packed).raise_for_status()
    with EntityLinker.open("copy", store=server.location) as linker:
        assert linker.link("w1 times").entity_id == "E0"
        linker.add([Entity("E9", "another name")])
    assert (server.open("copy").count(), server.open("base").count()) == (7, 6)


@pytest.mark.parametrize(
    "refused", ["(PUT|PATCH|DELETE|POST .*/(aliases|delete|batch)$)", "GET /(collections|aliases)$"]
)
def test_a_weaker_key_links(server: Store, double: QdrantDouble, refused: str) -> None:
    """A read-only key, and one for this collection alone, link; what they may not do is said."""
    allowed = Fault("pass", match=".*/points/query/batch$")
    error = "Forbidden: Global manage access is required"
    with EntityLinker.open("base", store=server.location) as linker:
        double.faults = [allowed] * 20 + [Fault("status", match=refused, status=403, error=error)] * 50
        assert linker.link("w1 times").entity_id == "E0"
        with pytest.raises(StoreRejectedError, match="Set QDRANT_API_KEY to a key that may do this"):
            linker.add([Entity("E9", "another name")]) if "PUT" in refused else server.collections()
    double.faults = []
    assert server.open("base").count() == 6


def test_a_load_to_a_full_disk_ends_and_goes_on_later(double: QdrantDouble, base: Path, model: Path) -> None:
    """The error says at the first try whose disk is full; with space again the same load writes what lacks."""
    full = "Service internal error: No space left on device (os error 28)"
    with closing(connect(double.url)) as server:
        double.faults = [Fault("status", match=POINTS, status=500, error=full)]
        with pytest.raises(StoreFullError, match=r"disk of Qdrant at .*Free some space"):
            load_base(base, "base", store=server, model=model)
        assert server.open("base").manifest.state == "loading"
        load_base(base, "base", store=server, model=model)
        assert (server.open("base").count(), server.open("base").manifest.state) == (6, "ready")


def test_a_link_takes_one_or_two_requests(server: Store, double: QdrantDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mention whose own name is there takes one request by keys alone; another one a thorough one too."""
    answer, efs = double.answer, list[set[int]]()
    monkeypatch.setattr(server_collection, "LOOK_S", float("inf"))

    def remember(method: str, path: str, body: bytes) -> object:
        efs.append({one.get("params", {}).get("hnsw_ef") for one in json.loads(body)["searches"]} - {None})
        return answer(method, path, body)

    with EntityLinker.open("base", store=server.location) as linker:
        linker.link("w1 times")  # what the linker reads once
        monkeypatch.setattr(double, "answer", remember)
        for mention, entity, most in (
            ("w1 times", "E0", 1),
            ("W3 City", "E2", 1),
            ("new yorkk", "E3", 2),
            ("something else entirely", None, 2),
        ):
            double.requests.clear()
            efs.clear()
            assert linker.link(mention).entity_id == entity
            assert len(double.requests) <= most, double.requests
            assert efs == [set(), {THOROUGH_EF}][:most]
            assert {request.rpartition("/points/")[2] for request in double.requests} == {"query/batch"}


OPERATIONS = Path(__file__).resolve().parents[2] / "docs" / "operations.md"


def commands(title: str) -> str:
    """Return the block of the docs that begins with this comment."""
    (block,) = re.findall(rf"```\n# {title}.*?```", OPERATIONS.read_text("utf-8"), re.DOTALL)
    return block.strip("`\n")


def answer(outcome: Outcome) -> list[object]:
    """Return the linked entities with rounded probabilities."""
    (link,) = outcome.lines()
    candidates = link["candidates"]
    assert isinstance(candidates, list)
    return [(one["entity_id"], one["name"], round(one["probability"], 4)) for one in candidates]


@pytest.mark.skipif(shutil.which("curl") is None, reason="the commands of the docs use curl")
def test_a_collection_survives_the_loss_of_its_server(
    double: QdrantDouble, run: Run, tmp_path: Path, model: Path
) -> None:
    """After backup and restore by the commands of the docs, names and manifest are the same; no snapshot is left."""
    base = tmp_path / "base.tsv"
    base.write_text("".join(f"E{i}\tw{i} times\tORG\n" for i in range(20)), encoding="utf-8")
    common = ("--collection", "umls", "--store", double.url)
    assert run("ingest", str(base), "--model", str(model), *common).status == 0
    before = run("link", "w7 times", "--json", "--threshold", "0", *common)
    shell = {"env": os.environ | {"QDRANT_URL": double.url, "QDRANT_API_KEY": "key"}, "cwd": tmp_path, "timeout": 600}
    subprocess.run(["/bin/sh", "-euc", commands("backup")], check=True, **shell)
    left = dict(double.snapshots)
    double.reset()
    subprocess.run(["/bin/sh", "-euc", commands("restore")], check=True, **shell)
    after = run("link", "w7 times", "--json", "--threshold", "0", *common)

    assert not left
    assert after.status == 0, after.err
    assert answer(after) == answer(before)
    assert run("collections", "verify", "umls", "--store", double.url).status == 0
