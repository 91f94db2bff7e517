"""A service over a small base, for the tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from linker_base import ENTITIES, fill

from pearl_qdrant.service import ServiceSettings, create_app


@pytest.fixture(scope="session")
def service_store(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """An embedded store with the collection `base`."""
    path = tmp_path_factory.mktemp("service-store")
    fill(path, "base", str(model), ENTITIES, is_loaded=True)
    return path


@pytest.fixture(scope="module")
def client(service_store: Path) -> Iterator[TestClient]:
    """A client of a service over that store, with the default settings."""
    with TestClient(create_app(ServiceSettings(store=str(service_store)))) as opened:
        yield opened
