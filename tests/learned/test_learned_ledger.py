"""The ledger of learned names: which batches count."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from pearl_qdrant.errors import LearningError
from pearl_qdrant.linking.learned.ledger import LearnedRow, Ledger, parse_ledger
from pearl_qdrant.linking.learned.names import LearnedNames


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
    assert ledger.first_damaged is None


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("n_bytes", [1, 8, 40])
def test_a_torn_last_line_is_told_from_damage(n_bytes: int, is_last: bool) -> None:
    """A writer that died left a torn line at the end of what it wrote, whether others wrote after it or not."""
    lines = batch("a", 1, ("x", "Q1", 1), ("y", "Q1", 1))
    others = [] if is_last else batch("b", 2, ("x", "Q2", 1))
    left = [parse([*lines[:at], lines[at][:-1][:n_bytes]], others) for at in range(len(lines))]

    assert [ledger.first_damaged for ledger in left] == [None] * 4
    assert [ledger.n_unreadable for ledger in left] == [1, 2, 3, 4]


@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_a_damaged_line_in_the_middle_is_named(at: int) -> None:
    """A line that somebody changed, or that is lost, is said with its number: nobody who dies leaves that."""
    first = batch("a", 1, ("x", "Q1", 1))
    lines = batch("b", 2, ("x", "Q1", 1), ("y", "Q1", 1))
    damaged = [*lines[: at - 1], b"\x00" * 10, *lines[at:]]
    lost = [*lines[: at - 1], *lines[at:]]

    assert parse(first, damaged, batch("c", 3)).first_damaged == (3 + at if at < 4 else None)
    assert parse(first, lost, batch("c", 3)).first_damaged == (6 if at < 4 else None)


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


def test_damage_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """The log names the collection, the first damaged line and how many do not count; once, not for each linker."""
    cut = batch("a", 1, ("x", "Q1", 1), ("y", "Q1", 1))
    cut[1] = b"[rubbish"

    class Damaged:
        name = "base"
        manifest = SimpleNamespace(kb="base")

        def read_ledger(self) -> list[bytes]:
            return cut

    for _ in range(2):
        LearnedNames("store", [Damaged()])  # type: ignore[list-item]

    assert caplog.text.count("damaged from line 2 of the ledger") == 1
    assert "so 4 lines do not count" in caplog.text
