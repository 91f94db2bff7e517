"""`link --report`: one page on the links of a file."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from cli_runner import Run
from linker_base import ENTITIES, fill

from pearl_qdrant import Candidate, EntityLinker, Link, NilReason
from pearl_qdrant.report import N_DOUBTFUL, LinkReport, write_report

EVIL = "<script>alert(1)</script><img src=https://x.test/a onerror=alert(1)>\u202e\"'&"


def link(mention: str, probability: float, reason: NilReason | None = None, **named: tuple[str, ...]) -> Link:
    """A link of a mention to its only candidate."""
    best = Candidate(f"id-{mention}", "kb", f"Name of {mention}", mention, probability=probability, **named)
    entity = None if reason else best.entity_id
    name = None if reason else best.canonical_name
    return Link(mention, entity, name, None if reason else probability, reason, (best,), None if reason else "kb")


LINKS = [
    link("sure", 0.98, types=("ORG",)),
    link("sure", 0.98, types=("ORG",)),
    link("near", 0.55, types=("GPE", "LOC")),
    link("nearer", 0.48, NilReason.BELOW_THRESHOLD),
    link("twins", 0.49, NilReason.AMBIGUOUS),
    Link("n/a", None, None, None, NilReason.NO_NAME),
    Link(" ", None, None, None, NilReason.NO_CANDIDATES),
]


class Tags(HTMLParser):
    """Collects the elements and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_it_counts_links_reasons_and_types(tmp_path: Path) -> None:
    """Shares are of the mentions that are not blank; an entity with two types counts for both."""
    report = write_report(LINKS, tmp_path / "out.html", title="mentions.txt")

    assert (report.mentions, report.blank, report.linked) == (6, 1, 3)
    assert report.nil == {NilReason.BELOW_THRESHOLD: 1, NilReason.AMBIGUOUS: 1, NilReason.NO_NAME: 1}
    assert report.types == {"ORG": 2, "GPE": 1, "LOC": 1}
    page = (tmp_path / "out.html").read_text("utf-8")
    assert "Links of <bdi>mentions.txt</bdi>" in page
    assert "6 mentions, 1 blank;" in page
    assert page.count("50.0%") >= 2
    assert sum(report.probabilities[50:]) == report.linked  # the curve meets the threshold where the links are
    assert sum(report.probabilities) == 4  # two are NIL whatever the threshold
    write_report([], tmp_path / "none.html")
    assert "0 mentions" in (tmp_path / "none.html").read_text("utf-8")


def test_doubtful_mentions_come_first_and_once() -> None:
    """An ambiguous mention is the most doubtful, then those nearest to the threshold; long lists keep the same ones."""
    report = LinkReport(threshold=0.5)
    for one in LINKS:
        report.add(one)
    assert [one.mention for one in report.doubtful()] == ["twins", "nearer", "near", "sure"]

    for i in range(20 * N_DOUBTFUL):
        report.add(link(f"mention {i}", 0.9))
    assert len(report.doubtful()) == N_DOUBTFUL
    assert [one.mention for one in report.doubtful()][:3] == ["twins", "nearer", "near"]


def test_names_cannot_change_the_page(tmp_path: Path) -> None:
    """Whatever mentions, names, ids and types are, the page has the same elements, no script and no address."""
    parts = {"types": (EVIL,)}
    for name, text in (("plain", "plain"), ("evil", EVIL)):
        title = text
        links = [link(text, 0.9, **(parts if name == "evil" else {"types": ("ORG",)})), link(f"{text}\ud800", 0.5)]
        write_report(links, tmp_path / f"{name}.html", title=title)
    plain, evil = (Tags((tmp_path / f"{name}.html").read_text("utf-8")) for name in ("plain", "evil"))

    assert evil.found == plain.found
    assert not {"script", "img", "link", "iframe"} & {tag for tag, _ in evil.found}
    assert not any(set(given) & {"src", "href", "srcset", "onerror"} for _, given in evil.found)
    style = (tmp_path / "plain.html").read_text("utf-8").partition("</style>")[0]
    assert re.findall(r"url\(|@import|https?:", style) == []


def test_the_command_writes_what_the_call_writes(run: Run, tmp_path: Path, model: Path) -> None:
    """`link --file --report` prints links as ever, and its page is that of `write_report`."""
    fill(tmp_path / "store", "base", str(model), ENTITIES, is_loaded=True)
    mentions = ["NYTimes", "", "New York", "n/a"]
    file, out = tmp_path / "mentions.txt", tmp_path / "out.html"
    file.write_text("".join(f"{one}\n" for one in mentions), encoding="utf-8")

    outcome = run("link", "--file", str(file), "--report", str(out), "--json")

    assert outcome.status == 0, outcome.err
    assert [line["mention"] for line in outcome.lines()] == mentions
    with EntityLinker.open("base", store=str(tmp_path / "store"), read_only=True) as linker:
        write_report(linker.link_batch(mentions), tmp_path / "call.html", title="mentions.txt")
    assert out.read_text("utf-8") == (tmp_path / "call.html").read_text("utf-8")


@pytest.mark.parametrize("words", [("x", "--report", "out.html"), ("--file", "-", "--report", "none/out.html")])
def test_a_report_that_cannot_be_is_refused_at_once(run: Run, words: tuple[str, ...]) -> None:
    """It is of a file, and its folder is there, before anything is linked."""
    outcome = run("link", *words)

    assert outcome.status == 2
    assert "report" in outcome.err
