"""The ledger of learned names: which batches count."""

from __future__ import annotations

import msgspec
import pytest

from pearl_qdrant.errors import LearningError
from pearl_qdrant.linking.learned.ledger import LearnedRow, Ledger, parse_ledger


def batch(key: str, number: int, *rows: tuple[str, str | None, int], kb: str = "base", **head: object) -> list[bytes]:
    """The lines of a batch."""
    lines: list[object] = [
        {"batch": key, "format": 1, "number": number, "kind": "learn", "time": "t", "kb": kb, **head}
    ]
    lines += [list(row) for row in rows]
    lines.append({"end": key, "rows": len(rows)})
    return [msgspec.json.encode(line) for line in lines]


def undo(key: str, number: int, of: str) -> list[bytes]:
    """The lines of an undo."""
    return batch(key, number, kind="undo", undoes=1, undoes_key=of)


def parse(*batches: list[bytes]) -> Ledger:
    """The ledger of these batches."""
    return parse_ledger([line for one in batches for line in one], "base", "base")


def effective(ledger: Ledger) -> list[str]:
    """Keys of the batches that count."""
    return [one.key for one, _ in ledger.effective()]


def test_a_batch_comes_back_with_its_rows() -> None:
    """What was learned is read back, with its counts and in any script."""
    ledger = parse(batch("a", 1, ("Zürich \u2028", "Q72", 2), ("🦄", None, 1)))

    assert [rows for _, rows in ledger.effective()] == [
        [LearnedRow("Zürich \u2028", "Q72", 2), LearnedRow("🦄", None, 1)]
    ]
    found = ledger.batches[0]
    assert (found.mentions, found.names, found.nil_mentions, ledger.next_number) == (3, 2, 1, 2)


@pytest.mark.parametrize("n_lines", [1, 2, 3])
def test_a_batch_without_its_end_does_not_count(n_lines: int) -> None:
    """Of a batch whose writer died, nothing counts; the next batch is not affected."""
    torn = batch("a", 1, ("x", "Q1", 1), ("y", "Q1", 1))[:n_lines]
    ledger = parse(torn, batch("b", 2, ("x", "Q2", 1)))

    assert effective(ledger) == ["b"]
    assert ledger.n_unreadable == n_lines


def test_a_torn_line_or_a_lost_row_spoils_its_own_batch_alone() -> None:
    """A line that was cut, or that is missing, takes its batch with it, and no other."""
    cut = batch("b", 2, ("x", "Q1", 1), ("y", "Q1", 1))
    cut[1] = cut[1][:5]
    lost = batch("c", 3, ("x", "Q1", 1), ("y", "Q1", 1))
    del lost[1]

    assert effective(parse(batch("a", 1, ("x", "Q1", 1)), cut, lost, batch("d", 4, ("x", "Q1", 1)))) == ["a", "d"]


def test_rubbish_is_counted_and_left_out() -> None:
    """Lines that no program of ours wrote do no harm."""
    ledger = parse([b"rubbish", b"{}", b"[1", b"\xff", b'{"end":"z","rows":0}', b""], batch("a", 1, ("x", "Q1", 1)))

    assert effective(ledger) == ["a"]
    assert ledger.n_unreadable == 5


def test_a_later_format_is_an_error() -> None:
    """A ledger of a later release is not read by half: the error says to update."""
    with pytest.raises(LearningError, match=r"later version of pearl-qdrant \(format 2.*Update"):
        parse(batch("a", 1, format=2))


def test_an_undone_batch_does_not_count_until_the_undo_is_undone() -> None:
    """An undo can be undone, and that too."""
    first, second, third = batch("a", 1, ("x", "Q1", 1)), undo("b", 2, "a"), undo("c", 3, "b")

    assert effective(parse(first, second)) == []
    assert effective(parse(first, second, third)) == ["a"]
    assert effective(parse(first, second, third, undo("d", 4, "c"))) == []
    assert effective(parse(third, second, first)) == ["a"], "a server may give them in another order"


def test_a_batch_of_another_base_does_not_count() -> None:
    """If another base is loaded under the name of the collection, its ids mean something else."""
    assert effective(parse(batch("a", 1, ("x", "Q1", 1), kb="other"))) == []


def test_batches_that_share_a_number_are_told_apart_by_their_keys() -> None:
    """Two processes that learned at the same time are both kept, and the error names the keys."""
    ledger = parse(batch("a", 1, ("x", "Q1", 1)), batch("b", 1, ("x", "Q2", 1)))

    assert effective(ledger) == ["a", "b"]
    with pytest.raises(LearningError, match=r"several batches with the number 1,.*a, b"):
        ledger.find(1, "base")
    assert ledger.find_key("b", "base").key == "b"


@pytest.mark.parametrize("find", [lambda one: one.find(7, "base"), lambda one: one.find_key("zz", "base")])
def test_a_batch_that_is_not_there_is_an_error(find: object) -> None:
    """The error says which batches there are."""
    with pytest.raises(LearningError, match="no batch"):
        find(parse(batch("a", 1)))  # type: ignore[operator]
    with pytest.raises(LearningError, match="no batch"):
        find(parse())  # type: ignore[operator]
