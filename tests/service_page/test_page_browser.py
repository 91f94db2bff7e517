"""The page in a real browser: type, click, drop, by keyboard, on a phone, in both themes, and where something fails."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from linker_base import ENTITIES
from page_service import IN_A_BROWSER, KEY, WAIT_MS, link
from pydantic import SecretStr

from pearl_qdrant.linking.calibration import read_pairs

pytestmark = IN_A_BROWSER

VIEWS = ("mention", "passage", "column", "map")


class Watched:
    """A page, with the addresses that it asked and what its console said."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.context = browser.new_context(accept_downloads=True, **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.asked: list[str] = []
        self.said: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))

    def open(self, address: str, view: str = "mention") -> Any:
        """Open a view, ready to use."""
        self.page.goto(f"{address}#{view}")
        self.page.wait_for_selector("#type-chips .chip", state="attached")
        return self.page


@pytest.fixture
def watched(browser: Any) -> Iterator[Watched]:
    """A new page of the desktop's width."""
    found = Watched(browser, viewport={"width": 1200, "height": 800})
    yield found
    found.context.close()


def test_a_load_asks_no_other_host_and_breaks_no_rule(watched: Watched, address: str) -> None:
    """All requests of the page go to the service, and nothing offends against the policy."""
    page = watched.open(address)
    for view in VIEWS:
        page.click(f"nav a[href='#{view}']")
        page.wait_for_selector(f"#view-{view}:not([hidden])")
    page.wait_for_selector("#legend .check")

    assert {urlsplit(url).netloc for url in watched.asked} == {urlsplit(address).netloc}
    assert [text for text in watched.said if "503" not in text] == []  # 503: an index or a map is being made


def test_a_mention_is_typed_and_linked_by_keyboard(watched: Watched, address: str) -> None:
    """Suggestions come while typing; arrow and Enter choose one, and its candidates have bars and types."""
    page = watched.open(address)
    page.focus("#mention")
    # Until the index of names is built there are none, and typing goes on.
    for _ in range(100):
        page.fill("#mention", "")
        page.type("#mention", "new yo")
        page.wait_for_timeout(300)
        if page.locator("#suggestions li").count():
            break
    page.keyboard.press("ArrowDown")
    assert page.get_attribute("#mention", "aria-expanded") == "true"
    active = page.get_attribute("#mention", "aria-activedescendant")
    assert page.get_attribute(f"#{active}", "aria-selected") == "true"
    page.keyboard.press("Enter")
    page.wait_for_selector(".candidate.linked")

    assert page.get_attribute("#mention", "aria-expanded") == "false"
    assert page.locator(".candidate.linked .tag").first.text_content() in ("GPE", "ORG")
    assert "%" in page.locator(".candidate.linked .probability").text_content()
    assert float(page.locator(".candidate.linked .fill").first.evaluate("bar => parseFloat(bar.style.inlineSize)")) > 10
    assert "probability" in page.locator("#status").text_content()
    page.click(".why summary")
    assert page.locator(".why").text_content().startswith("Whylinked")


def test_a_probability_is_rounded_as_at_the_command_line(watched: Watched, address: str) -> None:
    """The page and `pearl-qdrant link` show one figure for one link."""
    page = watched.open(address)
    values = [0.985, 0.215, 0.375, 0.5, 0.645]
    shown = page.evaluate("async values => values.map((await import('/page/modules/dom.js')).percent)", values)

    assert shown == [f"{float(f'{value:.2f}'):.0%}".replace("%", " %") for value in values]


def test_reasons_are_bars(watched: Watched, address: str) -> None:
    """What speaks for a link is a bar to the right, what speaks against it one to the left."""
    page = watched.open(address)
    link(page, "new yrok times")
    page.click(".why summary")
    assert page.get_by_role("button", name="Accept").count() == 0, "of a service that only reads"
    assert "Read-only" in page.locator("#writing").text_content()

    assert page.locator(".reason").count() > 2
    for row in page.locator(".reason").all():
        against, for_it = (one.bounding_box()["width"] for one in row.locator(".fill").all()[:2])
        is_negative = row.locator("code").first.text_content().startswith("-")
        assert (against > for_it) is is_negative or against == for_it == 0


def test_names_are_text_never_markup(watched: Watched, address: str) -> None:
    """An entity whose name is markup shows it as it is; nothing runs, and nothing is loaded."""
    page = watched.open(address)
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    page.select_option("#threshold", "0")
    link(page, "evil name")

    assert page.locator(".candidate h3", has_text="<img src=x onerror=alert(1)>").count() == 1
    assert page.locator(".description", has_text="<b>bold</b> & 'quoted'").count() == 1
    assert page.locator("main img, main b b").count() == 0


def test_mentions_are_marked_at_their_places(watched: Watched, address: str) -> None:
    """A passage with characters outside the basic plane has its marks on the right words; a mark shows candidates."""
    page = watched.open(address, "passage")
    page.fill("#passage", "\U0001f600\U0001f600 She read the NYTimes in the Big Apple.")
    page.select_option("#threshold", "0.3")
    page.click("#passage-form .primary")
    page.wait_for_selector(".mark")
    own = "mark => mark.firstChild.textContent"

    assert "NYTimes" in page.locator(".mark").evaluate_all(f"marks => marks.map({own})")
    mark = page.locator(".mark", has_text="NYTimes").first
    mark.focus()
    page.keyboard.press("Enter")
    assert mark.get_attribute("aria-pressed") == "true"
    assert page.locator(".detail .candidate").count() >= 1
    assert page.locator(".result tbody tr").count() == page.locator(".mark").count()


def test_a_column_is_reconciled_filtered_corrected_and_saved(watched: Watched, address: str, tmp_path: Path) -> None:
    """A CSV file gets ids and probabilities; doubtful rows are filtered, one is corrected, and the file is saved."""
    table = 'id;name\n1;NYTimes\n2;"Big Apple"\n3;\n4;zzyzx quux\n5;NYTimes\n'
    page = watched.open(address, "column")
    page.set_input_files("#file", {"name": "my names.csv", "mimeType": "text/csv", "buffer": table.encode()})
    page.wait_for_selector("#column-form:not([hidden])")
    assert page.locator("#column-about").text_content() == "my names.csv: 5 rows, 2 columns"
    assert page.input_value("#column") == "1"  # the column that is called name
    page.click("#column-start")
    page.wait_for_selector("table.answers tbody tr")

    assert page.locator("table.answers tbody tr").count() == 5
    page.fill("#sure", "100")
    page.click("label.chip:has-text('Doubtful')")
    doubtful = page.locator("table.answers tbody tr").count()
    assert 1 <= doubtful < 5
    page.click("label.chip:has-text('All')")
    page.locator("table.answers tbody select").first.select_option("")
    with page.expect_download() as saved:
        page.click("text=Download CSV")
    saved.value.save_as(tmp_path / "out.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text("utf-8"))))
    assert saved.value.suggested_filename == "my-names-linked.csv"
    assert [row["name"] for row in rows] == ["NYTimes", "Big Apple", "", "zzyzx quux", "NYTimes"]
    assert [row["decided_by"] for row in rows] == ["person", "linker", "", "linker", "linker"]
    assert (rows[0]["entity_id"], rows[4]["entity_id"]) == ("", "nyt")
    assert 0 < float(rows[4]["probability"]) <= 1


def test_the_column_that_looks_like_names_is_chosen(watched: Watched, address: str) -> None:
    """Where no header says which column has the names, it is neither one of numbers nor one of a few words."""
    rows = "order,status,customer,mail 1001,paid,Twilio,a@twilio.com 1002,paid,Björk,b@x.is 1003,open,3M,c@3m.com"
    table = rows.replace(" ", "\n")
    page = watched.open(address, "column")
    page.set_input_files("#file", {"name": "orders.csv", "mimeType": "text/csv", "buffer": table.encode()})
    page.wait_for_selector("#column-form:not([hidden])")

    assert page.input_value("#column") == "2"


def test_a_column_asks_for_labels_that_calibrate_reads(watched: Watched, address: str, tmp_path: Path) -> None:
    """The values that tell most are shown; what a person says of them is saved as pairs of mention and id."""
    page = watched.open(address, "column")
    rows = "\n".join(["name", "Nu York City", "York", "zzyzx quux", "New Yrok Tims"])
    page.set_input_files("#file", {"name": "n.csv", "mimeType": "text/csv", "buffer": rows.encode()})
    page.wait_for_selector("#column-form:not([hidden])")
    page.click("#column-start")
    page.wait_for_selector("table.answers tbody tr")
    page.click("label.chip:has-text('To label')")
    asked = [row.text_content() for row in page.locator("table.answers tbody th").all()]
    assert asked  # those that no rule decides
    assert set(asked) <= set(rows.splitlines())
    page.locator("button:has-text('Right')").first.click()
    page.locator("table.answers tbody select").last.select_option(index=1)
    with page.expect_download() as saved:
        page.click("text=Download labels")
    saved.value.save_as(tmp_path / "labels.tsv")
    labels = read_pairs(tmp_path / "labels.tsv")
    assert saved.value.suggested_filename == "n-labels.tsv"
    assert {one.mention for one in labels} == {asked[0], asked[-1]}
    assert watched.said == []


def ready(page: Any) -> None:
    """Wait until the page can be used, and let every candidate be linked."""
    page.wait_for_selector("#type-chips .chip")
    page.select_option("#threshold", "0")


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


def test_answers_are_accepted_and_rejected_where_writing_is_allowed(watched: Watched, start: Any) -> None:
    """With a key in a dialog, never in an address, a person accepts and rejects answers; the collection learns them,
    and a later load still knows. A refusal is said beside its button, which can be pressed again.
    """
    page = watched.page
    page.goto(start(allow_writing=True, api_keys=(SecretStr(KEY),)))
    page.fill("#key", "a wrong key")
    page.keyboard.press("Enter")
    page.wait_for_selector("#key-wrong:not([hidden])")
    page.fill("#key", KEY)
    page.keyboard.press("Enter")
    ready(page)
    link(page, "NYTimes")
    page.locator(".candidate", has_text="New York Post").get_by_role("button", name="Accept").click()
    page.wait_for_selector(".note:has-text('learn --undo')")
    assert "New York Post" in page.locator(".verdict").text_content()

    busy = {"error": "busy", "message": "Too much waits."}
    page.route("**/v1/reject", lambda route: route.fulfill(status=429, headers={"Retry-After": "1"}, json=busy))
    link(page, "heart attack")
    button = page.locator(".candidate.linked").get_by_role("button", name="Reject")
    assert button.get_attribute("aria-label") == "Reject: heart attack is not myocardial infarction"
    button.click()
    assert page.wait_for_selector(".problem.inline").text_content() == "Too much waits."
    assert learned(page, "heart attack") == []
    page.unroute("**/v1/reject")
    button.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".note:has-text('learn --undo')")

    assert [(one["entity_id"], one["rejected"]) for one in learned(page, "heart attack")] == [("mi", 1)]
    before = page.locator(".candidate", has_text="myocardial infarction").locator(".probability b").text_content()
    page.reload()
    ready(page)
    link(page, "heart attack")
    after = page.locator(".candidate", has_text="myocardial infarction").locator(".probability b").text_content()
    assert after == before
    assert not any(KEY in url for url in watched.asked)


def test_the_map_is_walked_by_keyboard(watched: Watched, address: str) -> None:
    """Arrow keys go from entity to entity and say their names; Enter links the name."""
    page = watched.open(address, "map")
    page.wait_for_selector("#legend .check")
    page.focus("#plot")
    page.keyboard.press("ArrowRight")
    first = page.locator("#map-selected h2").text_content()
    for key in ("ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown"):
        page.keyboard.press(key)
        if (second := page.locator("#map-selected h2").text_content()) != first:
            break
    assert first != second
    assert second.split(",")[0] in page.locator("#status").text_content()
    page.keyboard.press("Enter")
    page.wait_for_selector("#mention-result .verdict")
    assert page.input_value("#mention") == second


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_view_has_a_serious_accessibility_fault(browser: Any, address: str, axe: Path, scheme: str) -> None:
    """axe-core finds nothing serious in any view, with answers, in both themes and at a phone's width."""
    watched = Watched(browser, bypass_csp=True, color_scheme=scheme, viewport={"width": 390, "height": 844})
    page = watched.open(address)
    link(page, "NYTimes")
    page.click("nav a[href='#passage']")
    page.fill("#passage", "She read the NYTimes in the Big Apple.")
    page.click("#passage-form .primary")
    page.click(".mark >> nth=0")
    page.click("nav a[href='#column']")
    page.set_input_files("#file", {"name": "a.csv", "mimeType": "text/csv", "buffer": b"name\nNYTimes\nunicorn\n"})
    page.click("#column-start")
    page.wait_for_selector("table.answers tbody tr")
    page.add_script_tag(path=axe)
    faults = []
    for view in VIEWS:
        page.click(f"nav a[href='#{view}']")
        page.wait_for_selector(f"#view-{view}:not([hidden])")
        found = page.evaluate("() => axe.run({ resultTypes: ['violations'] })")
        faults += [
            f"{view}: {one['id']} ({one['impact']}) {node['target']} {node['failureSummary']}"
            for one in found["violations"]
            for node in one["nodes"]
            if one["impact"] in ("serious", "critical", "moderate")
        ]
        width = page.evaluate("() => [document.documentElement.scrollWidth, window.innerWidth]")
        assert width[0] <= width[1], f"{view} is wider than a phone"
    watched.context.close()
    assert faults == []


def test_examples_and_thresholds_are_those_of_the_collection(watched: Watched, address: str) -> None:
    """What may be tried is a name of the collection; the least probability that counts is a number, in each view."""
    page = watched.open(address)
    page.wait_for_selector(".examples button")
    names = {name for entity in ENTITIES for name in entity.names()}
    shown = page.locator(".examples button").all_text_contents()

    assert len(shown) == 5
    assert set(shown) - {"evil name", "<img src=x onerror=alert(1)>"} <= names
    assert page.get_attribute("#mention", "placeholder") == f"as in {shown[0]}"
    assert re.fullmatch(r"\d+ % \(of the collection\)", page.locator("#threshold option").first.text_content())
    page.click("nav a[href='#passage']")
    assert page.locator("#threshold option").first.text_content() == "50 % (default of passages)"
    assert page.locator("#theme").text_content() == "Colours: auto"


def test_a_nil_shows_the_candidates_that_may_be_meant(watched: Watched, address: str) -> None:
    """NIL has its reason in words; candidates below 1 % are folded away, but for the first, for who wants them."""
    page = watched.open(address)
    page.select_option("#threshold", "0.95")
    link(page, "zzyzx quux")
    verdict = page.locator(".verdict").text_content()
    assert "NIL" in verdict
    assert page.locator(".verdict.nil").text_content().endswith(".") or "candidate" in verdict
    shown = page.locator("#mention-result > .candidates > .candidate .probability b").all_text_contents()
    folded = page.locator("#mention-result > details.options .candidate")

    assert shown
    assert [text for text in shown[1:] if text == "< 1 %"] == []
    assert folded.count() > 0
    assert not folded.first.is_visible()
    page.click("#mention-result > details.options > summary")
    assert folded.first.is_visible()


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.xlsx", b"PK\x03\x04\x14\x00\x06\x00"),
        ("a.xls", b"\xd0\xcf\x11\xe0" + b"\0" * 100),
        ("a.pdf", b"%PDF-1.7\n1 0"),
    ],
)
def test_a_file_that_is_no_text_is_refused(watched: Watched, address: str, name: str, content: bytes) -> None:
    """A spreadsheet is not shown as a column of signs; the page says what to do with it."""
    page = watched.open(address, "column")
    page.set_input_files("#file", {"name": name, "mimeType": "application/octet-stream", "buffer": content})
    page.wait_for_selector("#column-result .problem")

    assert "Save it as CSV" in page.locator("#column-result .problem").text_content()
    assert page.locator("#column-form").is_hidden()


def drag(page: Any, selector: str, path: Path, *kinds: str) -> None:
    """Drag a file of the disk over an element, as the browser itself gets it from the desktop."""
    session = page.context.new_cdp_session(page)
    box = page.locator(selector).bounding_box()
    data = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
    place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
    for kind in kinds:
        session.send("Input.dispatchDragEvent", {"type": kind, **place, "data": data})
    session.detach()


def test_a_file_is_dropped_on_the_column_view(watched: Watched, address: str, tmp_path: Path) -> None:
    """A CSV file that is dropped on the field is read; one that misses the field changes nothing."""
    table = tmp_path / "dropped names.csv"
    table.write_text('id,name\n1,NYTimes\n2,"Big Apple"\n3,zzyzx quux\n', encoding="utf-8")
    page = watched.open(address, "column")
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


def test_filters_are_folded_on_a_phone(browser: Any, address: str) -> None:
    """On a phone, types and least probability show when they are asked for; the question is on the first half."""
    watched = Watched(browser, viewport={"width": 390, "height": 844})
    page = watched.open(address)

    assert not page.locator("#threshold").is_visible()
    assert page.locator("#mention").bounding_box()["y"] < 844 / 2
    page.click("#filters-open")
    assert page.get_attribute("#filters-open", "aria-expanded") == "true"
    assert page.locator("#threshold").is_visible()
    assert page.locator("#type-chips").is_visible()
    page.set_viewport_size({"width": 1280, "height": 800})
    assert not page.locator("#filters-open").is_visible()
    assert page.locator("#threshold").is_visible()
    watched.context.close()


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
