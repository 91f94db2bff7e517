"""A service over a small base, for the tests in this folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from service_client import client_of

from pearl_qdrant.service import ServiceSettings


@pytest.fixture(scope="session")
def service_settings(base_store: Path, tmp_path_factory: pytest.TempPathFactory) -> ServiceSettings:
    """Settings of a service over that store, with low limits."""
    return ServiceSettings(
        store=str(base_store),
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


client = client_of("service_settings", scope="session")
