"""The files of the page, and what it asks beside the API, maps of collections among it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from page_service import KEY
from pydantic import SecretStr

from pearl_qdrant.service import ServiceSettings, create_app
from pearl_qdrant.service.page import FOLDER, lay_out

FILES = [path for path in sorted(FOLDER.rglob("*")) if path.is_file()]
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
INDEX = (FOLDER / "index.html").read_text("utf-8")


@pytest.mark.parametrize("path", ["/", *(f"/page/{path.relative_to(FOLDER).as_posix()}" for path in FILES)])
def test_every_file_is_served_with_the_policy(client: TestClient, path: str) -> None:
    """Each file has its type, and headers that allow nothing but the page's own files."""
    answer = client.get(path)

    assert answer.status_code == 200
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert policy.pop("require-trusted-types-for") == "'script'"
    assert set(policy.values()) == {"'none'", "'self'"}
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    kinds = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
    assert answer.headers["content-type"].startswith(kinds.get(Path(path).suffix, "text/html"))


def test_a_file_that_is_known_is_not_sent_again(client: TestClient) -> None:
    """A browser asks by ETag, so that a new release shows at the next load and an old file costs nothing."""
    first = client.get("/page/base.css")

    assert first.headers["cache-control"] == "no-cache"
    again = client.get("/page/base.css", headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304
    assert client.head("/").status_code == 200


@pytest.mark.parametrize("path", ["/page/nothing.js", "/page/../routes.py", "/page/%2e%2e/routes.py", "/page/"])
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    """Paths outside of the folder, and the folder itself, are not found."""
    assert client.get(path).status_code == 404


def test_no_file_names_another_host_or_makes_markup() -> None:
    """No address but the name space of SVG, none that begins with a slash; scripts write text only."""
    markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function"
    for path in FILES:
        text = path.read_text("utf-8")
        hosts = re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"')]*", text)
        assert {*hosts} <= {"http://www.w3.org/2000/svg"}, path
        assert "@import" not in text, path
        assert "url(http" not in text, path
        if path.suffix == ".js":
            assert not re.search(markup, text), path
            assert not re.search(r"[\"'`]/(?:v1|page)", text), path
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", INDEX)
    assert not re.search(r'(?:src|href)="/', INDEX)


def test_scripts_find_what_they_name() -> None:
    """Each module that is imported exists, and each element that is looked up by id is in the page."""
    ids = set(re.findall(r'\bid="([\w-]+)"', INDEX))
    for path in SCRIPTS:
        source = path.read_text("utf-8")
        for name in re.findall(r'from "\./([\w.]+)"', source):
            assert (path.parent / name).exists(), (path.name, name)
        assert set(re.findall(r'byId\("([\w-]+)"\)', source)) <= ids, path.name
    styles = {f"page/{path.relative_to(FOLDER).as_posix()}" for path in FILES if path.suffix == ".css"}
    assert styles <= set(re.findall(r'href="([^"]+)"', INDEX))


def test_the_page_needs_no_key_but_data_do(client: TestClient, page_settings: ServiceSettings) -> None:
    """With API keys the page and its settings, which are limits of the service, are open, so that it can ask for the
    key; types and maps are closed.
    """
    found = client.get("/page/settings").json()
    assert (found["allow_writing"], found["needs_key"], found["limit"]) == (False, False, 10)
    assert found["max_mentions"] == page_settings.max_mentions
    settings = page_settings.model_copy(update={"api_keys": (SecretStr(KEY),)})
    with TestClient(create_app(settings)) as closed:
        assert closed.get("/").status_code == 200
        assert closed.get("/page/modules/app.js").status_code == 200
        assert closed.get("/page/settings").json()["needs_key"] is True
        assert KEY not in closed.get("/page/settings").text
        for path in ("/v1/types", "/v1/map", "/v1/collections"):
            assert closed.get(path).status_code == 401
        assert closed.get("/v1/types", headers={"X-API-Key": KEY}).status_code == 200


def test_types_are_counted(client: TestClient) -> None:
    """Types of a collection come with their numbers of names, the most frequent first."""
    found = client.get("/v1/types", params={"collection": "base"}).json()

    assert found["collection"] == "base"
    assert [one["type"] for one in found["types"]][:2] == ["ORG", "GPE"]
    assert {"type": "newspaper", "names": 5} in found["kb_types"]
    assert client.get("/v1/types", params={"collection": "none"}).status_code == 404


def test_a_map_has_a_place_for_each_entity(client: TestClient) -> None:
    """Every entity is on the map once, by its canonical name, within the unit square; a sample can be asked for."""
    found = client.get("/v1/map", params={"size": 50}).json()

    assert found["collection"] == "base"
    assert len({point["entity_id"] for point in found["points"]}) == len(found["points"]) >= 6
    assert all(0 <= point[axis] <= 1 for point in found["points"] for axis in ("x", "y"))
    assert {point["canonical_name"]: point["type"] for point in found["points"]}["New York"] == "GPE"
    assert client.get("/v1/map", params={"size": 50}).json() == found
    assert client.get("/v1/map", params={"size": 3}).json()["points"] == found["points"][:3]
    refused = client.get("/v1/map", params={"size": 51})
    assert (refused.status_code, refused.json()["limit"]) == (422, "max_map_size")


def test_vectors_are_placed_by_their_principal_components() -> None:
    """The two directions in which vectors differ most become the axes; proportions are kept; empty and tiny collections
    have a map.
    """
    vectors = np.zeros((4, 5), np.float32)
    vectors[:, 2] = [0, 4, 8, 4]
    vectors[:, 4] = [0, 1, 0, -1]

    places = lay_out(vectors)

    assert np.ptp(places, axis=0) == pytest.approx([1, 0.25])
    assert places.mean(axis=0) == pytest.approx([0.5, 0.5])
    for count in (0, 1, 2):
        few = lay_out(np.ones((count, 3), np.float32))
        assert few.shape == (count, 2)
        assert np.isfinite(few).all()
