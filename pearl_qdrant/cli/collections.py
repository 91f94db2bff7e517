"""`pearl-qdrant collections` and `pearl-qdrant entities`: what a store has, and single entities of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from pearl_qdrant.cli import shared
from pearl_qdrant.cli.setting import set_option
from pearl_qdrant.cli.shared import Target, progress_bar
from pearl_qdrant.cli.terminal import confirm, echo, echo_json, table_lines
from pearl_qdrant.settings import DEFAULT_WAIT_S

if TYPE_CHECKING:
    from pearl_qdrant.store.administration import CollectionSummary
    from pearl_qdrant.transfer.moving import TransferResult


@click.group()
def collections() -> None:
    """List, check and maintain collections."""


@collections.command("list")
@shared.store_option
@shared.json_option
def list_collections(store: str, as_json: bool) -> None:
    """List the collections of a store with their state, base, counts and model.

    For collections that are not ready, messages on standard error say what to do.
    """
    from pearl_qdrant.store.administration import summarize_collections

    summaries = summarize_collections(store)
    if as_json:
        for summary in summaries:
            echo_json(summary.to_json())
        return
    listed = list(summaries)
    if not listed:
        echo(f"No collections in {store}.", err=True)
        return
    echo(*table_lines(_COLUMNS, map(_summary_row, listed), numbers=("entities", "names")))
    for one in listed:
        if one.problem and not one.is_foreign:
            echo(f"{one.name}: {one.problem}", err=True)


_COLUMNS = ("collection", "state", "kb", "entities", "names", "model", "calibrated")


def _summary_row(summary: CollectionSummary) -> tuple[str, ...]:
    counts = ("-" if n is None else f"{n:,}" for n in (summary.entities, summary.names))
    state = "other program's" if summary.is_foreign else summary.state.replace("_", " ")
    is_calibrated = "yes" if summary.is_calibrated else "no"
    base = summary.kb or "-"
    if summary.kb_version:
        base += f" {summary.kb_version}"
    return (summary.name, state, base, *counts, summary.model or "-", is_calibrated if summary.kb else "-")


@collections.command("show")
@click.argument("name")
@shared.store_option
@shared.json_option
def show(name: str, store: str, as_json: bool) -> None:
    """Show a collection's base, model, counts and types."""
    from pearl_qdrant.store.administration import describe_collection

    facts = describe_collection(name, store=store).to_json()
    if as_json:
        echo_json(facts)
        return
    types, problem = facts.pop("types"), facts.pop("problem")
    types["languages"] = facts.pop("languages")
    facts["calibration"] = _format_calibration(facts["calibration"])
    for key, value in facts.items():
        echo(f"{key:>16}  {value}")
    for kind, counts in types.items():
        line = ", ".join(f"{k} {n:,}" for k, n in sorted(counts.items(), key=lambda kv: -kv[1]))
        echo(f"{kind:>16}  {line or '-'}")
    if problem:
        echo(f"{name}: {problem}", err=True)


def _format_calibration(calibration: dict[str, Any] | None) -> str:
    """Format a calibration in one line, without the coefficients of the ranking, which `--json` shows."""
    if calibration is None:
        return "as shipped with the package"
    ranking = "as shipped" if calibration["features"] is None else "fitted too"
    fitted = {key: value for key, value in calibration.items() if key not in ("features", "decision", "nil_features")}
    shown = (f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in fitted.items())
    return ", ".join([*shown, f"ranking {ranking}"])


@collections.command("delete")
@click.argument("name")
@shared.store_option
@shared.yes_option()
def delete(name: str, store: str, yes: bool) -> None:
    """Delete a collection with all its points."""
    from pearl_qdrant.store.administration import delete_collection

    if not yes:
        confirm(f"Delete collection '{name}' in {store}? This cannot be undone.")
    delete_collection(name, store=store)
    echo(f"Deleted {name}.", err=True)


@collections.command("finalize")
@click.argument("name")
@shared.store_option
def finalize(name: str, store: str) -> None:
    """Build the graph of a collection, for fast search."""
    from pearl_qdrant.store.administration import finalize_collection

    status = finalize_collection(name, store=store, wait_s=DEFAULT_WAIT_S)
    echo(f"{name}: {status.indexed_vectors:,} of {status.vectors:,} vectors indexed.", err=True)


@collections.command("verify")
@click.argument("name")
@shared.store_option
@shared.json_option
@click.pass_context
def verify(context: click.Context, name: str, store: str, as_json: bool) -> None:
    """Check a collection: complete, counted, indexed, and its model available. The exit status is 1 if not."""
    from pearl_qdrant.store.administration import verify_collection

    verified = verify_collection(name, store=store, model=shared.model_of_environment())
    problems = [problem.message for problem in verified.problems]
    if as_json:
        echo_json({"collection": name, "points": verified.points, "problems": problems})
    else:
        for problem in problems:
            echo(f"{name}: {problem}")
        if not problems:
            echo(f"{name}: {verified.points:,} points, complete, indexed, model verified.")
    if problems:
        context.exit(1)


_replace_option = click.option(
    "--replace", is_flag=True, help="Replace a collection of that name, which stays hidden until it is pruned."
)


@collections.command("push")
@click.argument("name")
@click.option("--to", required=True, metavar="URL", help="The server, or a folder (key of a server: QDRANT_API_KEY).")
@shared.store_option
@_replace_option
@set_option("PushSettings")
def push(name: str, settings: dict[str, Any], **given: Any) -> None:
    """Copy a collection to a server, without encoding a name again."""
    from pearl_qdrant.store.protocol import Placement
    from pearl_qdrant.transfer.moving import push_collection

    with progress_bar(name) as on_progress:
        result = push_collection(
            name, placement=Placement(**settings), wait_s=DEFAULT_WAIT_S, on_progress=on_progress, **given
        )
    _print_transfer(result)


@collections.command("pull")
@click.argument("name")
@click.option("--from", "source", required=True, metavar="URL", help="The server (key: QDRANT_API_KEY), or a folder.")
@shared.store_option
@_replace_option
def pull(name: str, **given: Any) -> None:
    """Copy a collection from a server, without encoding a name again."""
    from pearl_qdrant.transfer.moving import pull_collection

    with progress_bar(name) as on_progress:
        result = pull_collection(name, wait_s=DEFAULT_WAIT_S, on_progress=on_progress, **given)
    _print_transfer(result)


@collections.command("prune")
@click.argument("name")
@shared.store_option
@shared.yes_option()
def prune(name: str, store: str, yes: bool) -> None:
    """Delete the hidden versions of a collection that another one took the place of."""
    from pearl_qdrant.transfer.moving import prune_collection

    if not yes:
        confirm(f"Delete all older versions of collection '{name}' in {store}? This cannot be undone.")
    echo(f"{name}: {prune_collection(name, store=store)} older versions deleted.", err=True)


def _print_transfer(result: TransferResult) -> None:
    how = "as a snapshot" if result.way == "snapshot" else "streamed"
    because = f" (no snapshot: {result.reason})" if result.reason else ""
    if result.sent < result.names:
        because += f" ({result.names - result.sent:,} were there from an earlier call)"
    echo(
        f"{result.collection}: {result.names:,} names {how}{because} to {result.target} in {result.seconds:.1f} s; "
        f"{result.checked:,} compared.",
        err=True,
    )
    if result.replaced:
        remove = f"pearl-qdrant collections prune {result.collection} --store {result.target}"
        echo(f"The collection before it is kept, hidden. Remove it with: {remove}", err=True)


@click.group()
def entities() -> None:
    """Show, add and delete single entities; effective at once."""


@entities.command("show")
@click.argument("entity_id")
@shared.target_options()
@shared.json_option
def show_entity(entity_id: str, target: Target, as_json: bool) -> None:
    """Show an entity with all its names, types and description."""
    with target.open() as linker:
        entity = linker.entity(entity_id)
    if as_json:
        echo_json(asdict(entity))
        return
    for key, value in asdict(entity).items():
        shown = ", ".join(value) if isinstance(value, tuple) else value
        if shown or shown == 0:
            echo(f"{key:>16}  {shown}")


@entities.command("add")
@click.option("--id", "entity_id", required=True, help="Id within the base; an entity of this id is replaced.")
@click.option("--name", required=True, help="Canonical name.")
@click.option("--alias", "aliases", multiple=True, help="Another name; may be repeated.")
@click.option("--type", "kb_types", multiple=True, metavar="T", help="Type; may be repeated.")
@click.option("--description")
@click.option("--popularity", type=float, metavar="N", help="How well known it is, at least 0; in the base's unit.")
@shared.target_options()
def add(entity_id: str, target: Target, **given: Any) -> None:  # the fields of an entity
    """Add an entity, or replace the one of the same id.

    \b
    pearl-qdrant entities add --id my-1 --name "Acme Corporation" --alias ACME --type ORG
    """
    from pearl_qdrant import make_entity
    from pearl_qdrant.errors import InvalidEntityError

    try:
        entity = make_entity(entity_id, **given)
    except InvalidEntityError as error:
        raise click.UsageError(str(error)) from error
    with target.open(read_only=False) as linker:
        written = linker.add([entity])
    echo(f"Wrote {_count(written)} of {entity_id}.", err=True)


@entities.command("delete")
@click.argument("entity_ids", nargs=-1, required=True, metavar="ENTITY_ID...")
@shared.target_options()
@shared.yes_option()
def delete_entities(entity_ids: tuple[str, ...], target: Target, yes: bool) -> None:
    """Delete entities with all their names."""
    if not yes:
        confirm(f"Delete {', '.join(entity_ids)}? This cannot be undone.")
    with target.open(read_only=False) as linker:
        missing = linker.missing(entity_ids)
        n_deleted = linker.delete(entity_ids)
    echo(f"Deleted {_count(n_deleted)}.", err=True)
    if missing:
        raise click.ClickException(f"not found: {', '.join(missing)}")


def _count(names: int) -> str:
    return "1 name" if names == 1 else f"{names} names"
