"""Reconciliation over a Qdrant server."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from linker_base import fill_server
from qdrant_double import QdrantDouble
from reconcile_cases import ENDPOINT, ENTITIES, LIGHTHOUSE, candidates, matched, post_form, serving
from specification import EntitySuggestions, Extension, Manifest, check

from pearl_qdrant.service import ServiceSettings


@pytest.mark.slow
def test_a_server_answers_as_a_folder(
    client: TestClient, reconcile_settings: ServiceSettings, model: Path, tmp_path: Path
) -> None:
    """Manifest, matches by properties, suggestions, previews and columns are those of an embedded store."""
    state = [{"pid": "state", "v": "Missouri"}]
    asked = {"ids": ["nyt", LIGHTHOUSE], "properties": [{"id": "country"}, {"id": "links_to"}, {"id": "aliases"}]}
    with QdrantDouble() as double:
        double.strict = True
        fill_server(double.url, "places", str(model), ENTITIES)
        with serving(reconcile_settings, store=double.url, cache=str(tmp_path)) as on_server:
            assert check(Manifest, on_server.get(ENDPOINT)) == client.get(ENDPOINT).json()
            assert matched(candidates(on_server, query="Springfield", properties=state)) == ["mo"]
            answer = check(Extension, post_form(on_server, "extend", asked))
            assert answer == post_form(client, "extend", asked).json()
            found = check(EntitySuggestions, on_server.get(f"{ENDPOINT}/suggest/entity?prefix={LIGHTHOUSE}"))
            assert found["result"][0]["id"] == LIGHTHOUSE
            assert on_server.get(f"{ENDPOINT}/preview?id=nyt").status_code == 200
