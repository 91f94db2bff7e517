"""Rows that share an id and have different names: they become one entity, and the load says so."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from cli_runner import Run

from ingest.base.scan import scan
from ingest.formats import open_reader
from pearl_qdrant import EntityLinker, load_base

BASE = "id\tname\n1\tJohn Smith\n1\tMary Jones\n2\tRome\n3\tOslo\n2\tParis\n"
FIRST = "base.tsv:3: id '1' is 'John Smith' in an earlier row, 'Mary Jones' here"
SECOND = "base.tsv:6: id '2' is 'Rome' in an earlier row, 'Paris' here"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A base in which two ids are used twice, once in adjacent rows and once in scattered ones."""
    path = tmp_path / "base.tsv"
    path.write_text(BASE, encoding="utf-8")
    return path


@pytest.mark.parametrize("options", [(), ("--dry-run",), ("--partitions", "2")], ids=["load", "dry run", "in parts"])
def test_a_load_says_which_rows_use_an_id_twice(run: Run, base: Path, model: Path, options: tuple[str, ...]) -> None:
    """Two people under one id are said with both names and the row, whichever way the base is loaded."""
    outcome = run("ingest", str(base), "--model", str(model), "--json", *options)
    counts = json.loads(outcome.out)

    assert outcome.status == 0
    assert "warning: 2 rows have the id of an earlier row and another name" in outcome.err
    assert FIRST in outcome.err
    assert SECOND in outcome.err
    assert (counts["conflicting_names"], len(counts["conflicts"]), counts["entities"]) == (2, 2, 3)


def test_an_update_says_it_too(run: Run, base: Path, model: Path) -> None:
    """A newer release in which an id is used twice is updated, and the rows are said."""
    base.write_text("id\tname\n1\tJohn Smith\n2\tRome\n3\tOslo\n", encoding="utf-8")
    before = run("ingest", str(base), "--model", str(model))
    base.write_text(BASE, encoding="utf-8")
    after = run("ingest", str(base), "--model", str(model), "--update", "--yes")

    assert "earlier row" not in before.err
    assert FIRST in after.err
    assert SECOND in after.err


def test_the_results_in_python_have_the_rows(base: Path, model: Path, tmp_path: Path) -> None:
    """A program that loads or updates a base finds the rows in the result."""
    loaded = load_base(base, "base", store=str(tmp_path / "store"), model=model)
    updated = load_base(base, "base", store=str(tmp_path / "store"), model=model, update=True)

    assert [(one.line, one.first, one.name) for one in loaded.report.conflicts] == [
        (3, "John Smith", "Mary Jones"),
        (6, "Rome", "Paris"),
    ]
    assert updated.report.conflicting_names == 2


def test_few_of_many_rows_are_shown(tmp_path: Path) -> None:
    """Of many such rows the first five are shown, and no more of the base is read again for them."""
    path = tmp_path / "many.tsv"
    path.write_text("".join(f"E{i % 1000}\tname {i}\n" for i in range(3000)), encoding="utf-8")
    with open_reader([path]) as reader:
        report = scan(reader).report

    assert report.conflicting_names == 2000
    assert [one.line for one in report.conflicts] == [1001, 1002, 1003, 1004, 1005]


def test_a_table_of_synonyms_with_one_canonical_name_has_no_conflict(run: Run, tmp_path: Path) -> None:
    """Rows of one id with the same canonical name are no conflict."""
    path = tmp_path / "base.tsv"
    path.write_text("id\tname\tcanonical_name\n1\tflu\tinfluenza\n1\tgrippe\tinfluenza\n", encoding="utf-8")
    outcome = run("ingest", str(path), "--dry-run", "--json")

    assert json.loads(outcome.out)["conflicting_names"] == 0
    assert "earlier row" not in outcome.err


def test_a_collection_built_from_records_says_it_too(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Records of one id with different names are logged with both."""
    rows = [{"id": 1, "name": "John Smith"}, {"id": 1, "name": "Mary Jones"}, {"id": 2, "name": "Rome"}]
    with caplog.at_level(logging.WARNING), EntityLinker.build(rows, model=model):
        pass

    assert "item 1: id '1' is 'John Smith' in an earlier item, 'Mary Jones' here" in caplog.text
