"""Files of labelled mentions."""

from __future__ import annotations

from pathlib import Path

import pytest

from pearl_qdrant.errors import FormatError
from pearl_qdrant.linking.learned.learning import read_labelled


def read(folder: Path, text: str, name: str = "labelled.tsv") -> list[tuple[str, str | None, int]]:
    """What a file with this text has."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return [(one.mention, one.entity_id, one.line) for one in read_labelled(path)]


def test_pairs_with_header_nil_and_further_columns(tmp_path: Path) -> None:
    """The header is left out, NIL and nothing are no entity, and repeated pairs are kept."""
    text = "mention\tid\nNYC\tQ60\textra\n\nNYC\tQ60\nthe mayor\tNIL\nhe\t\n"

    assert read(tmp_path, text) == [
        ("NYC", "Q60", 2),
        ("NYC", "Q60", 4),
        ("the mayor", None, 5),
        ("he", None, 6),
    ]


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


@pytest.mark.parametrize("line", ["NYC", "\tQ60", " \tQ60"])
def test_bad_pairs_name_their_line(tmp_path: Path, line: str) -> None:
    """A row without a mention or a second column is an error."""
    with pytest.raises(FormatError, match=r"labelled\.tsv:2: expected a mention, a tab and an entity id"):
        read(tmp_path, f"NYC\tQ60\n{line}\n")


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    """The error names the file."""
    with pytest.raises(FormatError, match=r"none\.tsv: cannot be read"):
        list(read_labelled(tmp_path / "none.tsv"))
