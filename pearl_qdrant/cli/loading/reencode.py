"""`pearl-qdrant reencode`: another model for the names of a collection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pearl_qdrant.cli.common.bars import progress_bar
from pearl_qdrant.cli.common.options import device_option, json_option, store_option, wait_option
from pearl_qdrant.cli.common.terminal import echo, echo_json

if TYPE_CHECKING:
    from pearl_qdrant.transfer.reencoding import ReencodeResult


@click.command()
@click.argument("name", metavar="COLLECTION")
@click.option("--model", help="Shipped name, folder or hub id of the new model.")
@click.option("--rollback", is_flag=True, help="Go back to the version before the current one.")
@store_option
@device_option
@wait_option
@json_option
def reencode(
    name: str, model: str | None, rollback: bool, store: str, device: str, wait_s: float, as_json: bool
) -> None:
    """Encode the names of a collection again with another model, without downtime.

    The version before it is kept, hidden. The same command goes on where it was killed.
    """
    from pearl_qdrant.transfer.reencoding import reencode_collection, rollback_collection

    if rollback == (model is not None):
        raise click.UsageError("Give --model with the new model, or --rollback.")
    with progress_bar(name) as on_progress:
        if model is None:
            result = rollback_collection(name, store=store, device=device, wait_s=wait_s, on_progress=on_progress)
        else:
            result = reencode_collection(
                name, model=model, store=store, device=device, wait_s=wait_s, on_progress=on_progress
            )
    _print(result, store, as_json=as_json)


def _print(result: ReencodeResult, store: str, *, as_json: bool) -> None:
    if as_json:
        echo_json(result.to_json())
        return
    if not result.switched:
        echo(f"{result.collection}: its {result.names:,} names are encoded with {result.model} already.", err=True)
        return
    echo(
        f"{result.collection}: {result.model} in place of {result.model_before}; {result.encoded:,} of "
        f"{result.names:,} names encoded in {result.seconds:.1f} s, writers waited {result.switch_seconds:.1f} s.",
        f"Recall of a sample: {result.recall:.3f}. Calibrations belong to a model: see pearl-qdrant calibrate.",
        f"Back: pearl-qdrant reencode {result.collection} --rollback --store {store}",
        f"When no reader needs the old version: pearl-qdrant collections prune {result.collection} --store {store}",
        err=True,
    )
