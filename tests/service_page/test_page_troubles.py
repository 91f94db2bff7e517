"""The page where something fails, and its reading of tables, in a real browser."""

from __future__ import annotations

from typing import Any

from page_service import IN_A_BROWSER

pytestmark = IN_A_BROWSER


def test_without_suggestions_a_mention_is_linked(page: Any) -> None:
    """Where the path of suggestions fails, typing goes on without a message, and the mention is linked."""
    asked = []
    page.route("**/v1/search*", lambda route: (asked.append(1), route.fulfill(status=404, json={"error": "not_found"})))
    page.type("#mention", "NYTimes")
    page.wait_for_timeout(500)
    page.press("#mention", "Enter")
    page.wait_for_selector(".verdict")

    assert asked
    assert page.is_hidden("#suggestions")
    assert page.is_hidden("#problem")


def test_a_service_that_is_gone_is_said(page: Any) -> None:
    """Where the service does not answer, the page says so in the place of the answer; later it links again."""
    page.route("**/v1/link", lambda route: route.abort())
    page.fill("#mention", "NYTimes")
    page.press("#mention", "Enter")
    assert "does not answer" in page.wait_for_selector("#mention-result .problem").text_content()
    page.unroute("**/v1/link")
    page.press("#mention", "Enter")
    page.wait_for_selector("#mention-result .verdict")


def test_a_refusal_is_shown_in_the_words_of_the_service(page: Any) -> None:
    """A type that no entity has is refused; the message of the service is shown."""
    page.fill("#type-other", "nonsense")
    page.press("#type-other", "Enter")
    page.fill("#mention", "NYTimes")
    page.press("#mention", "Enter")

    assert "nonsense" in page.wait_for_selector("#mention-result .problem").text_content()


def test_a_column_waits_for_a_busy_service(page: Any) -> None:
    """An answer 429 is asked again after its Retry-After; no value is lost."""
    refused = []

    def busy(route: Any) -> None:
        if len(refused) < 2:
            refused.append(1)
            route.fulfill(
                status=429, headers={"Retry-After": "1"}, json={"error": "busy", "message": "Too much waits."}
            )
        else:
            route.continue_()

    page.route("**/v1/link", busy)
    page.click("nav a[href='#column']")
    page.click("#paste summary")
    page.fill("#rows", "NYTimes\nunicorn")
    page.click("#rows-read")
    page.uncheck("#column-header")
    page.click("#column-start")
    page.wait_for_selector("table.answers tbody tr")

    assert len(refused) == 2
    assert page.locator("table.answers tbody tr").count() == 2
    assert page.locator("#column-result .problem").count() == 0


def test_a_column_that_stops_keeps_what_it_has(page: Any) -> None:
    """After an error in the middle, the answers so far are shown, with what is missing."""
    sent = []

    def fails(route: Any) -> None:
        sent.append(1)
        if len(sent) > 1:
            route.fulfill(status=500, json={"error": "internal", "message": "The service failed."})
        else:
            route.continue_()

    page.route("**/v1/link", fails)
    page.click("nav a[href='#column']")
    page.click("#paste summary")
    page.fill("#rows", "name\n" + "\n".join(f"unicorn {number}" for number in range(60)))
    page.click("#rows-read")
    page.click("#column-start")

    assert "50 of 60" in page.wait_for_selector("#column-result .problem").text_content()
    assert page.locator("table.answers tbody tr").count() == 60


def test_tables_are_read_and_written_as_they_are(page: Any) -> None:
    """Quotes, delimiters, line ends and other encodings come back as they were."""
    rows = [["a", 'say "hi"', "x,y"], ["", "two\nlines", "ü; 東京"], ["=1+1", " spaced ", "'"]]
    found = page.evaluate(
        """async (rows) => {
            const csv = await import("./page/modules/csv.js");
            const bytes = (list) => new Uint8Array(list).buffer;
            return {
                again: csv.parseTable(csv.formatTable(rows), ","),
                tabs: csv.findDelimiter("a\\tb, c\\nd\\te, f, g\\n"),
                semicolons: csv.findDelimiter('x;"1,5"\\ny;"2,5"\\n'),
                one: csv.findDelimiter("only\\nnames, with commas\\n"),
                open: csv.parseTable('a,"b\\nc', ","),
                empty: csv.parseTable("", ","),
                utf8: csv.decode(bytes([0xc3, 0xbc])),
                latin: csv.decode(bytes([0x66, 0xfc, 0x72])),
                utf16: csv.decode(bytes([0xff, 0xfe, 0xfc, 0x00])),
            };
        }""",
        rows,
    )

    assert found.pop("again") == rows
    assert found == {
        "tabs": "\t",
        "semicolons": ";",
        "one": ",",
        "open": [["a", "b\nc"]],
        "empty": [],
        "utf8": "ü",
        "latin": "für",
        "utf16": "ü",
    }
