"""Learning labelled mentions, listing and undoing."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pearl_qdrant import EntityLinker
from pearl_qdrant.errors import FormatError, LearningError, StoreFullError
from pearl_qdrant.linking.calibration.labels import Label, with_learned
from pearl_qdrant.linking.learned import learned_batches
from pearl_qdrant.store.edge.ledger import LEDGER_FILE
from pearl_qdrant.store.edge.store import EdgeStore

PAIRS = [("Gotham", "nyc"), ("Gotham", "nyc"), ("the paper", "nyt"), ("he", None)]


def test_a_file_becomes_a_batch_with_its_counts(tmp_path: Path, linker: EntityLinker) -> None:
    """The batch says where it is from, and how many mentions and names it has."""
    path = tmp_path / "labelled.tsv"
    path.write_text("".join(f"{mention}\t{key or 'NIL'}\n" for mention, key in PAIRS), encoding="utf-8")
    batch = linker.learn(path).batch

    assert (batch.number, batch.kind, batch.source) == (1, "learn", "labelled.tsv")
    assert (batch.mentions, batch.names, batch.nil_mentions) == (4, 3, 1)
    assert linker.link("Gotham").entity_id == "nyc"
    assert linker.link("he").entity_id is None
    assert linker.learned_batches() == (batch,)


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


def test_a_mention_that_is_no_name_is_an_error(linker: EntityLinker) -> None:
    """A mention of broken Unicode or of ten thousand characters is refused, with its place."""
    for mention in ("\ud800", "x" * 20_000, " "):
        with pytest.raises(FormatError, match="news:2: the mention is no valid text"):
            linker.learn([("Gotham", "nyc"), (mention, "nyc")], source="news")
    with pytest.raises(ValueError, match="at least 1"):
        linker.learn(PAIRS, add_aliases=0)


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


def test_the_list_needs_no_model(store_path: Path) -> None:
    """What was learned can be listed by the name of the collection."""
    with EntityLinker.open("base", store=str(store_path)) as linker:
        linker.learn(PAIRS, source="news")

    assert [(one.number, one.source) for one in learned_batches("base", store=str(store_path))] == [(1, "news")]


def test_a_full_disk_leaves_nothing_half_learned(linker: EntityLinker, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the ledger cannot be written, the linker answers as before, and learns later."""

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("pearl_qdrant.store.edge.ledger.os.fsync", full)
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


def test_damaged_lines_are_said(store_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Lines that count for nothing are in the log, and the linker opens."""
    (store_path / "base" / LEDGER_FILE).write_text("rubbish\n", encoding="utf-8")
    with EntityLinker.open("base", store=str(store_path)) as linker:
        assert linker.accept("Gotham", "nyc").number == 1

    assert "1 lines of a batch of learned names whose writer died do not count" in caplog.text


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
    store = EdgeStore(store_path)
    labels = with_learned(store.open("base"), [Label("given", "mi")])
    store.close()

    assert [(one.mention, one.entity_id) for one in labels] == [
        ("given", "mi"),
        ("Gotham", "nyc"),
        ("the paper", "nyt"),
        ("he", None),
        ("The Big One", "nyc"),
    ]
