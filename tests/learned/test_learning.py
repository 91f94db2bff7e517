"""The ledger of learned names: which batches count; learning labelled mentions, listing, undoing; on a server, too."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from linker_base import ENTITIES, fill_server
from qdrant_double import QdrantDouble
from qdrant_double_http import Fault

from pearl_qdrant import EntityLinker
from pearl_qdrant.errors import LearningError, StoreFullError
from pearl_qdrant.linking.calibration import CalibrationData, Label
from pearl_qdrant.linking.learned import learned_batches
from pearl_qdrant.linking.learned.ledger import LearnedRow, Ledger, append_batch, parse_ledger, read_ledger
from pearl_qdrant.linking.learned.names import LearnedNames
from pearl_qdrant.store import open_store, verify_collection
from pearl_qdrant.store.edge.content import LEDGER_FILE


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


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("n_bytes", [1, 8, 40])
def test_a_torn_last_line_is_told_from_damage(n_bytes: int, is_last: bool) -> None:
    """Of a batch whose writer died nothing counts. It left a torn line at the end of what it wrote, whether others
    wrote after it or not.
    """
    lines = batch("a", 1, ("x", "Q1", 1), ("y", "Q1", 1))
    others = [] if is_last else batch("b", 2, ("x", "Q2", 1))
    left = [parse([*lines[:at], lines[at][:-1][:n_bytes]], others) for at in range(len(lines))]

    assert [effective(ledger) for ledger in left] == [[] if is_last else ["b"]] * 4
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


def test_an_undone_batch_does_not_count_until_the_undo_is_undone() -> None:
    """An undo can be undone, and that too. If another base has the name of the collection, its batches do not count."""
    first, second, third = batch("a", 1, ("x", "Q1", 1)), undo("b", 2, "a"), undo("c", 3, "b")

    assert effective(parse(first, second)) == []
    assert effective(parse(first, second, third)) == ["a"]
    assert effective(parse(first, second, third, undo("d", 4, "c"))) == []
    assert effective(parse(third, second, first)) == ["a"], "a server may give them in another order"
    assert effective(parse(batch("a", 1, ("x", "Q1", 1), kb="other"))) == []


def test_batches_that_share_a_number_are_told_apart_by_their_keys() -> None:
    """Two processes that learned at the same time are both kept; the error names the keys, or that there is none."""
    ledger = parse(batch("a", 1, ("x", "Q1", 1)), batch("b", 1, ("x", "Q2", 1)))

    assert effective(ledger) == ["a", "b"]
    with pytest.raises(LearningError, match=r"several batches with the number 1,.*a, b"):
        ledger.find(1, "base")
    assert ledger.find("b", "base").key == "b"
    for one in (ledger, parse()):
        for wanted in (7, "zz"):
            with pytest.raises(LearningError, match="no batch"):
                one.find(wanted, "base")


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


PAIRS = [("Gotham", "nyc"), ("Gotham", "nyc"), ("the paper", "nyt"), ("he", None)]


def test_a_file_becomes_a_batch_with_its_counts(tmp_path: Path, linker: EntityLinker) -> None:
    """The batch says where it is from, and how many mentions and names it has. The list needs no model."""
    path = tmp_path / "labelled.tsv"
    path.write_text("".join(f"{mention}\t{key or 'NIL'}\n" for mention, key in PAIRS), encoding="utf-8")
    batch = linker.learn(path).batch

    assert (batch.number, batch.kind, batch.source) == (1, "learn", "labelled.tsv")
    assert (batch.mentions, batch.names, batch.nil_mentions) == (4, 3, 1)
    assert linker.link("Gotham").entity_id == "nyc"
    assert linker.link("he").entity_id is None
    assert linker.learned_batches() == (batch,)
    linker.close()
    assert learned_batches("base", store=str(tmp_path / "store")) == (batch,)


def test_unknown_ids_are_an_error_or_left_out(tmp_path: Path, linker: EntityLinker) -> None:
    """The error names the first line; with `skip_unknown` the others are learned, and what is left out is said."""
    path = tmp_path / "labelled.tsv"
    path.write_text("Gotham\tnyc\nfoo\tx2\nbar\tx1\nbar\tx1\n", encoding="utf-8")
    with pytest.raises(LearningError, match=r"labelled\.tsv:2: entity id 'x2' is not in collection 'base' \(2 unknown"):
        linker.learn(path)
    assert linker.learned_batches() == ()
    learned = linker.learn(path, skip_unknown=True)

    assert (learned.skipped, learned.unknown_ids, learned.batch.mentions) == (3, ("x1", "x2"), 1)
    with pytest.raises(LearningError, match="no labelled mention"):
        linker.learn([("foo", "x2")], skip_unknown=True)


def test_a_ledger_that_was_cut_or_removed_is_said(tmp_path: Path, linker: EntityLinker) -> None:
    """Opening the base and verifying it say that learned names are gone, also after an edit, until some are learned."""
    store, ledger = str(tmp_path / "store"), tmp_path / "store" / "base" / LEDGER_FILE
    path = tmp_path / "labelled.tsv"
    path.write_text("Gotham\tnyc\n", encoding="utf-8")
    linker.learn(path)
    linker.close()
    assert verify_collection("base", store=store).problems == ()
    whole = ledger.read_bytes()

    def said() -> list[str]:
        with EntityLinker.open("base", store=store) as opened:
            return [*opened.warnings, *(one.message for one in verify_collection("base", store=store).problems)]

    for n_left in (None, "pipe", 0, 40):
        ledger.unlink()
        if n_left == "pipe":
            os.mkfifo(ledger)
        elif n_left is not None:
            ledger.write_bytes(whole[:n_left])
        has = f"has {n_left if isinstance(n_left, int) else 0} of {len(whole):,} bytes"
        lost = f"{has}, so that names that it learned are gone. Copy that file back"
        assert [lost in one for one in said()] == [True, True], n_left
        ledger.touch()
    with EntityLinker.open("base", store=store) as opened:
        opened.delete(["nyc"])
    assert [lost in one for one in said() if "learned" in one] == [True, True]
    ledger.write_bytes(whole)
    assert said() == []
    ledger.unlink()
    with EntityLinker.open("base", store=store) as opened:
        path.write_text("Gotham\tNIL\n", encoding="utf-8")
        opened.learn(path)
    assert said() == []


def test_the_same_mentions_are_not_learned_twice_by_accident(linker: EntityLinker) -> None:
    """Learning a file again is refused, unless it is wanted or its batch was undone."""
    linker.learn(PAIRS)
    with pytest.raises(LearningError, match="learned these very mentions already: batch 1") as error:
        linker.learn(reversed(PAIRS))
    assert error.value.option == "again"
    assert linker.learn(PAIRS, again=True).batch.number == 2
    linker.undo_learned(1)
    linker.undo_learned(2)

    assert linker.learn(PAIRS).batch.number == 5


@pytest.mark.parametrize(
    "labelled, message",
    [
        ([], "no labelled mention"),
        (["ab"], "Labelled mention 1 is 'ab'"),
        ([("a", "nyc"), ("a", "nyc", "x")], "Labelled mention 2 is"),
        ([("a", 3)], "entity id of labelled mention 1 is 3"),
    ],
)
def test_pairs_that_are_none_are_errors(linker: EntityLinker, labelled: list[tuple[str, str]], message: str) -> None:
    """The error says which of the pairs is wrong."""
    with pytest.raises(LearningError, match=message):
        linker.learn(labelled)


def test_an_undo_restores_the_answers(linker: EntityLinker) -> None:
    """After an undo the linker answers as if it had never learned; the undo is listed."""
    before = list(linker.link_batch(["Gotham", "he", "New York"]))
    linker.learn(PAIRS)
    linker.reject("New York", "nyc")
    undone = linker.undo_learned(1)
    linker.undo_learned(2)

    assert list(linker.link_batch(["Gotham", "he", "New York"])) == before
    assert (undone.kind, undone.undoes, undone.number) == ("undo", 1, 3)
    assert [one.is_effective for one in linker.learned_batches()] == [False, False, True, True]
    with pytest.raises(LearningError, match="undone already, by batch 3"):
        linker.undo_learned(1)
    with pytest.raises(LearningError, match=r"no batch 9 \(there are: 1 to 4\)"):
        linker.undo_learned(9)
    linker.undo_learned(undone.key)
    assert linker.link("Gotham").entity_id == "nyc"


def test_a_full_disk_leaves_nothing_half_learned(linker: EntityLinker, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the ledger cannot be written, the linker answers as before, and learns later."""

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("pearl_qdrant.store.edge.content.os.fsync", full)
        with pytest.raises(StoreFullError):
            linker.learn(PAIRS)
        with pytest.raises(StoreFullError):
            linker.accept("Gotham", "nyc")
    assert linker.link("Gotham").learned == ()

    assert linker.learn(PAIRS).batch.number == 1


def test_a_ledger_of_a_later_version_is_an_error_on_opening(store_path: Path) -> None:
    """A linker does not open with half of what was learned."""
    line = '{"batch":"a","format":9,"number":1,"kind":"learn","time":"t","kb":"base"}\n'
    (store_path / "base" / LEDGER_FILE).write_text(line, encoding="utf-8")
    with pytest.raises(LearningError, match="later version"):
        EntityLinker.open("base", store=str(store_path))


def test_threads_that_accept_at_once_are_all_counted(linker: EntityLinker) -> None:
    """Each accept of each thread is a batch of its own, and counts."""
    threads = [threading.Thread(target=lambda: [linker.accept("Gotham", "nyc") for _ in range(10)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [one.number for one in linker.learned_batches()] == list(range(1, 41))
    assert linker.link("Gotham").learned[0].as_written == 40


def test_calibrate_takes_what_was_learned_as_labels(store_path: Path) -> None:
    """Learned and accepted mentions are labels, rejected and undone ones and deleted entities are not."""
    with EntityLinker.open("base", store=str(store_path)) as linker:
        linker.learn(PAIRS)
        linker.accept("The Big One", "nyc")
        linker.accept("deleted", "horse")
        linker.reject("rejected", "nyc")
        linker.undo_learned(linker.accept("undone", "nyc").number)
        linker.delete(["horse"])
    store = open_store(store_path)
    labels = CalibrationData([Label("given", "mi")], learned=True).read(store.open("base"))
    store.close()

    assert [(one.mention, one.entity_id) for one in labels or ()] == [
        ("given", "mi"),
        ("Gotham", "nyc"),
        ("the paper", "nyt"),
        ("he", None),
        ("The Big One", "nyc"),
    ]


@pytest.fixture
def server(model: Path) -> Iterator[QdrantDouble]:
    """A server with the collection `base`."""
    with QdrantDouble() as double:
        fill_server(double.url, "base", str(model), ENTITIES)
        yield double


def test_a_server_learns_and_forgets(server: QdrantDouble) -> None:
    """Learning, listing and undoing work as in a folder, and the ledger is no collection in the list."""
    with EntityLinker.open("base", store=server.url) as linker:
        linker.learn([("Gotham", "nyc")] * 3, add_aliases=2)
        assert linker.link("Gotham").entity_id == "nyc"
    with EntityLinker.open("base", store=server.url) as again:
        assert again.link("GOTHAM").learned[0].other_forms == 3
        again.undo_learned(1)
        assert again.link("Gotham").learned == ()
        assert "Gotham" not in again.entity("nyc").aliases
    assert len(learned_batches("base", store=server.url)) == 2
    store = open_store(server.url)
    assert store.collections() == ["base"]
    store.close()


def test_two_processes_that_learn_at_once_are_both_kept(server: QdrantDouble) -> None:
    """Both saw the same ledger and took the same number; both count, and each can be undone by its key."""
    first, second = open_store(server.url), open_store(server.url)  # as of two processes
    keys = [
        append_batch(store.open("base"), 1, "accept", [LearnedRow("Gotham", "nyc", 1)]).key for store in (first, second)
    ]
    assert [one.key for one in read_ledger(first.open("base")).batches] == keys
    for store in (first, second):
        store.close()
    with EntityLinker.open("base", store=server.url) as linker:
        assert linker.link("Gotham").learned[0].as_written == 2
        linker.undo_learned(keys[0])
        assert linker.link("Gotham").learned[0].as_written == 1


def test_a_process_that_dies_while_it_learns_leaves_nothing(
    server: QdrantDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If only some parts of a batch arrive, none of them counts."""
    monkeypatch.setattr("pearl_qdrant.store.server.ledger.PART_BYTES", 10)
    store = open_store(server.url)
    collection = store.open("base")
    append_batch(collection, 1, "learn", [LearnedRow(f"name {i}", "nyc", 1) for i in range(5)])
    client = server.client
    name = "base.pearl-qdrant-learned"
    points, _ = client.scroll(name, limit=100)
    client.delete(name, [points[3].id])

    ledger = read_ledger(collection)
    assert ledger.batches == ()
    assert ledger.n_unreadable > 0, "which is said, as for a file"
    store.close()


def test_a_key_that_may_not_see_the_ledger_still_links(server: QdrantDouble, caplog: pytest.LogCaptureFixture) -> None:
    """With a key for the collection alone, the linker opens and says that it links without what was learned."""
    server.faults.append(Fault("status", match=r"GET .*pearl-qdrant-learned", status=403, error="forbidden"))
    with EntityLinker.open("base", store=server.url) as linker:
        assert linker.link("NYTimes").entity_id == "nyt"

    assert "Collection 'base' is linked without what it learned" in caplog.text
