"""The command `pearl-qdrant learn`."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runner import Run


@pytest.fixture(autouse=True)
def labelled(tmp_path: Path, store_path: Path) -> Path:
    """A file of labelled mentions, beside a store with a collection."""
    path = tmp_path / "labelled.tsv"
    path.write_text("mention\tid\nGotham\tnyc\nGotham\tnyc\nfoo\tnobody\n", encoding="utf-8")
    return path


def test_learn_list_and_undo(run: Run, labelled: Path) -> None:
    """I learn a file, see it in the list, and undo it."""
    learned = run("learn", "--labelled", str(labelled), "--skip-unknown", "--add-aliases", "2")
    assert learned.status == 0
    assert "batch 1: 2 mentions, 0 of them without an entity; 1 distinct; names added to entities: 1" in learned.err
    assert "left out: 1 mentions of 1 entities that base does not have, e.g. nobody" in learned.err
    assert run("link", "Gotham", "--json").lines()[0]["entity_id"] == "nyc"
    listed = run("learn", "--list")
    assert "learn         2      1    0        1  counts  labelled.tsv" in listed.out
    assert "Undid batch 1; this is batch 2" in run("learn", "--undo", "1").err

    assert [one["is_effective"] for one in run("learn", "--list", "--json").lines()] == [False, True]
    assert "undo of 1" in run("learn", "--list").out


def test_json_has_what_was_learned(run: Run, labelled: Path) -> None:
    """`--json` prints the batch; a link has what was learned of it, others have no such field."""
    record = run("learn", "--labelled", str(labelled), "--skip-unknown", "--json").lines()[0]
    links = run("link", "Gotham", "NYTimes", "--json").lines()

    assert (record["mentions"], record["skipped"], record["unknown_ids"]) == (2, 1, ["nobody"])
    expected = {"entity_id": "nyc", "kb": "base", "as_written": 2, "other_forms": 0, "rejected": 0}
    assert links[0]["learned"] == [expected]
    assert "learned" not in links[1]
    assert run("learn", "--undo", "1", "--json").lines()[0]["undoes"] == 1


def test_errors_name_the_option(run: Run, labelled: Path) -> None:
    """An unknown id, or a file that was learned already, names the option that helps."""
    unknown = run("learn", "--labelled", str(labelled))
    assert unknown.status == 1
    assert "labelled.tsv:4: entity id 'nobody' is not in" in unknown.err
    assert "--skip-unknown" in unknown.err
    run("learn", "--labelled", str(labelled), "--skip-unknown")
    again = run("learn", "--labelled", str(labelled), "--skip-unknown")
    assert "learned these very mentions already" in again.err
    assert "--again" in again.err
    assert "no batch 7" in run("learn", "--undo", "7").err
    assert "no batch with the key zz" in run("learn", "--undo", "zz").err


def test_options_that_do_not_go_together_and_nothing_learned(run: Run) -> None:
    """One of learn, list and undo is done at a time. An empty list says so on stderr."""
    for words in ((), ("--list", "--undo", "1"), ("--list", "--again"), ("--undo", "1", "--add-aliases", "2")):
        assert run("learn", *words).status == 2
    listed = run("learn", "--list")

    assert (listed.status, listed.out) == (0, "")
    assert "base has learned nothing yet" in listed.err
