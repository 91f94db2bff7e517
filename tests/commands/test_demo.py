"""`pearl-qdrant demo`: what it shows, what it asks, what it leaves."""

from __future__ import annotations

import io
import sys
from contextlib import closing
from pathlib import Path

import pytest
from cli_runner import Run
from linker_base import ENTITIES, fill

from ingest.load_base import load_sample
from pearl_qdrant.cli import main
from pearl_qdrant.cli.terminal import ClosedInput
from pearl_qdrant.errors import StoreError
from pearl_qdrant.store import open_store

MOST_LINES = 40


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def filled(run: Run, tmp_path: Path, model: Path) -> Run:
    """The command line over a store that has a collection `demo` already."""
    fill(tmp_path / "store", "demo", str(model), ENTITIES, is_loaded=True)
    return run


def test_a_collection_that_is_there_is_shown_as_it_is(filled: Run, tmp_path: Path) -> None:
    """A second run loads nothing, neither does one over a base of my own; without a terminal nothing is asked."""
    outcome = filled("demo")

    assert outcome.status == 0, outcome.err
    assert outcome.err.startswith("Loading the sample base, unless it is there")
    assert "7 entities with 16 names" in outcome.out
    assert "$ pearl-qdrant link NYTimes 'hepatitis Z' --limit 1 --collection demo\n" in outcome.out
    assert "NYTimes  ->  The New York Times  [nyt]" in outcome.out
    assert "mention:" not in outcome.err
    store = str(tmp_path / "store")
    assert load_sample(store=store).names == 16
    assert f"--collection demo --store {store}\n" in filled("demo", "--store", store).out, "as it can be typed"


def test_a_base_of_mine_that_cannot_be_used_stays(tmp_path: Path, model: Path) -> None:
    """The sample base is not loaded into a collection whose load of another base was stopped."""
    place = tmp_path / "store"
    fill(place, "demo", str(model), ENTITIES)
    with closing(open_store(place)) as store:
        collection = store.open("demo")
        collection.write_manifest(collection.manifest.model_copy(update={"state": "loading", "kb_version": "mine"}))
    before = (place / "demo" / "manifest.json").read_bytes()

    with pytest.raises(StoreError, match="Or load the sample base under another name") as raised:
        load_sample(store=str(place))
    assert "collections delete demo" in str(raised.value)
    assert "demo --store FOLDER" in str(raised.value)
    assert ".." not in str(raised.value)
    assert (place / "demo" / "manifest.json").read_bytes() == before


TYPED = {"empty line": Terminal("Big Apple\n\n"), "Ctrl-D": Terminal("Big Apple\n"), "closed": ClosedInput()}


@pytest.mark.parametrize("end", ["empty line", pytest.param("Ctrl-D", marks=pytest.mark.slow), "closed"])
def test_at_a_terminal_it_links_what_i_type(filled: Run, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """A mention gets its link and why, until an empty line or the end of the input; one that is closed is not asked."""
    shown = Terminal()
    for name, stands in (("argv", ["pearl-qdrant", "demo"]), ("stdin", TYPED[end]), ("stdout", shown)):
        monkeypatch.setattr(sys, name, stands)
    with pytest.raises(SystemExit) as stop:
        main()

    assert not stop.value.code
    before, asked, answer = shown.getvalue().partition("Link mentions of your own")
    assert "NYTimes  ->  The New York Times  [nyt]" in before
    assert bool(asked) is (end != "closed")
    assert not asked or "Big Apple  ->  New York  [nyc]" in answer
    assert not asked or "a name of this entity alone" in answer


@pytest.mark.slow
def test_the_demo_loads_the_sample_base_and_fits_a_screen(run: Run) -> None:
    """A first run shows an alias, NIL for two reasons, a slip with its reasons and a text, in forty lines."""
    outcome = run("demo")

    assert outcome.status == 0, outcome.err
    assert len((outcome.out + outcome.err).splitlines()) <= MOST_LINES
    assert "1,227 entities with 4,124 names" in outcome.out
    for line in (
        "NYTimes  ->  The New York Times  [the-new-york-times]",
        "hepatitis Z  ->  NIL (below threshold)",
        "Giants  ->  NIL (ambiguous)",
        "heart atack  ->  myocardial infarction",
        "(MI)",
    ):
        assert line in outcome.out
