"""`pearl-qdrant reencode`: another model for the names of a collection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pearl_qdrant.cli.common.options import device_option, json_option, progress_bar, store_option, wait_option
from pearl_qdrant.cli.common.terminal import echo, echo_json

if TYPE_CHECKING:
    from pearl_qdrant.transfer.everyday import EverydayChange
    from pearl_qdrant.transfer.reencoding import ReencodeResult


@click.command()
@click.argument("name", metavar="COLLECTION")
@click.option("--model", help="Shipped name, folder or hub id of the new model.")
@click.option("--rollback", is_flag=True, help="Go back to the version before the current one.")
@click.option(
    "--everyday",
    is_flag=True,
    help="Before the switch, answer everyday mentions of the names with both models; do not switch if the mean falls.",
)
@click.option(
    "--mentions",
    type=click.IntRange(1),
    help="Everyday mentions, equally many of each kind; with --everyday.  [default: 1000]",
)
@click.option(
    "--max-fall",
    type=click.FloatRange(0),
    metavar="POINTS",
    help="Switch if the mean falls by at most so many points; with --everyday.  [default: 0]",
)
@store_option
@device_option
@wait_option
@json_option
def reencode(
    name: str,
    model: str | None,
    rollback: bool,
    everyday: bool,
    mentions: int | None,
    max_fall: float | None,
    as_json: bool,
    **given: Any,  # store, device and wait_s
) -> None:
    """Encode the names of a collection again with another model, without downtime.

    The version before it is kept, hidden. The same command goes on where it was killed. With --everyday it ends with
    status 1 if the new model is worse; the same command with --max-fall switches then, without encoding again.
    """
    from pearl_qdrant.transfer.reencoding import EVERYDAY_MENTIONS, reencode_collection, rollback_collection

    if rollback == (model is not None):
        raise click.UsageError("Give --model with the new model, or --rollback.")
    if not everyday and (mentions is not None or max_fall is not None):
        raise click.UsageError("--mentions and --max-fall belong to --everyday.")
    if everyday and rollback:
        raise click.UsageError("--everyday compares the models of --model, and --rollback has none.")
    with progress_bar(name) as on_progress:
        if model is None:
            result = rollback_collection(name, on_progress=on_progress, **given)
        else:
            n_mentions = (mentions or EVERYDAY_MENTIONS) if everyday else None
            result = reencode_collection(
                name, model=model, everyday=n_mentions, max_fall=max_fall or 0.0, on_progress=on_progress, **given
            )
    _print(result, given["store"], as_json=as_json)
    if not result.switched and result.everyday is not None:
        click.get_current_context().exit(1)


def _print(result: ReencodeResult, store: str, *, as_json: bool) -> None:
    if as_json:
        echo_json(result.to_json())
        return
    if result.everyday is not None:
        _print_everyday(result, result.everyday)
    if not result.switched and result.everyday is not None:
        echo(
            f"{result.collection}: stays with {result.model_before}. The version with {result.model} is kept, hidden: "
            f"the same command with --max-fall {result.everyday.fall + 0.01:.2f} switches to it, and collections prune "
            f"deletes it.",
            err=True,
        )
        return
    if not result.switched:
        echo(f"{result.collection}: its {result.names:,} names are encoded with {result.model} already.", err=True)
        return
    recall = "" if result.recall is None else f"Recall of a sample: {result.recall:.3f}. "
    echo(
        f"{result.collection}: {result.model} in place of {result.model_before}; {result.encoded:,} of "
        f"{result.names:,} names encoded in {result.seconds:.1f} s, writers waited {result.switch_seconds:.1f} s.",
        f"{recall}Calibrations belong to a model: see pearl-qdrant calibrate.",
        f"Back: pearl-qdrant reencode {result.collection} --rollback --store {store}",
        f"When no reader needs the old version: pearl-qdrant collections prune {result.collection} --store {store}",
        err=True,
    )


def _print_everyday(result: ReencodeResult, change: EverydayChange) -> None:
    echo(
        f"right of {change.mentions:,} everyday mentions, %   {result.model_before}   {result.model}",
        *(f"{one.kind:<18}{one.mentions:>6,}{one.before:>8.1f}{one.after:>8.1f}" for one in change.kinds),
        f"{'mean of the kinds':<24}{change.before:>8.1f}{change.after:>8.1f}"
        f"   ({-change.fall:+.1f}, standard error {change.error:.1f})",
        err=True,
    )
