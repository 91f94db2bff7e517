"""Faults of the store and of processes under load: nothing is answered wrong, and nothing accepted is lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import service_client
from linker_base import ENTITIES, fill, fill_server
from qdrant_double import QdrantDouble
from service_process import WAIT_S, Clients, by_process, serving

from pearl_qdrant.linking.learned.learning import learned_pairs
from pearl_qdrant.service import ServiceSettings
from pearl_qdrant.store.open import open_store

pytestmark = pytest.mark.slow


@pytest.fixture
def server(model: Path) -> Iterator[QdrantDouble]:
    """A server with the collection `base`."""
    with QdrantDouble() as double:
        fill_server(double.url, "base", str(model), ENTITIES)
        yield double


def accepted_in(store: str) -> set[str]:
    """The mentions that a collection has learned."""
    with closing(open_store(store)) as opened, closing(opened.open("base", read_only=True)) as collection:
        return {mention for mention, _ in learned_pairs(collection)}


def test_a_store_that_fails_again_and_again_never_makes_a_wrong_answer(server: QdrantDouble, tmp_path: Path) -> None:
    """With every seventh request to the server lost, before or after it counted, all answers are right, and all that
    is accepted is kept.
    """
    settings = ServiceSettings(
        store=server.url, cache=str(tmp_path), allow_writing=True, api_keys=service_client.KEYS,
        reload_s=0.05, server_reload_s=0.05, store_wait_s=0.1,
    )  # fmt: skip
    with service_client.serving(settings, base_url="http://localhost") as client:

        def ask(path: str, body: Any) -> tuple[int, Any]:
            answer = client.post(path, json=body)
            return answer.status_code, answer.json()

        server.drop_every = 7
        clients = Clients(ask)
        try:
            clients.wait_for(accepted=10, answers=60)
        finally:
            clients.stop()
            server.drop_every = 0

    assert clients.wrong == []
    assert set(clients.statuses) <= {200, 503}
    assert clients.accepted <= accepted_in(server.url) <= clients.asked


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_what_was_accepted_outlives_the_process(how: signal.Signals, tmp_path: Path, model: Path) -> None:
    """After a stop or a kill under load, each link that was accepted with 200 is in the ledger, and nothing else; a
    new process serves it.
    """
    store = tmp_path / "store"
    fill(store, "base", str(model), ENTITIES, is_loaded=True)
    with serving(store, tmp_path, "--set", "allow_writing=yes") as service:
        clients = Clients(by_process(service))
        try:
            clients.wait_for(accepted=10, answers=40)
            service.process.send_signal(how)
            service.process.wait(WAIT_S)
        finally:
            clients.stop()

    assert clients.wrong == []
    assert set(clients.statuses) <= {200, 0}
    assert clients.accepted <= accepted_in(str(store)) <= clients.asked
    with serving(store, tmp_path, "--set", "allow_writing=yes") as service:
        assert [service.link(mention) for mention in sorted(clients.accepted)[:3]] == ["nyc"] * 3
