"""The command `pearl-qdrant learn`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pearl_qdrant.cli.common.options import Target, json_option, target_options
from pearl_qdrant.cli.common.terminal import echo, echo_json, table_lines

if TYPE_CHECKING:
    from pearl_qdrant.linking.learned import Learned, LearnedBatch


@click.command()
@click.option(
    "--labelled",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Mentions with their entities: TSV (NIL or empty for no entity), or .jsonl with documents.",
)
@click.option(
    "--add-aliases",
    type=click.IntRange(min=1),
    metavar="N",
    help="Add a name to an entity that it meant at least N times, and more often than anything else.",
)
@click.option("--skip-unknown", is_flag=True, help="Leave out mentions whose entity id the collection lacks.")
@click.option("--again", is_flag=True, help="Learn mentions that were learned already, too.")
@click.option("--list", "is_list", is_flag=True, help="List what was learned, one batch a line.")
@click.option("--undo", metavar="BATCH", help="Undo a batch, by its number in the list.")
@target_options()
@json_option
def learn(
    labelled: Path | None,
    add_aliases: int | None,
    skip_unknown: bool,
    again: bool,
    is_list: bool,
    undo: str | None,
    target: Target,
    as_json: bool,
) -> None:
    """Learn what names mean from labelled mentions; effective at once.

    Each file becomes a batch of counts, which is kept with the collection, also when the base is updated or loaded
    again with --restart. A name that was learned is linked by its counts first, and by the model where they are few.

    \b
    pearl-qdrant learn --collection news --labelled labelled.tsv
    pearl-qdrant learn --collection news --labelled documents.jsonl --add-aliases 3
    pearl-qdrant learn --collection news --list
    pearl-qdrant learn --collection news --undo 2
    """
    if (labelled is not None) + is_list + (undo is not None) != 1:
        raise click.UsageError("Give one of --labelled, --list and --undo.")
    if labelled is None and (add_aliases is not None or skip_unknown or again):
        raise click.UsageError("--add-aliases, --skip-unknown and --again are for --labelled.")
    (name,) = target.names
    if is_list:
        _list(name, target.store, as_json=as_json)
        return
    from ingest.io.streams import warn_while_waiting

    with target.open(read_only=False) as linker:
        if undo is not None:
            _print_undo(linker.undo_learned(int(undo) if undo.isdecimal() and len(undo) < 8 else undo), as_json=as_json)
            return
        assert labelled is not None
        with warn_while_waiting(str(labelled)):
            found = linker.learn(labelled, add_aliases=add_aliases, skip_unknown=skip_unknown, again=again)
    _print_learned(name, found, as_json=as_json)


def _list(name: str, store: str, *, as_json: bool) -> None:
    from pearl_qdrant.linking.learned import learned_batches

    batches = learned_batches(name, store=store)
    if as_json:
        for batch in batches:
            echo_json(_as_record(batch))
    elif batches:
        echo(*table_lines(_COLUMNS, _rows(batches), numbers=("batch", "mentions", "names", "NIL", "aliases")))
    else:
        echo(f"{name} has learned nothing yet.", err=True)


_COLUMNS = ("batch", "time", "kind", "mentions", "names", "NIL", "aliases", "state", "source")


def _rows(batches: Iterable[LearnedBatch]) -> Iterable[tuple[str, ...]]:
    """The cells of each batch; those that share a number are shown by their keys."""
    listed = list(batches)
    numbers = [batch.number for batch in listed]
    for batch in listed:
        kind = batch.kind if batch.undoes is None else f"undo of {batch.undoes}"
        state = "counts" if batch.is_effective else "undone"
        counts = (batch.mentions, batch.names, batch.nil_mentions, len(batch.aliases))
        label = str(batch.number) if numbers.count(batch.number) == 1 else batch.key
        yield (label, batch.time, kind, *(f"{n:,}" for n in counts), state, batch.source)


def _as_record(batch: LearnedBatch) -> dict[str, Any]:
    record = asdict(batch)
    del record["digest"]
    return record


def _print_undo(batch: LearnedBatch, *, as_json: bool) -> None:
    if as_json:
        echo_json(_as_record(batch))
    else:
        echo(f"Undid batch {batch.undoes}; this is batch {batch.number}.", err=True)


def _print_learned(name: str, found: Learned, *, as_json: bool) -> None:
    if as_json:
        echo_json({**_as_record(found.batch), "skipped": found.skipped, "unknown_ids": list(found.unknown_ids)})
        return
    batch = found.batch
    echo(
        f"{name}: batch {batch.number}: {batch.mentions:,} mentions, {batch.nil_mentions:,} of them without an entity; "
        f"{batch.names:,} distinct; names added to entities: {len(batch.aliases):,}",
        err=True,
    )
    if found.skipped:
        shown = ", ".join(one[:80] for one in found.unknown_ids[:3])
        echo(
            f"left out: {found.skipped:,} mentions of {len(found.unknown_ids):,} entities that {name} does not have, "
            f"e.g. {shown}",
            err=True,
        )
