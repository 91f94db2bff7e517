"""Files of `resolve`: names in, nodes out and in again, pairs for review out and decisions in. UTF-8, TSV, no quoting.

names     one name a line; or a table with a header (TSV) that has a column `name`, and may have `type`, `source` and
`context`; or JSON Lines with these fields
nodes     one row for each distinct name and type, see `ResolvedName`; it is all that a later run needs. The column
          `inputs` of the first row has the digests of the files of names that were counted
review    one row for each pair, see `ReviewPair`; a person writes `same` or `different` into the column `decision`
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from pearl_qdrant.cells import is_null, join_list, split_list, text_of
from pearl_qdrant.errors import FormatError
from pearl_qdrant.linking.text_lines import read_text_lines
from pearl_qdrant.resolution.records import Decision, NameRecord, ResolvedName, ReviewPair, Verdict
from pearl_qdrant.store.atomic import sync_folder

NAME_COLUMNS = ("name", "title", "entity", "entity_name", "mention")
"""Columns of names, the first that a table has; GraphRAG's tables have `title`, LightRAG's `entity_name`."""

TYPE_COLUMNS = ("type", "entity_type", "label")
SOURCE_COLUMNS = ("source", "source_id", "document", "doc_id")
CONTEXT_COLUMNS = ("context", "description", "text")

NODE_COLUMNS = (
    "name",
    "type",
    "node_id",
    "canonical_name",
    "entity_id",
    "kb",
    "probability",
    "reason",
    "count",
    "founded",
    "apart",
    "inputs",
)
REVIEW_COLUMNS = (
    "decision",
    "probability",
    "name",
    "type",
    "other",
    "other_type",
    "node_id",
    "other_node_id",
    "reason",
    "change",
)
VERDICTS: dict[str, Verdict] = {
    **dict.fromkeys(("same", "yes", "y", "1", "merge"), "same"),
    **dict.fromkeys(("different", "no", "n", "0", "split"), "different"),
}
"""What a person may write into the column `decision`; an empty cell decides nothing."""


def read_names(file: BinaryIO, name: str) -> Iterator[NameRecord]:
    """Read a file of names, in constant memory; the form is recognised by its first line.

    Args:
        file: An open binary file.
        name: Its path, for errors.

    Raises:
        FormatError: At a line that is not UTF-8, or no JSON object with a name, where the first one is.
    """
    lines = read_text_lines(file, name)
    first = next(lines, None)
    if first is None:
        return
    number, text = first
    if text.lstrip().startswith("{"):
        yield _from_json(text, name, number)
        for number, text in lines:
            if text.strip():
                yield _from_json(text, name, number)
        return
    columns = [cell.strip().lower() for cell in text.split("\t")]
    places = [_place(columns, known) for known in (NAME_COLUMNS, TYPE_COLUMNS, SOURCE_COLUMNS, CONTEXT_COLUMNS)]
    if places[0] is None:
        yield NameRecord(text.split("\t")[0])
        for _, text in lines:
            yield NameRecord(text.split("\t")[0])
        return
    for _, text in lines:
        cells = text.split("\t")
        values = ["" if place is None or place >= len(cells) else cells[place] for place in places]
        yield NameRecord(*values)


def _place(columns: Sequence[str], known: Sequence[str]) -> int | None:
    return next((columns.index(column) for column in known if column in columns), None)


def _from_json(text: str, name: str, number: int) -> NameRecord:
    try:
        record = json.loads(text)
    except ValueError as error:
        raise FormatError(name, number, f"not JSON ({error})") from error
    if not isinstance(record, dict):
        raise FormatError(name, number, "not a JSON object")
    values = [
        next((text_of(record[column]) for column in known if not is_null(record.get(column))), None)
        for known in (NAME_COLUMNS, TYPE_COLUMNS, SOURCE_COLUMNS, CONTEXT_COLUMNS)
    ]
    if values[0] is None:
        raise FormatError(name, number, f"no field with a name; it is one of: {', '.join(NAME_COLUMNS)}")
    return NameRecord(*[value or "" for value in values])


def write_nodes(path: Path, names: Iterable[ResolvedName], inputs: Sequence[str]) -> None:
    """Write the node of each name, and `Resolution.inputs`; the file is replaced when all is written."""
    _write(path, NODE_COLUMNS, _node_rows(names, inputs))


def node_lines(names: Iterable[ResolvedName], inputs: Sequence[str]) -> Iterator[str]:
    """The lines that `write_nodes` writes, without their ends."""
    yield "\t".join(NODE_COLUMNS)
    for row in _node_rows(names, inputs):
        yield "\t".join(map(_cell, row))


def _node_rows(names: Iterable[ResolvedName], inputs: Sequence[str]) -> Iterator[Sequence[str]]:
    return (
        (
            *(one.name, one.type, one.node_id, one.canonical_name, one.entity_id or "", one.kb or ""),
            *(f"{one.probability:.4f}", one.reason, str(one.count), "yes" if one.founded else "", join_list(one.apart)),
            "" if number else join_list(inputs),
        )
        for number, one in enumerate(names)
    )


def read_nodes(path: Path) -> tuple[list[ResolvedName], tuple[str, ...]]:
    """Read the names and inputs that `write_nodes` wrote; further columns are ignored.

    Raises:
        FormatError: If a column is missing, or a number is none.
    """
    names, inputs = [], dict[str, None]()
    for number, row in _read(path, NODE_COLUMNS):
        try:
            probability, count = float(row["probability"]), int(row["count"])
        except ValueError as error:
            raise FormatError(str(path), number, f"probability and count are numbers ({error})") from error
        inputs.update(dict.fromkeys(split_list(row["inputs"])))
        names.append(
            ResolvedName(
                row["name"],
                row["type"],
                row["node_id"],
                row["canonical_name"],
                row["entity_id"] or None,
                row["kb"] or None,
                probability,
                row["reason"],
                count,
                founded=row["founded"] == "yes",
                apart=split_list(row["apart"]),
            )
        )
    return names, tuple(inputs)


def write_review(path: Path, pairs: Iterable[ReviewPair]) -> None:
    """Write pairs for a person to decide, the column `decision` empty."""
    rows = (
        (
            *("", f"{one.probability:.4f}", one.name, one.type),
            *(one.other, one.other_type, one.node_id, one.other_node_id, one.reason, str(one.change)),
        )
        for one in pairs
    )
    _write(path, REVIEW_COLUMNS, rows)


def read_decisions(path: Path) -> list[Decision]:
    """Read the decided rows of a review.

    Raises:
        FormatError: If a column is missing, or a decision is neither `same` nor `different`.
    """
    decisions = []
    for number, row in _read(path, ("decision", "name", "other")):
        written = row["decision"].strip().lower()
        if not written:
            continue
        verdict = VERDICTS.get(written)
        if verdict is None:
            raise FormatError(
                str(path),
                number,
                f"the decision '{row['decision']}' is neither 'same' nor 'different'; or leave it empty",
            )
        decisions.append(
            Decision(
                *(row["name"], row["other"], verdict),
                *(row.get("type", ""), row.get("other_type", ""), row.get("other_node_id", "")),
            )
        )
    return decisions


def _write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("w", encoding="utf-8", errors="surrogatepass", newline="") as file:
        file.write("\t".join(columns) + "\n")
        for row in rows:
            file.write("\t".join(map(_cell, row)) + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def _cell(text: str) -> str:
    """A text without what would end its cell or row."""
    return text if text.isprintable() else " ".join(text.replace("\0", " ").split())


def _read(path: Path, needed: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    with path.open("rb") as file:
        lines = read_text_lines(file, str(path))
        _, header = next(lines, (1, ""))
        columns = header.split("\t")
        missing = [column for column in needed if column not in columns]
        if missing:
            raise FormatError(
                str(path), 1, f"the column {', '.join(missing)} is missing; the header is: {header[:200]}"
            )
        for number, text in lines:
            if text.strip():
                cells = text.split("\t")
                yield number, dict(zip(columns, cells + [""] * (len(columns) - len(cells)), strict=False))
