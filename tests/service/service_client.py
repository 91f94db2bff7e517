"""A service in this process, with its client, for tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest
from edge_cases import wait_until
from fastapi.testclient import TestClient
from pydantic import SecretStr

from pearl_qdrant.service import ServiceSettings, create_app

Scope = Literal["module", "session"]
KEY = "0123456789abcdef-first"
KEYS = (SecretStr(KEY),)


@contextmanager
def serving(
    settings: ServiceSettings,
    *,
    base_url: str = "http://testserver",
    waits_for: str = "/health/ready",
    has_key: bool = True,
    **changed: Any,
) -> Iterator[TestClient]:
    """A client of a service with changed settings, which is ready; it sends the first key, where there are keys."""
    given = settings.model_copy(update=changed)
    key = {"X-API-Key": given.api_keys[0].get_secret_value()} if given.api_keys else {}
    with TestClient(create_app(given), base_url, headers=key if has_key else None) as client:
        wait_until(lambda: client.get(waits_for, headers=key).status_code == 200)
        yield client


def client_of(settings: str, *, scope: Scope = "module", **changed: Any) -> Any:
    """A fixture: a client, as of `serving`, of a service with the settings of the fixture of that name, changed."""

    @pytest.fixture(scope=scope)
    def client(request: pytest.FixtureRequest) -> Iterator[TestClient]:
        with serving(request.getfixturevalue(settings), **changed) as opened:
            yield opened

    return client


def handle_of(client: TestClient) -> Any:
    """The open collection `base` of the service."""
    return client.app.state.collections._handles["base"]  # type: ignore[attr-defined]


class Held:
    """Lets no batch and no look-up of an entity pass until `may_go`; `running` counts those that have begun."""

    def __init__(self, client: TestClient, patch: pytest.MonkeyPatch) -> None:
        self.running, self.may_go = threading.Semaphore(0), threading.Event()
        linker = handle_of(client).linker
        for name in ("link_batch", "entity"):
            patch.setattr(linker, name, self._held(getattr(linker, name)))

    def _held(self, call: Callable[..., object]) -> Callable[..., object]:
        def held(*given: object, **named: object) -> object:
            self.running.release()
            self.may_go.wait()
            return call(*given, **named)

        return held
