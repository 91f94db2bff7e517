"""`pearl-qdrant collections`: list, show, delete, finalize, verify."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from pearl_qdrant.cli.common.options import (
    json_option,
    model_option,
    open_store_at,
    store_option,
    wait_option,
    yes_option,
)
from pearl_qdrant.cli.common.terminal import confirm, echo, echo_json

if TYPE_CHECKING:
    from pearl_qdrant.store.protocol import Collection


@click.group()
def collections() -> None:
    """See and care for collections."""


@collections.command("list")
@store_option
@json_option
def list_collections(store: str, as_json: bool) -> None:
    """List the collections of a store."""
    opened = open_store_at(store)
    try:
        names = opened.collections()
    finally:
        opened.close()
    if not names and not as_json:
        echo(f"No collections in {store}.", err=True)
    for name in names:
        if as_json:
            echo_json({"collection": name})
        else:
            echo(name)


@collections.command("show")
@click.argument("name")
@store_option
@json_option
def show(name: str, store: str, as_json: bool) -> None:
    """Show what a collection holds: its base, model, counts and types."""
    with _opened(store, name) as collection:
        status, manifest = collection.status(), collection.manifest
        facts: dict[str, Any] = {
            **manifest.model_dump(exclude={"format_version", "checkpoints", "ngram_rarity"}),
            "points": status.points,
            "vectors": status.vectors,
            "indexed_vectors": status.indexed_vectors,
            "segments": status.segments,
            "is_finalized": status.is_finalized,
            "types": collection.type_counts(limit=25),
        }
    if as_json:
        echo_json(facts)
        return
    types = facts.pop("types")
    facts["calibration"] = _calibration_line(facts["calibration"])
    for key, value in facts.items():
        echo(f"{key:>16}  {value}")
    for kind, counts in types.items():
        line = ", ".join(f"{k} {n:,}" for k, n in sorted(counts.items(), key=lambda kv: -kv[1]))
        echo(f"{kind:>16}  {line or '-'}")


def _calibration_line(calibration: dict[str, Any] | None) -> str:
    """What was fitted, without the ranking's coefficients: `--json` has them."""
    if calibration is None:
        return "as it comes with the package"
    ranking = "as shipped" if calibration["features"] is None else "fitted too"
    fitted = {key: value for key, value in calibration.items() if key not in ("features", "nil_features")}
    shown = (f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in fitted.items())
    return ", ".join([*shown, f"ranking {ranking}"])


@collections.command("delete")
@click.argument("name")
@store_option
@yes_option
def delete(name: str, store: str, yes: bool) -> None:
    """Delete a collection with all its points."""
    opened = open_store_at(store)
    try:
        if not yes:
            confirm(f"Delete collection '{name}' in {opened.location} for good?")
        opened.delete(name)
    finally:
        opened.close()
    echo(f"Deleted {name}.", err=True)


@collections.command("finalize")
@click.argument("name")
@store_option
@wait_option
def finalize(name: str, store: str, wait_s: float) -> None:
    """Build the graph of a collection, for fast search."""
    with _opened(store, name, wait_s) as collection:
        collection.finalize()
        status = collection.status()
    echo(f"{name}: {status.indexed_vectors:,} of {status.vectors:,} vectors indexed.", err=True)


@collections.command("verify")
@click.argument("name")
@store_option
@model_option
@json_option
@click.pass_context
def verify(context: click.Context, name: str, store: str, model: str | None, as_json: bool) -> None:
    """Check a collection: complete, counted, indexed, and its model at hand. Exit status 1 if not."""
    with _opened(store, name) as collection:
        problems = list(_problems(collection, model))
        points = collection.count()
    if as_json:
        echo_json({"collection": name, "points": points, "problems": problems})
    else:
        for problem in problems:
            echo(f"{name}: {problem}")
        if not problems:
            echo(f"{name}: {points:,} points, complete, indexed, model verified.")
    if problems:
        context.exit(1)


def _problems(collection: Collection, model: str | None) -> Iterator[str]:
    """What is wrong with a collection, each with the way out."""
    from pearl_qdrant.encoder.loading import load_encoder
    from pearl_qdrant.errors import ModelError, ModelMismatchError
    from pearl_qdrant.store.schema import INDEXED_FIELDS

    manifest, status = collection.manifest, collection.status()
    if manifest.state != "ready":
        yield "its load did not complete. Run the same ingest command again; it goes on where it stopped."
    elif status.points != manifest.names:
        yield f"{status.points:,} points, but {manifest.names:,} names were written. Ingest again, it doubles nothing."
    if not status.is_finalized:
        yield f"no graph yet, search is exact but slow. Build it with: collections finalize {collection.name}"
    if absent := [field for field in INDEXED_FIELDS if field not in status.payload_indexes]:
        yield f"no payload index on {', '.join(absent)}; filters are slow or refused. Ingest again with --restart."
    try:
        encoder = load_encoder(model or manifest.model, device="cpu", pooling=manifest.pooling, prefix=manifest.prefix)
        manifest.check_model(encoder.info)
    except (ModelError, ModelMismatchError) as error:
        yield str(error)


@contextmanager
def _opened(store: str, name: str, wait_s: float | None = None) -> Iterator[Collection]:
    """A collection of a store, closed afterwards."""
    opened = open_store_at(store, wait_s=wait_s)
    try:
        yield opened.open(name)
    finally:
        opened.close()
