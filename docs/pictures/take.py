"""Take the pictures of the page, with Chromium: `pearl-qdrant serve --collection demo`, then this."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

ADDRESS = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8765"
FOLDER = Path(__file__).parent

with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": 1000, "height": 860}, color_scheme="light")
    page.set_default_timeout(300_000)  # ms; a map takes seconds, and minutes beside other programs
    page.goto(ADDRESS)
    page.wait_for_selector("#type-chips .chip")
    page.fill("#mention", "heart atack")
    page.keyboard.press("Enter")
    page.click(".why summary")
    end = page.locator(".why").bounding_box()
    assert end is not None
    clip = {"x": 0, "y": 0, "width": 1000, "height": end["y"] + end["height"] + 24}
    page.screenshot(path=FOLDER / "page-mention.png", clip=clip)
    page.goto(f"{ADDRESS}/#map")
    page.wait_for_selector("#legend > *")
    page.wait_for_timeout(2000)  # the plot is drawn
    page.screenshot(path=FOLDER / "page-map.png")
    browser.close()
