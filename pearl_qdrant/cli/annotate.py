"""The command `pearl-qdrant annotate`."""

from __future__ import annotations

from collections.abc import Iterator
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
from pearl_qdrant.cli.common.terminal import echo, echo_json
from pearl_qdrant.settings import DEFAULT_PASSAGE_THRESHOLD, MAX_PASSAGE_BYTES

if TYPE_CHECKING:
    from pearl_qdrant.linking.options import OnTie
    from pearl_qdrant.records import Annotation


@click.command()
@click.argument("text", required=False)
@click.option("--file", "file", type=InputFile(), help="File with one passage, UTF-8; - is stdin.")
@click.option(
    "--collection", "collections", multiple=True, metavar="NAME", help="Collection to search; may be repeated."
)
@store_option
@model_option
@device_option
@type_option
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1),
    default=DEFAULT_PASSAGE_THRESHOLD,
    show_default=True,
    help="Minimum probability of a mention.",
)
@on_tie_option
@click.option("--context", metavar="TEXT", help="What the text is about; chooses between entities with the same name.")
@click.option("--nil", "include_nil", is_flag=True, help="Also print spans that look like mentions but have no entity.")
@strict_option
@json_option
def annotate(
    text: str | None,
    file: BinaryIO | None,
    collections: tuple[str, ...],
    store: str,
    model: str | None,
    device: str,
    types: tuple[str, ...],
    threshold: float,
    on_tie: str,
    context: str | None,
    include_nil: bool,
    strict: bool,
    as_json: bool,
) -> None:
    """Find mentions in running text, and link them.

    Offsets count characters from 0. An abbreviation that the text defines, as in "tumor necrosis factor (TNF)", is
    looked up by its long form.

    \b
    pearl-qdrant annotate "She read the NYTimes at Heathrow."
    pearl-qdrant annotate --file report.txt --type disease --json > mentions.jsonl
    """
    if (text is None) == (file is None):
        raise click.UsageError("Give either a text as an argument, or a file with --file.")
    passage = text or "" if file is None else _read(file)
    with open_linker(store, collections, model=model, device=device, strict=strict) as linker:
        found = linker.annotate(
            passage,
            types=types,
            threshold=threshold,
            context=context,
            on_tie=cast("OnTie", on_tie),
            include_nil=include_nil,
        )
    if as_json:
        for one in found:
            echo_json(_as_record(one))
    else:
        for line in _as_text(found, with_base=len(set(collections)) > 1):
            echo(line)


def _read(file: BinaryIO) -> str:
    """The text of a file with unchanged line ends, so that offsets match the file."""
    from pearl_qdrant.errors import InputError

    content = file.read(MAX_PASSAGE_BYTES + 1)
    if len(content) > MAX_PASSAGE_BYTES:
        limit = f"longer than {MAX_PASSAGE_BYTES:,} bytes, the maximum for one passage"
        raise InputError(name_of(file), None, f"{limit}. Split it, for example by chapters")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            name_of(file), None, f"not UTF-8 at byte {error.start}. Convert it, for example with iconv"
        ) from error


def _as_record(found: Annotation) -> dict[str, object]:
    """The JSON record of an annotation."""
    link = found.link
    chosen = next((c for c in link.candidates if (c.kb, c.entity_id) == (link.kb, link.entity_id)), None)
    return {
        "start": found.start,
        "end": found.end,
        "text": found.text,
        "kb": link.kb,
        "entity_id": link.entity_id,
        "canonical_name": link.canonical_name,
        "probability": link.probability,
        "types": list(dict.fromkeys([*chosen.types, *chosen.kb_types])) if chosen else [],
        "long_form": found.long_form,
        **({"warnings": list(link.warnings)} if link.warnings else {}),
    }


def _as_text(annotations: list[Annotation], *, with_base: bool) -> Iterator[str]:
    """One line per mention: offsets, text and entity; with the bases if there may be several."""
    for found in annotations:
        link = found.link
        shown = " ".join(found.text.split())
        if found.long_form is not None:
            shown += f" ({found.long_form})"
        if link.entity_id is None:
            reason = link.nil_reason.value.replace("_", " ") if link.nil_reason else ""
            yield f"{found.start}-{found.end}  {shown}  ->  NIL ({reason})"
        else:
            entity = f"{link.kb}: {link.entity_id}" if with_base else link.entity_id
            shown += f"  ->  {link.canonical_name}  [{entity}]  {link.probability or 0:.2f}"
            yield f"{found.start}-{found.end}  {shown}"
