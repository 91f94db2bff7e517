"""What goes into `resolve` and what comes out: names, decisions, the node of each name, and their files (UTF-8, TSV, no
quoting).

names     one name a line; or a table with a header (TSV) that has a column `name`, and may have `type`, `source` and
          `context`; or JSON Lines with these fields
nodes     one row for each distinct name and type, see `ResolvedName`; it is all that a later run needs. The column
          `inputs` of the first row has the digests of the files of names that were counted
review    one row for each pair, see `ReviewPair`; a person writes `same` or `different` into the column `decision`
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from pearl_qdrant.cells import is_null, join_list, split_list, table_line, text_of
from pearl_qdrant.errors import FormatError
from pearl_qdrant.linking.mentions import read_text_lines

Verdict = Literal["same", "different"]


@dataclass(frozen=True, slots=True)
class NameRecord:
    """A name as a graph, a table or a text has it.

    Attributes:
        name: The string.
        type: Its type in the source's own words (`PERSON`, `disease`), or "". Names of types that differ stay apart.
        source: Where it was found (the id of a document or chunk), or "". An acronym joins its long form only where
            both were found in one source, or one context defines it.
        context: Text around it, or "". Abbreviations that it defines are merged, `tumor necrosis factor (TNF)`.
    """

    name: str
    type: str = ""
    source: str = ""
    context: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person decided of two names: the same entity, or different ones.

    Attributes:
        name, other: The names.
        type, other_type: Their types, or "".
        verdict: "same" or "different".
        other_node: The node of `other` when it was decided, or ""; needed where `other` is a name of a collection.
    """

    name: str
    other: str
    verdict: Verdict
    type: str = ""
    other_type: str = ""
    other_node: str = ""


@dataclass(frozen=True, slots=True)
class ResolvedName:
    """A name with its node; one for each distinct name and type.

    Attributes:
        name: The string.
        type: Its type, or "".
        node_id: The node: the id of the entity of a collection, or one that starts with ``nil-``.
        canonical_name: The name of the node.
        entity_id: The entity of the collection; None if it has none.
        kb: Short name of its base; None if there is none.
        probability: That the name belongs to the node, in [0, 1]; 1 for the name that founded the node.
        reason: Why it does.
        count: How often the name was given.
        founded: Whether the node is named and identified by this name.
        apart: Ids of nodes that it must not join, since a person decided so.
    """

    name: str
    type: str
    node_id: str
    canonical_name: str
    entity_id: str | None
    kb: str | None
    probability: float
    reason: str
    count: int = 1
    founded: bool = False
    apart: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReviewPair:
    """Two names in two nodes that may be one, for a person to decide.

    Attributes:
        name, type, node_id: One name.
        other, other_type, other_node_id: The other.
        probability: That both mean the same, in [0, 1].
        reason: Why they were not merged.
        change: How often the names were given that would move to another node by the other decision.
    """

    name: str
    type: str
    node_id: str
    other: str
    other_type: str
    other_node_id: str
    probability: float
    reason: str
    change: int = 1


NAME_COLUMNS = ("name", "title", "entity", "entity_name", "mention")
"""Columns of names, the first that a table has; GraphRAG's tables have `title`, LightRAG's `entity_name`."""

TYPE_COLUMNS = ("type", "entity_type", "label")
SOURCE_COLUMNS = ("source", "source_id", "document", "doc_id")
CONTEXT_COLUMNS = ("context", "description", "text")

NODE_COLUMNS = tuple(
    "name type node_id canonical_name entity_id kb probability reason count founded apart inputs".split()
)
REVIEW_COLUMNS = tuple("decision probability name type other other_type node_id other_node_id reason change".split())
VERDICTS: dict[str, Verdict] = {
    **dict.fromkeys(("same", "yes", "y", "1", "merge"), "same"),
    **dict.fromkeys(("different", "no", "n", "0", "split"), "different"),
}
"""What a person may write into the column `decision`; an empty cell decides nothing."""


def read_names(file: BinaryIO, name: str) -> Iterator[NameRecord]:
    """Read a file of names, in constant memory; the form is recognised by its first line, `name` is its path. Raises
    FormatError at a line that is not UTF-8, or no JSON object with a name, where the first one is.
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


def node_lines(names: Iterable[ResolvedName], inputs: Sequence[str]) -> Iterator[str]:
    """The lines of a file of nodes, with `Resolution.inputs`, without their ends."""
    yield table_line(NODE_COLUMNS)
    for number, one in enumerate(names):
        yield table_line(
            (
                *(one.name, one.type, one.node_id, one.canonical_name, one.entity_id or "", one.kb or ""),
                *(f"{one.probability:.4f}", one.reason, str(one.count), "yes" if one.founded else ""),
                *(join_list(one.apart), "" if number else join_list(inputs)),
            )
        )


def read_nodes(path: Path) -> tuple[list[ResolvedName], tuple[str, ...]]:
    """Read the names and inputs of `node_lines`; further columns are ignored. Raises FormatError if a column is
    missing, or a number is none.
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


def review_lines(pairs: Iterable[ReviewPair]) -> Iterator[str]:
    """The lines of a file of pairs for a person to decide, the column `decision` empty."""
    yield table_line(REVIEW_COLUMNS)
    for one in pairs:
        yield table_line(
            (
                *("", f"{one.probability:.4f}", one.name, one.type, one.other, one.other_type),
                *(one.node_id, one.other_node_id, one.reason, str(one.change)),
            )
        )


def read_decisions(path: Path) -> list[Decision]:
    """Read the decided rows of a review. Raises FormatError if a column is missing, or a decision is neither `same` nor
    `different`.
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
