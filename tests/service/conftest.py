"""A service over a small base, for the tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from edge_cases import wait_until
from fastapi.testclient import TestClient
from linker_base import ENTITIES, fill

from pearl_qdrant.service import ServiceSettings, create_app


@pytest.fixture(scope="session")
def service_store(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """An embedded store with the collection `base`."""
    path = tmp_path_factory.mktemp("service-store")
    fill(path, "base", str(model), ENTITIES, is_loaded=True)
    return path


@pytest.fixture(scope="session")
def service_settings(service_store: Path, tmp_path_factory: pytest.TempPathFactory) -> ServiceSettings:
    """Settings of a service over that store, with low limits."""
    return ServiceSettings(
        store=str(service_store),
        cache=str(tmp_path_factory.mktemp("cache")),
        max_body_bytes=20_000,
        max_mentions=20,
        max_mention_characters=100,
        max_text_characters=1000,
        max_types=4,
        max_limit=20,
        allowed_hosts=("testserver",),
        reload_s=0.02,
    )


@pytest.fixture(scope="module")
def client(service_settings: ServiceSettings) -> Iterator[TestClient]:
    """A client of that service."""
    with TestClient(create_app(service_settings)) as opened:
        wait_until(lambda: opened.get("/health/ready").status_code == 200)
        yield opened
