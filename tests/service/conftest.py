"""A service over a small base, for the tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from linker_base import ENTITIES, fill
from service_client import serving

from pearl_qdrant.service import ServiceSettings


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
        max_candidates=150,
        allowed_hosts=("testserver",),
        reload_s=0.02,
    )


@pytest.fixture(scope="module")
def client(service_settings: ServiceSettings) -> Iterator[TestClient]:
    """A client of that service."""
    with serving(service_settings) as opened:
        yield opened
