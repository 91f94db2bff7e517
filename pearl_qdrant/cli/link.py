"""The command `pearl-qdrant link`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, BinaryIO, cast

import click

from pearl_qdrant.cli.common.options import (
    InputFile,
    device_option,
    json_option,
    model_option,
    name_of,
    on_tie_option,
    open_linker,
    store_option,
    strict_option,
    type_option,
)
from pearl_qdrant.cli.common.terminal import echo, echo_json, table_lines
from pearl_qdrant.settings import DEFAULT_LIMIT, DEFAULT_THRESHOLD

if TYPE_CHECKING:
    from pearl_qdrant.linking.options import OnTie, TypeMode
    from pearl_qdrant.records import Candidate, Link


@click.command()
@click.argument("mentions", nargs=-1, metavar="[MENTION]...")
@click.option(
    "--file",
    "file",
    type=InputFile(),
    help="File with one mention per line, UTF-8; - is stdin. An empty line gets an empty answer.",
)
@click.option(
    "--collection", "collections", multiple=True, metavar="NAME", help="Collection to search; may be repeated."
)
@store_option
@model_option
@device_option
@type_option
@click.option(
    "--type-mode",
    type=click.Choice(["hard", "soft", "off"]),
    default="hard",
    show_default=True,
    help="hard: only entities of the types; soft: prefer them; off: ignore types, the predicted ones too.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=DEFAULT_LIMIT,
    show_default=True,
    help="Maximum number of candidates.",
)
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1),
    show_default=f"the calibrated one, or {DEFAULT_THRESHOLD}",
    help="Minimum probability of a link; below it a mention is NIL.",
)
@on_tie_option
@strict_option
@click.option("--explain", is_flag=True, help="Explain each link: rule, scores of the best candidate, runner-up.")
@json_option
def link(
    mentions: tuple[str, ...],
    file: BinaryIO | None,
    collections: tuple[str, ...],
    store: str,
    model: str | None,
    device: str,
    types: tuple[str, ...],
    type_mode: str,
    limit: int,
    threshold: float | None,
    on_tie: str,
    strict: bool,
    explain: bool,
    as_json: bool,
) -> None:
    """Link mentions to entities, or report that there is none (NIL).

    \b
    pearl-qdrant link "heart attack" "NYTimes"
    pearl-qdrant link "Paris" --type PERSON --json
    pearl-qdrant link "NYTimes" --explain
    pearl-qdrant link --file mentions.txt --json > links.jsonl
    """
    if bool(mentions) == bool(file):
        raise click.UsageError("Give either mentions as arguments, or a file of mentions with --file.")
    from pearl_qdrant.linking.ranking.explain import explain_link

    with open_linker(store, collections, model=model, device=device, threshold=threshold, strict=strict) as linker:
        links = linker.link_batch(
            mentions if file is None else _read_mentions(file),
            types=types,
            type_mode=cast("TypeMode", type_mode),
            limit=limit,
            on_tie=cast("OnTie", on_tie),
        )
        for found in links:
            if as_json:
                echo_json(_as_record(found, explain))
                continue
            echo(*_as_text(found, with_base=len(set(collections)) > 1))
            if explain and found.mention.strip():
                echo(*(f"    {line}" for line in explain_link(found, linker.calibration, linker.model)))


_WIDEST = 80  # characters of a name in the table; --json prints the whole name
_LONGEST_MENTION = 1000  # characters of a mention in text output; --json prints all


def _read_mentions(file: BinaryIO) -> Iterator[str]:
    """The mentions of a file, one for each line; an empty line is an empty mention, so that answers match lines.

    Raises:
        FormatError: At a line that is not UTF-8 or too long; the batches of mentions before it are printed by then.
    """
    from pearl_qdrant.linking.text_lines import read_text_lines

    return (line for _, line in read_text_lines(file, name_of(file)))


def _as_record(found: Link, explain: bool) -> dict[str, object]:
    """The JSON record of a link; warnings and what was learned only if there are any, features only for --explain."""
    record = asdict(found)
    for name in ("warnings", "learned"):
        if not record[name]:
            del record[name]
    if not explain:
        for candidate in record["candidates"]:
            del candidate["features"]
    return record


def _as_text(found: Link, *, with_base: bool) -> list[str]:
    """Lines of a link and a table of its candidates; with the bases if there may be several.

    An empty mention has an empty line.
    """
    if not found.mention.strip():
        return [""]
    mention = found.mention if len(found.mention) <= _LONGEST_MENTION else found.mention[:_LONGEST_MENTION] + "…"
    if found.entity_id is None:
        reason = found.nil_reason.value.replace("_", " ") if found.nil_reason else ""
        head = f"{mention}  ->  NIL ({reason})"
    else:
        entity = f"{found.kb}: {found.entity_id}" if with_base else found.entity_id
        head = f"{mention}  ->  {found.canonical_name}  [{entity}]  {found.probability:.2f}"
    columns = ("prob", "dense", "lexical", *(["base"] if with_base else []), "id", "name", "types")
    rows = [_row(c, with_base=with_base) for c in found.candidates]
    return [head, *(f"    {line}" for line in table_lines(columns, rows))]


def _row(candidate: Candidate, *, with_base: bool) -> tuple[str, ...]:
    """The cells of a candidate in the table."""
    shown = candidate.canonical_name
    if candidate.name != candidate.canonical_name:
        shown += f' ("{candidate.name}")'
    kinds = "|".join(dict.fromkeys([*candidate.types, *candidate.kb_types])) or f"{candidate.phrase_type or ''}?"
    dense = "-" if candidate.dense_score is None else f"{candidate.dense_score:.3f}"
    lexical = "-" if candidate.lexical_score is None else f"{candidate.lexical_score:.3f}"
    shown = shown if len(shown) <= _WIDEST else shown[: _WIDEST - 1] + "…"
    probability = f"{candidate.probability or 0:.2f}"
    base = [candidate.kb] if with_base else []
    return (probability, dense, lexical, *base, candidate.entity_id, shown, kinds + " tie" * candidate.tie)
