"""Screenshots of the service's page: `python runs/page_screenshots.py --store demo-store --out pictures/`.

Needs Playwright and a Chromium. The store needs a collection `demo` of `examples/sample_base.tsv`, as `make demo` makes
it. Two of the pictures are in `docs/pictures`.
"""

from __future__ import annotations

import io
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import uvicorn
from PIL import Image
from playwright.sync_api import Page, sync_playwright
from pydantic import SecretStr

from pearl_qdrant.service import ServiceSettings, create_app

PASSAGE = (
    "Apple and Google will open offices in NYC and the UK. The New York Times wrote that Einstein never met JFK, "
    "though both had been to Washington DC. Patients with diabetes, type 2 have a higher risk of a heart attack."
)
COLUMN = (
    "name,seen\nNYTimes,3\nBig Apple,2\nGoogle,9\nParis,4\nheart atack,1\nhepatitis Z,1\nWashngton,5\n"
    "Georgia,2\nAmazon,7\n"
)
KEY = "a-key-of-the-pictures-alone"


@contextmanager
def running(settings: ServiceSettings) -> Iterator[str]:
    """A service in a thread; yields its address."""
    server = uvicorn.Server(uvicorn.Config(create_app(settings), port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.should_exit = True
        thread.join()


def save(page: Page, path: Path, *, whole: bool = False) -> None:
    """A picture with 256 colours: a quarter of the size, and no difference to see."""
    picture = Image.open(io.BytesIO(page.screenshot(full_page=whole)))
    picture.convert("RGB").quantize(256).save(path, optimize=True)


def take(page: Page, base: str, out: Path) -> None:
    """Go through the views, and take a picture of each."""
    page.goto(base)
    page.wait_for_selector("#type-chips .chip")
    page.fill("#mention", "Washington")
    page.keyboard.press("Enter")
    page.wait_for_selector(".candidate")
    page.locator("#mention").blur()
    save(page, out / "page-mention.png")
    page.fill("#mention", "")
    page.type("#mention", "new yo", delay=20)
    page.wait_for_selector("#suggestions li")
    page.keyboard.press("ArrowDown")
    save(page, out / "page-suggestions.png")
    page.goto(f"{base}#passage")
    page.fill("#passage", PASSAGE)
    page.click("#passage-form .primary")
    page.click(".mark >> nth=2")
    save(page, out / "page-passage.png")
    page.goto(f"{base}#column")
    page.set_input_files("#file", {"name": "names.csv", "mimeType": "text/csv", "buffer": COLUMN.encode()})
    page.click("#column-start")
    page.wait_for_selector("table.answers")
    save(page, out / "page-column.png", whole=True)
    page.emulate_media(color_scheme="dark")
    page.goto(f"{base}#map")
    page.wait_for_selector("#legend .check")
    page.focus("#plot")
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(500)
    page.locator("#plot").blur()
    save(page, out / "page-map.png")
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{base}#mention")
    page.fill("#mention", "Geneva convention")
    page.keyboard.press("Enter")
    page.wait_for_selector("#mention-result .verdict:has-text('Geneva')")
    save(page, out / "page-phone.png")
    page.goto(f"{base}#map")
    save(page, out / "page-phone-map.png", whole=True)


@click.command()
@click.option("--store", required=True, help="Folder with a collection of the sample base.")
@click.option("--collection", default="demo", show_default=True)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True)
def main(store: str, collection: str, out: Path) -> None:
    """Take the pictures."""
    out.mkdir(parents=True, exist_ok=True)
    settings = ServiceSettings(store=store, collections=(collection,), allow_writing=True, api_keys=(SecretStr(KEY),))
    with running(settings) as base, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        page.set_default_timeout(150_000)
        page.add_init_script(f"sessionStorage.setItem('pearl-qdrant-key', '{KEY}')")
        page.on("console", lambda message: click.echo(f"{message.type}: {message.text}", err=True))
        page.on("pageerror", lambda error: click.echo(f"error: {error}", err=True))
        take(page, base, out)
        browser.close()


if __name__ == "__main__":
    main()
