"""A service over a small base, and a browser, for the tests of the page."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from linker_base import ENTITIES, fill
from page_service import WAIT_MS, running

from pearl_qdrant import Entity
from pearl_qdrant.service import ServiceSettings, create_app

HOSTILE = Entity("evil", "<img src=x onerror=alert(1)>", ("evil name",), ("ORG",), ("ORG",), "<b>bold</b> & 'quoted'")
"""An entity whose name is markup."""


@pytest.fixture(scope="session")
def page_store(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """An embedded store with the collection `base`."""
    path = tmp_path_factory.mktemp("page-store")
    fill(path, "base", str(model), [*ENTITIES, HOSTILE], is_loaded=True)
    return path


@pytest.fixture(scope="session")
def page_settings(page_store: Path, tmp_path_factory: pytest.TempPathFactory) -> ServiceSettings:
    """Settings of a service over that store."""
    cache = str(tmp_path_factory.mktemp("cache"))
    return ServiceSettings(store=str(page_store), cache=cache, max_map_size=50, allowed_hosts=("testserver",))


@pytest.fixture(scope="module")
def client(page_settings: ServiceSettings) -> Iterator[TestClient]:
    """A client of that service."""
    with TestClient(create_app(page_settings)) as opened:
        yield opened


@pytest.fixture(scope="module")
def start(page_settings: ServiceSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A function that starts the service with other settings over a copy of the store; returns its address."""
    with ExitStack() as stack:

        def started(**changed: Any) -> str:
            assert page_settings.store is not None
            folder = tmp_path_factory.mktemp("written") / "store"
            shutil.copytree(page_settings.store, folder)
            return stack.enter_context(running(page_settings.model_copy(update={"store": str(folder), **changed})))

        yield started


@pytest.fixture(scope="module")
def address(page_settings: ServiceSettings) -> Iterator[str]:
    """The address of a read-only service."""
    with running(page_settings) as found:
        yield found


def chromium() -> str:
    """The path of a Chromium; skips the test if there is none, or no Playwright."""
    pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """The page, ready to use."""
    context = browser.new_context()
    opened = context.new_page()
    opened.set_default_timeout(WAIT_MS)
    opened.goto(address)
    opened.wait_for_selector("#type-chips .chip")
    yield opened
    context.close()


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script of axe-core, which npm brings; skips the test if it cannot."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("needs npm, which brings axe-core")
    folder = tmp_path_factory.mktemp("axe")
    command = [npm, "install", "--no-save", "--no-audit", "--no-fund", "--prefix", str(folder), "axe-core@4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        pytest.skip(f"npm did not bring axe-core: {done.stderr[-300:]}")
    return script
