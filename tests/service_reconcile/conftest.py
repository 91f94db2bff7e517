"""A service over a base with homonyms, for the tests in this folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from linker_base import fill
from reconcile_cases import ENTITIES, reconciling

from pearl_qdrant.service import ServiceSettings


@pytest.fixture(scope="session")
def reconcile_settings(tmp_path_factory: pytest.TempPathFactory, model: Path) -> ServiceSettings:
    """Settings of a service over an embedded store with the collection `places`, with low limits."""
    path = tmp_path_factory.mktemp("reconcile-store")
    fill(path, "places", str(model), ENTITIES, is_loaded=True)
    return ServiceSettings(
        store=str(path),
        cache=str(tmp_path_factory.mktemp("reconcile-cache")),
        reconcile_batch=12,
        max_mention_characters=100,
        max_types=4,
        max_properties=6,
        max_limit=20,
        max_mentions=50,
    )


client = reconciling(scope="session")
