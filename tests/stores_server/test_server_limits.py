"""Limits of a server, and of a proxy before it: rates, bytes, exact counts, indexes; and keys that are renewed. Bulk
loads: batches of the right size, errors that stay, and writes in order.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Run
from double_fixtures import connect
from qdrant_double import QdrantDouble
from qdrant_double_http import POINTS, Fault
from server_cases import NAME, ids_in, load, points_of
from store_cases import manifest_of

from pearl_qdrant import EntityLinker, load_base
from pearl_qdrant.errors import AccessRefusedError, StoreRejectedError, StoreUnavailableError
from pearl_qdrant.settings import ServerAccess
from pearl_qdrant.store import Collection, Store
from pearl_qdrant.store.administration import verify_collection
from pearl_qdrant.store.server.ledger import PART_BYTES

BASE = "base"
N = 70
QUERY = r"POST .*/points/query/batch$"


@pytest.fixture
def base(double: QdrantDouble, tmp_path: Path, model: Path) -> Path:
    """A base that the server has."""
    path = tmp_path / "base.tsv"
    path.write_text("".join(f"E{i}\tw{i} times\tORG\n" for i in range(N)), encoding="utf-8")
    load_base(path, BASE, store=double.url, model=model)
    double.requests.clear()
    return path


def n_requests(double: QdrantDouble, end: str) -> int:
    """How many requests ended so."""
    return sum(one.endswith(end) for one in double.requests)


@pytest.mark.parametrize("is_known", [True, False], ids=["in the collection's config", "learned"])
def test_many_mentions_keep_to_a_rate_of_reads(
    double: QdrantDouble, base: Path, monkeypatch: pytest.MonkeyPatch, *, is_known: bool
) -> None:
    """Where a server takes few queries in a minute, a batch is split, waits, and is answered whole."""
    monkeypatch.setattr("pearl_qdrant.store.server.errors.RetryPolicy.wait_s", lambda policy, n, asked: 0.0)
    if is_known:
        double.limits = {"read_rate_limit": 10}
    with EntityLinker.open(BASE, store=double.url) as linker:
        linker.link("w1 times")  # what a linker reads once
        rate = double.gate.limit("Read", 10, refill=5)
        links = list(linker.link_batch(f"w{i} times" for i in range(N)))
        assert [link.entity_id for link in links] == [f"E{i}" for i in range(N)]
        n_first = n_requests(double, "/query/batch")
        assert rate.n_refused < n_first
        # The limit is kept from then on: nothing is sent again that is larger than all that is allowed.
        rate.left, rate.refill, n_before = 10, 10, rate.n_refused
        assert linker.link("w3 times").entity_id == "E3"
        assert rate.n_refused - n_before <= 1


def test_a_request_over_a_rate_that_cannot_be_split_says_so(double: QdrantDouble, collection: Collection) -> None:
    """Where not one query is allowed, the first refusal is the error, and its words are those of a rate limit."""
    collection.upsert(*points_of(3))
    double.gate.limit("Read", 0)
    double.requests.clear()
    with pytest.raises(StoreRejectedError, match=r"rate limit.*[Rr]aise read_rate_limit") as told:
        collection.search(points_of(1)[1], limit=1)
    assert "docker" not in str(told.value)
    assert n_requests(double, "/query/batch") == 1


def test_a_rate_that_stays_used_up_is_said_in_the_words_of_a_rate(
    double: QdrantDouble, collection: Collection, caplog: pytest.LogCaptureFixture
) -> None:
    """After all tries the error says that the server limits the rate, not that it must be started; so does the log."""
    double.faults = [Fault("status", match=".*", status=429, retry_after="1", error="Read rate limit exceeded")] * 9
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(StoreUnavailableError, match=r"limits the rate of requests.*4 tries.*read_rate_limit") as told,
    ):
        collection.count()
    assert "docker" not in str(told.value)
    assert any("limits the rate of requests" in record.getMessage() for record in caplog.records)


def test_an_update_keeps_to_a_rate_of_writes(
    double: QdrantDouble, base: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changed names are written in as many requests as the rate allows, and the update ends. What a server has applied
    of a request before it refused the rest is not sent again with all of the rest.
    """
    monkeypatch.setattr("pearl_qdrant.store.server.errors.RetryPolicy.wait_s", lambda policy, n, asked: 0.0)
    rate = double.gate.limit("Write", 20, refill=3)
    base.write_text("".join(f"E{i}\tw{i} times\tLOC\n" for i in range(N)), encoding="utf-8")
    load_base(base, BASE, store=double.url, model=model, update=True)
    with closing(connect(double.url).open(BASE)) as collection:
        assert {point.kb_types for point in collection.scroll()} == {("LOC",)}
        assert collection.manifest.state == "ready"
    assert n_requests(double, "/points/batch") <= 2 * N
    assert rate.n_refused <= N


def test_new_names_keep_to_a_rate_of_writes(double: QdrantDouble, collection: Collection) -> None:
    """A load in batches that are larger than all that is allowed in a minute is split and ends."""
    double.gate.limit("Write", 30)
    with collection.writer() as writer:
        writer.write(*points_of(200))
    assert collection.count() == 200
    assert max(double.upsert_sizes) <= 30


@pytest.mark.parametrize("is_proxy", [True, False], ids=["proxy", "server"])
def test_a_file_of_mentions_keeps_to_a_limit_of_bytes(
    double: QdrantDouble, base: Path, run: Run, tmp_path: Path, *, is_proxy: bool
) -> None:
    """`link --file` behind a limit of bytes is answered whole; the limit is learned with a few refusals."""
    (tmp_path / "mentions.txt").write_text("".join(f"w{i} times\n" for i in range(N)), encoding="utf-8")
    double.gate.most_bytes, double.gate.is_proxy = 3_000, is_proxy
    outcome = run(
        "link", "--file", str(tmp_path / "mentions.txt"), "--collection", BASE, "--json", "--store", double.url
    )
    assert outcome.status == 0, outcome.err
    assert [line["entity_id"] for line in outcome.lines()] == [f"E{i}" for i in range(N)]
    assert 0 < double.gate.n_too_large <= 12  # halved a few times, by each of three threads


def test_what_was_learned_keeps_to_a_limit_of_bytes(
    double: QdrantDouble, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines of a ledger, and one line that is longer than a request may be, are stored and read as they are."""
    double.gate.most_bytes = 20_000
    lines = [b'["%s", "E1", 1]' % (b"x" * 100) for _ in range(500)]
    lines += [json.dumps(["\u00e9\u4e2d" * 20_000, "E2", 1], ensure_ascii=False).encode(), b'{"end": "1"}']
    collection.append_ledger(lines)
    n_refused = double.gate.n_too_large
    collection.append_ledger([b'["second call"]'] * 2000)

    assert list(collection.read_ledger()) == [*lines, *[b'["second call"]'] * 2000]
    assert sum(map(len, lines)) > 100_000
    assert double.gate.most_bytes < PART_BYTES
    assert double.gate.n_too_large == n_refused  # it was learned


def test_long_names_are_looked_up_in_small_requests(double: QdrantDouble, collection: Collection) -> None:
    """Names and ids that are looked up together fit into requests of 100 kB."""
    double.gate.most_bytes = 100_000
    collection.upsert(*points_of(3))
    names = [f"{'x' * 900} {i}" for i in range(500)]
    assert [point.name for point in collection.find(names=[*names, "n1"], limit=5)] == ["n1"]
    assert double.gate.n_too_large == 0


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "learned"])
def test_without_exact_counts_all_works(
    double: QdrantDouble, base: Path, model: Path, run: Run, *, is_known: bool
) -> None:
    """Where strict mode allows no exact counts, filters, `verify` and `--update` count in another way."""
    if is_known:
        double.limits = {"search_allow_exact": False}
    with EntityLinker.open(BASE, store=double.url) as linker:
        double.limits = {"search_allow_exact": False}
        assert linker.link("w1 times", types=["ORG"]).entity_id == "E1"
    assert verify_collection(BASE, store=double.url).problems == ()
    base.write_text("".join(f"E{i}\tw{i} times\tORG\n" for i in range(5, N + 1)), encoding="utf-8")
    common = ("--collection", BASE, "--store", double.url)
    assert run("ingest", str(base), "--update", "--yes", "--model", str(model), *common).status == 0
    assert verify_collection(BASE, store=double.url).points == N - 4
    assert run("collections", "show", *common[2:], BASE).status == 0


def test_missing_indexes_are_no_ready_collection(double: QdrantDouble, base: Path, model: Path, run: Run) -> None:
    """If the payload indexes were deleted, a link with a type of the base says how to make them, and neither `doctor`
    nor the list of collections calls the collection ready.
    """
    double.schema[BASE].clear()
    double.strict = False
    linked = run("link", "w1 times", "--type", "widget", "--collection", BASE, "--store", double.url)
    assert linked.status == 1
    assert f"pearl-qdrant collections finalize {BASE}" in " ".join(linked.err.split())
    looked = run("doctor", "--json", "--store", double.url, "--model", str(model))
    (found,) = (line for line in looked.lines() if line["check"] == "collection")
    assert looked.status == 1
    assert found["state"] == "fail"
    assert "no payload index on entity_id" in str(found["found"])
    assert "ready" not in str(found["found"])
    assert run("collections", "finalize", BASE, "--store", double.url).status == 0
    linked = run("link", "w1 times", "--type", "widget", "--collection", BASE, "--store", double.url)
    assert "No entity of type 'widget'" in " ".join(linked.err.split())


def test_a_renewed_key_is_read_again(double: QdrantDouble, base: Path, tmp_path: Path) -> None:
    """Once the server refuses the key, its file is read again, by every thread, and no request is lost."""
    file = tmp_path / "key"
    file.write_text("first\n", encoding="utf-8")
    double.gate.key = "first"
    access = ServerAccess.from_environment({"QDRANT_API_KEY_FILE": str(file)})
    store = connect(double.url, access=access)
    assert store.collections() == [BASE]
    double.gate.key = "second"
    with pytest.raises(AccessRefusedError, match="Set QDRANT_API_KEY to a key"):
        store.collections()
    file.write_text("second\n", encoding="utf-8")
    counts: list[int] = []
    threads = [threading.Thread(target=lambda: counts.append(store.open(BASE).count())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [N] * 3
    file.write_text("third, not\nprintable", encoding="utf-8")
    double.gate.key = "third"
    with pytest.raises(AccessRefusedError) as told:
        store.collections()
    assert "second" not in str(told.value)


def test_no_key_of_a_file_is_shown(double: QdrantDouble, tmp_path: Path) -> None:
    """Neither the old key nor the new one is in an error that repeats both."""
    file = tmp_path / "key"
    file.write_text("old-secret", encoding="utf-8")
    double.gate.key = "new-secret"
    store = connect(double.url, access=ServerAccess("old-secret", api_key_file=str(file)))
    file.write_text("new-secret", encoding="utf-8")
    assert store.collections() == []
    double.faults = [Fault("status", match=".*", status=400, error="old-secret and new-secret")]
    with pytest.raises(StoreRejectedError, match=r"\*\*\* and \*\*\*"):
        store.collections()


def test_a_service_says_503_for_a_refused_key(
    double: QdrantDouble, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of a client is answered with 503 and the reason while the key is refused, and answered once the file
    has the new one.
    """
    from fastapi.testclient import TestClient

    from pearl_qdrant.service.app import create_app
    from pearl_qdrant.service.settings import ServiceSettings

    file = tmp_path / "key"
    file.write_text("first", encoding="utf-8")
    monkeypatch.delenv("QDRANT_API_KEY", raising=False)
    monkeypatch.setenv("QDRANT_API_KEY_FILE", str(file))
    double.gate.key = "first"
    settings = ServiceSettings(store=double.url, allowed_hosts=("testserver",), cache=str(tmp_path))
    body = {"mentions": ["w1 times"], "collection": BASE}
    with TestClient(create_app(settings)) as client:
        assert client.post("/v1/link", json=body).status_code == 200
        double.gate.key = "second"
        answer = client.post("/v1/link", json=body)
        assert (answer.status_code, answer.json()["error"]) == (503, "store_refuses_key"), answer.text
        assert "refuses the key" in answer.json()["message"]
        file.write_text("second", encoding="utf-8")
        assert client.post("/v1/link", json=body).status_code == 200


def test_a_redirect_and_a_page_are_said_in_a_few_words(double: QdrantDouble, collection: Collection) -> None:
    """An answer of a proxy is cut to where it leads, or to the title of its page."""
    page = "<!DOCTYPE html><html><head><title>502 Bad &amp; Gateway</title></head><body>" + "<p>long</p>" * 500
    double.faults = [Fault("raw", match=".*", status=400, error=page)]
    with pytest.raises(StoreRejectedError, match=r"\(400 Bad Request: 502 Bad & Gateway\)"):
        collection.count()
    double.faults = [Fault("redirect", match=".*", status=301, error="https://qdrant.example.org/collections?key=1")]
    with pytest.raises(StoreRejectedError, match=r"redirects to https://qdrant.example.org/collections\)") as told:
        collection.count()
    assert "Name the address" in str(told.value)


def test_a_batch_too_large_is_halved_until_it_passes(double: QdrantDouble, collection: Collection) -> None:
    """A server that takes few points in a request gets them all; later requests keep to its limit."""
    double.max_points = 40

    load(collection, 600, step=300)

    assert sorted(ids_in(double)) == sorted(p.id for p in points_of(600)[0])
    assert max(double.upsert_sizes) <= 40
    n_upserts = sum(request.startswith("PUT") and request.endswith("/points") for request in double.requests)
    assert n_upserts - len(double.upsert_sizes) <= 2 * 3  # refused: 256, 128 and 64, by either thread


def test_a_limit_of_bytes_is_kept_by_later_batches(double: QdrantDouble, collection: Collection) -> None:
    """A limit of bytes limits the bytes of later batches, not their points: many short names still go together."""
    double.max_bytes = 20_000
    points, vectors, encodable = points_of(400)
    large = points_of(200, description="x" * 500)[0]
    with collection.writer() as writer:
        writer.write(large, vectors[:200], encodable[:200])
        writer.write(points[200:], vectors[200:], encodable[200:])
    n_upserts = sum(request.startswith("PUT") and request.endswith("/points") for request in double.requests)
    refused = n_upserts - len(double.upsert_sizes)

    assert sorted(ids_in(double)) == sorted(p.id for p in points)
    assert refused <= 2 * 4  # 200 points of 140 KB in all: halved four times, by either thread
    assert max(double.upsert_sizes) > 2 * min(double.upsert_sizes)


def test_a_batch_limit_of_strict_mode_halves_too(double: QdrantDouble, collection: Collection) -> None:
    """Strict mode's limit of points in a request does not make a load fail."""
    error = 'Bad request: Limit exceeded 100 > 60 for "upsert limit". Help: Reduce the "upsert limit" parameter.'
    double.faults = [Fault("status", status=400, error=error)]

    load(collection, 100)

    assert double.upsert_sizes == [50, 50]


def test_a_point_too_large_on_its_own_is_named(double: QdrantDouble, collection: Collection) -> None:
    """If a single point is too large, the error names it, and its neighbours are stored."""
    double.max_bytes = 2000
    points, vectors, encodable = points_of(3)
    points[1] = points_of(2, description="x" * 3000)[0][1]

    with pytest.raises(StoreRejectedError, match=r"'n1' \(entity E1\) alone is too large"):
        collection.upsert(points, vectors, encodable)

    assert collection.find(entity_ids=["E0"], limit=1) != []


def test_an_error_of_a_load_is_raised_by_all_later_writes(double: QdrantDouble, collection: Collection) -> None:
    """If a batch fails, the next write or flush raises the error, and so does each one after it; or the block's end."""
    points, vectors, encodable = points_of(10)
    double.faults = [Fault("status", status=422, error="poison")]

    def load_on() -> None:
        with collection.writer() as writer:
            writer.write(points, vectors, encodable)
            with pytest.raises(StoreRejectedError, match="poison"):
                writer.flush()
            with pytest.raises(StoreRejectedError, match="poison"):
                writer.write(points, vectors, encodable)

    with pytest.raises(StoreRejectedError, match="poison"):
        load_on()
    double.faults = [Fault("status", status=422, error="poison")]
    with pytest.raises(StoreRejectedError, match="poison"):
        load(collection, 10)

    assert collection.count() == 0


def test_stopping_a_load_does_not_wait_for_a_dead_server(double: QdrantDouble, collection: Collection) -> None:
    """Ctrl-C while the server is down ends the program at once."""
    double.faults = [Fault("status")] * 100
    stubborn = connect(double.url, tries=50, first_wait_s=1e6, max_wait_s=1e6, budget_s=1e9).open(NAME)

    def broken_off() -> None:
        with stubborn.writer() as writer:
            writer.write(*points_of(10))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()


def test_two_writes_of_one_point_do_not_overtake_each_other(double: QdrantDouble, collection: Collection) -> None:
    """Although two threads upload, the later write of a name wins, even if the earlier one is retried."""
    slow = connect(double.url, tries=3, first_wait_s=0.4).open(NAME)
    double.faults = [Fault("drop")]
    old, vectors, encodable = points_of(5, description="old")
    new, _, _ = points_of(5, description="new")

    with slow.writer() as writer:
        writer.write(old, vectors, encodable)
        writer.write(new, vectors, encodable)

    assert {p.description for p in slow.scroll()} == {"new"}


def test_a_write_returns_while_the_server_works(
    double: QdrantDouble, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next batch can be encoded while the last one is stored."""
    store.create(manifest_of())
    collection = connect(double.url, timeout=300.0).open(NAME)
    may_store, answer = threading.Event(), double.answer

    def answer_later(command: str, path: str, body: bytes) -> Any:
        if re.search(POINTS, f"{command} {path}"):
            may_store.wait(300)
        return answer(command, path, body)

    monkeypatch.setattr(double, "answer", answer_later)
    with collection.writer() as writer:
        writer.write(*points_of(10))
        before = ids_in(double)
        may_store.set()
        writer.flush()

    assert before == []
    assert len(ids_in(double)) == 10
