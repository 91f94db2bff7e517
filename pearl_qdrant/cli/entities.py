"""`pearl-qdrant entities`: show, add, delete."""

from __future__ import annotations

from dataclasses import asdict

import click

from pearl_qdrant.cli.common.options import (
    collection_option,
    device_option,
    json_option,
    model_option,
    open_linker,
    store_option,
    yes_option,
)
from pearl_qdrant.cli.common.terminal import confirm, echo, echo_json


@click.group()
def entities() -> None:
    """Show, add and delete single entities; effective at once."""


@entities.command("show")
@click.argument("entity_id")
@collection_option
@store_option
@model_option
@json_option
def show(entity_id: str, collection: str | None, store: str, model: str | None, as_json: bool) -> None:
    """Show an entity with all its names, types and description."""
    with open_linker(store, [collection] if collection else [], model=model) as linker:
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
@collection_option
@store_option
@model_option
@device_option
def add(
    entity_id: str,
    name: str,
    aliases: tuple[str, ...],
    kb_types: tuple[str, ...],
    description: str | None,
    popularity: float | None,
    collection: str | None,
    store: str,
    model: str | None,
    device: str,
) -> None:
    """Add an entity, or replace the one of the same id.

    \b
    pearl-qdrant entities add --id my-1 --name "Acme Corporation" --alias ACME --type ORG
    """
    from pearl_qdrant import make_entity
    from pearl_qdrant.errors import InvalidEntityError

    try:
        entity = make_entity(
            entity_id, name, aliases=aliases, kb_types=kb_types, description=description, popularity=popularity
        )
    except InvalidEntityError as error:
        raise click.UsageError(str(error)) from error
    with open_linker(store, [collection] if collection else [], model=model, device=device, read_only=False) as linker:
        written = linker.add([entity])
    echo(f"Wrote {_count(written)} of {entity_id}.", err=True)


@entities.command("delete")
@click.argument("entity_ids", nargs=-1, required=True, metavar="ENTITY_ID...")
@collection_option
@store_option
@model_option
@yes_option
def delete(entity_ids: tuple[str, ...], collection: str | None, store: str, model: str | None, yes: bool) -> None:
    """Delete entities with all their names."""
    if not yes:
        confirm(f"Delete {', '.join(entity_ids)}? This cannot be undone.")
    with open_linker(store, [collection] if collection else [], model=model, read_only=False) as linker:
        missing = linker.missing(entity_ids)
        n_deleted = linker.delete(entity_ids)
    echo(f"Deleted {_count(n_deleted)}.", err=True)
    if missing:
        raise click.ClickException(f"not found: {', '.join(missing)}")


def _count(names: int) -> str:
    return "1 name" if names == 1 else f"{names} names"
