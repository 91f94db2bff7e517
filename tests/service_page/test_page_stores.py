"""The page at both kinds of store, in a real browser: a person rejects an answer, and drops a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from linker_base import ENTITIES, fill, fill_server
from page_service import IN_A_BROWSER, KEY, WAIT_MS, link, running
from pydantic import SecretStr
from qdrant_double import QdrantDouble

from pearl_qdrant.service import ServiceSettings

pytestmark = IN_A_BROWSER


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """The page, with the key of the service."""
    context = browser.new_context()
    context.add_init_script(f"sessionStorage.setItem('pearl-qdrant-key', '{KEY}')")
    opened = context.new_page()
    opened.set_default_timeout(WAIT_MS)
    opened.goto(address)
    opened.wait_for_selector("#type-chips .chip")
    yield opened
    context.close()


@pytest.fixture(scope="module", params=["folder", "server"])
def address(request: pytest.FixtureRequest, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service that may write, over a folder and over a server."""
    with ExitStack() as stack:
        if request.param == "server":
            store = stack.enter_context(QdrantDouble()).url
            fill_server(store, "base", str(model), ENTITIES)
        else:
            store = str(tmp_path_factory.mktemp("store"))
            fill(Path(store), "base", str(model), ENTITIES, is_loaded=True)
        cache = str(tmp_path_factory.mktemp("cache"))
        settings = ServiceSettings(store=store, cache=cache, allow_writing=True, api_keys=(SecretStr(KEY),))
        yield stack.enter_context(running(settings))


def learned(page: Any, mention: str) -> list[dict[str, Any]]:
    """What the collection has learned of a mention."""
    found: list[dict[str, Any]] = page.evaluate(
        """async (mention) => {
            const key = sessionStorage.getItem("pearl-qdrant-key");
            const headers = { "Content-Type": "application/json", "X-API-Key": key };
            const body = JSON.stringify({ mentions: [mention] });
            const answer = await fetch("v1/link", { method: "POST", headers, body });
            return (await answer.json()).links[0].learned ?? [];
        }""",
        mention,
    )
    return found


def test_an_answer_is_rejected(page: Any) -> None:
    """A person rejects the linked entity by keyboard; the page says how to undo it, and a later load still knows."""
    page.select_option("#threshold", "0")
    link(page, "NYTimes")
    assert "The New York Times" in page.locator(".verdict").text_content()
    button = page.locator(".candidate.linked").get_by_role("button", name="Reject")
    assert button.get_attribute("aria-label") == "Reject: NYTimes is not The New York Times"
    button.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".note:has-text('learn --undo')")

    assert [(one["entity_id"], one["rejected"]) for one in learned(page, "NYTimes")] == [("nyt", 1)]
    before = page.locator(".candidate", has_text="The New York Times").locator(".probability b").text_content()
    page.reload()
    page.wait_for_selector("#type-chips .chip")
    page.select_option("#threshold", "0")
    link(page, "NYTimes")
    after = page.locator(".candidate", has_text="The New York Times").locator(".probability b").text_content()
    assert after == before


def test_a_refused_rejection_is_said_beside_its_button(page: Any) -> None:
    """Where the service refuses to learn, its words are shown, and the button can be pressed again."""
    answer = {"error": "busy", "message": "Too much waits."}
    page.route("**/v1/reject", lambda route: route.fulfill(status=429, headers={"Retry-After": "1"}, json=answer))
    page.select_option("#threshold", "0")
    link(page, "Big Apple")
    button = page.locator(".candidate.linked").get_by_role("button", name="Reject")
    button.click()

    assert page.wait_for_selector(".problem.inline").text_content() == "Too much waits."
    assert button.is_enabled()
    assert learned(page, "Big Apple") == []


def drag(page: Any, selector: str, path: Path, *kinds: str) -> None:
    """Drag a file of the disk over an element, as the browser itself gets it from the desktop."""
    session = page.context.new_cdp_session(page)
    box = page.locator(selector).bounding_box()
    data = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
    place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
    for kind in kinds:
        session.send("Input.dispatchDragEvent", {"type": kind, **place, "data": data})
    session.detach()


def test_a_file_is_dropped_on_the_column_view(page: Any, tmp_path: Path) -> None:
    """A CSV file that is dropped on the field is read and linked; one that misses the field changes nothing."""
    table = tmp_path / "dropped names.csv"
    table.write_text('id,name\n1,NYTimes\n2,"Big Apple"\n3,zzyzx quux\n', encoding="utf-8")
    page.click("nav a[href='#column']")
    page.select_option("#threshold", "0.3")
    drag(page, "#title-column", table, "dragEnter", "dragOver", "drop")
    page.wait_for_timeout(300)
    assert page.locator("#column-form").is_hidden()
    assert page.locator("#drop").count() == 1, "the file has not replaced the page"

    drag(page, "#drop", table, "dragEnter", "dragOver")
    page.wait_for_selector("#drop.over")
    drag(page, "#drop", table, "drop")
    page.wait_for_selector("#column-form:not([hidden])")
    assert page.locator("#drop.over").count() == 0
    assert page.locator("#column-about").text_content() == "dropped names.csv: 3 rows, 2 columns"
    page.click("#column-start")
    page.wait_for_selector("table.answers tbody tr")

    ids = page.locator("table.answers tbody tr").evaluate_all(
        "rows => rows.map(row => row.querySelector('code')?.textContent)"
    )
    assert ids[:2] == ["nyt", "nyc"]
    assert len(ids) == 3
