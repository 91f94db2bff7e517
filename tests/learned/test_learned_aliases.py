"""Files of labelled mentions; learned names that become names of the base."""

from __future__ import annotations

from pathlib import Path

import pytest

from pearl_qdrant import Entity, EntityLinker, load_base
from pearl_qdrant.errors import FormatError, StoreError
from pearl_qdrant.linking.learned import learning
from pearl_qdrant.linking.learned.learning import read_labelled
from pearl_qdrant.store import open_store


def read(folder: Path, text: str, name: str = "labelled.tsv") -> list[tuple[str, str | None, int]]:
    """What a file with this text has."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return [(one.mention, one.entity_id, one.line) for one in read_labelled(path)]


def test_pairs_with_header_nil_and_further_columns(tmp_path: Path) -> None:
    """The header is left out, NIL and nothing are no entity, and repeated pairs are kept. A row without a mention or a
    second column is an error, which names its line; so is a missing file.
    """
    text = "mention\tid\nNYC\tQ60\textra\n\nNYC\tQ60\nthe mayor\tNIL\nhe\t\n"

    assert read(tmp_path, text) == [("NYC", "Q60", 2), ("NYC", "Q60", 4), ("the mayor", None, 5), ("he", None, 6)]
    for line in ("NYC", "\tQ60", " \tQ60"):
        with pytest.raises(FormatError, match=r"labelled\.tsv:2: expected a mention, a tab and an entity id"):
            read(tmp_path, f"NYC\tQ60\n{line}\n")
    with pytest.raises(FormatError, match=r"none\.tsv: cannot be read"):
        list(read_labelled(tmp_path / "none.tsv"))


def test_documents_with_spans_and_single_mentions(tmp_path: Path) -> None:
    """JSON Lines may have documents with spans, or one mention a line."""
    text = (
        '{"text": "Zürich or 🦄 NYC", "mentions": [{"start": 0, "end": 6, "id": "Q72"}, '
        '{"start": 12, "end": 15, "entity_id": 60}, {"start": 10, "end": 11, "id": null}]}\n'
        '{"mention": "NYC", "id": "NIL"}\n'
        '{"text": "nothing", "mentions": []}\n'
    )

    assert read(tmp_path, text, "documents.JSONL") == [
        ("Zürich", "Q72", 1),
        ("NYC", "60", 1),
        ("🦄", None, 1),
        ("NYC", None, 2),
    ]


@pytest.mark.parametrize(
    "line, message",
    [
        ("{", "not JSON"),
        ("[1]", "neither a text with mentions nor a mention"),
        ('{"text": "NYC"}', "neither a text with mentions nor a mention"),
        ('{"mention": " ", "id": "Q60"}', "neither a text with mentions nor a mention"),
        ('{"mention": "NYC"}', "without id"),
        ('{"mention": "NYC", "id": []}', r"the id is \[\]"),
        ('{"mention": "NYC", "id": true}', "the id is true"),
        ('{"text": "NYC", "mentions": [3]}', "span 0 is 3"),
        (
            '{"text": "NYC", "mentions": [{"start": 0, "end": 4, "id": "Q60"}]}',
            "from 0 to 4, but the text has 3 characters",
        ),
        ('{"text": "NYC", "mentions": [{"start": 2, "end": 2, "id": "Q60"}]}', "from 2 to 2"),
        ('{"text": "NYC", "mentions": [{"start": true, "end": 2, "id": "Q60"}]}', "'start': True"),
        ('{"text": "NYC", "mentions": [{"end": 2, "id": "Q60"}]}', "with start and end"),
        ('{"text": "N YC", "mentions": [{"start": 1, "end": 2, "id": "Q60"}]}', "white space"),
    ],
)
def test_bad_documents_name_their_line(tmp_path: Path, line: str, message: str) -> None:
    """Each error has path and line, and says what is wrong."""
    with pytest.raises(FormatError, match=rf"bad\.jsonl:2: .*{message}"):
        read(tmp_path, '{"mention": "NYC", "id": "Q60"}\n' + line + "\n", "bad.jsonl")


PAIRS = [("Gotham", "nyc")] * 3 + [("GOTHAM", "nyc"), ("the paper", "nyt"), ("the paper", "nyp"), ("Empire", "nys")]


def names(store: Path) -> dict[str, set[str]]:
    """The names of each entity of the collection `base`."""
    opened = open_store(store)
    found: dict[str, set[str]] = {}
    for point in opened.open("base").scroll():
        found.setdefault(point.entity_id, set()).add(point.name)
    opened.close()
    return found


def test_names_that_were_seen_often_enough_are_added(linker: EntityLinker) -> None:
    """The most frequent form of a name is added to its entity, and is exact from then on; no name of two is.
    Undone, the base has its own names alone; an undone undo brings them back.
    """
    before = linker.entity("nyc")
    learned = linker.learn(PAIRS, add_aliases=2)

    assert learned.batch.aliases == (("Gotham", "nyc"),)
    assert "Gotham" in linker.entity("nyc").aliases
    assert linker.known_names(["Gotham", "the paper", "Empire"]) == {"Gotham"}
    assert (linker.link("gotham").entity_id, linker.link("gotham").rule) == ("nyc", "exact name")
    undone = linker.undo_learned(1)
    assert linker.entity("nyc") == before
    linker.undo_learned(undone.number)
    assert "Gotham" in linker.entity("nyc").aliases


def test_counts_of_earlier_batches_add_up(linker: EntityLinker) -> None:
    """A name is added when all that was learned reaches the number; a name of the entity is not added again."""
    linker.accept("Gotham", "nyc")
    assert linker.learn([("Gotham", "nyc"), ("NYTimes", "nyt")], add_aliases=3).batch.aliases == ()
    assert linker.learn([("Gotham", "nyc"), ("NYTIMES", "nyt")], add_aliases=3).batch.aliases == (("Gotham", "nyc"),)
    assert linker.learn([("gotham", "nyc")], add_aliases=1).batch.aliases == ()


def test_an_undo_leaves_names_that_the_base_has_itself(linker: EntityLinker) -> None:
    """If a user adds the name by hand, it is no learned name any more."""
    linker.learn(PAIRS, add_aliases=2)
    linker.add([Entity("nyc", "New York", ("Gotham",))])
    linker.undo_learned(1)

    assert linker.entity("nyc").aliases == ("Gotham",)


def test_if_the_names_cannot_be_written_nothing_is_learned(
    linker: EntityLinker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch whose names could not be added is undone, so that it can be learned again."""

    def fail(*args: object) -> None:
        raise StoreError("no")

    with monkeypatch.context() as patch:
        patch.setattr(learning, "sync_aliases", fail)
        with pytest.raises(StoreError, match="no"):
            linker.learn(PAIRS, add_aliases=2)
    assert linker.link("Gotham").learned == ()

    assert linker.learn(PAIRS, add_aliases=2).batch.is_effective


ROWS = "id\tname\taliases\nnyc\tNew York City\tNYC\nnyt\tThe New York Times\tNYTimes\n"


@pytest.fixture
def base(tmp_path: Path, model: Path) -> Path:
    """A base that was loaded and has learned names; its file."""
    path = tmp_path / "base.tsv"
    path.write_text(ROWS, encoding="utf-8")
    load_base(path, "base", store=tmp_path / "store", model=model)
    with EntityLinker.open("base", store=str(tmp_path / "store")) as linker:
        linker.learn([("Gotham", "nyc"), ("the paper", "nyt")] * 3, add_aliases=2)
    return path


def test_an_update_keeps_what_was_learned(base: Path, tmp_path: Path, model: Path) -> None:
    """Learned names stay in an update, follow their entity, and go with it; nobody is asked about them."""
    base.write_text("id\tname\taliases\nnyc\tCity of New York\tNYC\n", encoding="utf-8")
    asked = []
    result = load_base(
        base,
        "base",
        store=tmp_path / "store",
        model=model,
        update=True,
        may_remove=lambda n, total: asked.append(n) is None,
    )

    assert asked == [3], "of the paper and the old canonical name"
    assert result.removed == 3
    assert names(tmp_path / "store") == {"nyc": {"City of New York", "NYC", "Gotham"}}
    with EntityLinker.open("base", store=str(tmp_path / "store")) as linker:
        link = linker.link("Gotham")
        assert (link.canonical_name, link.learned[0].as_written) == ("City of New York", 3)


def test_a_rebuild_has_them_again(base: Path, tmp_path: Path, model: Path) -> None:
    """A base that is loaded from the start has learned names and counts as before, and they do not make a finished one
    look unfinished. A deleted collection forgets.
    """
    before = names(tmp_path / "store")
    assert load_base(base, "base", store=tmp_path / "store", model=model).is_unchanged
    load_base(base, "base", store=tmp_path / "store", model=model, restart=True)

    assert names(tmp_path / "store") == before
    with EntityLinker.open("base", store=str(tmp_path / "store")) as linker:
        assert linker.link("the paper").learned[0].as_written == 3
    store = open_store(tmp_path / "store")
    store.delete("base")
    store.close()
    load_base(base, "base", store=tmp_path / "store", model=model)

    assert names(tmp_path / "store") == {"nyc": {"New York City", "NYC"}, "nyt": {"The New York Times", "NYTimes"}}
