"""`pearl-qdrant train head`."""

from __future__ import annotations

from pathlib import Path

import click

from pearl_qdrant.cli.common.extras import needs_extra
from pearl_qdrant.cli.common.options import device_option, json_option
from pearl_qdrant.cli.common.terminal import echo, echo_json
from pearl_qdrant.cli.train.inputs import (
    aliases_option,
    max_errors_option,
    min_count_option,
    phrases_option,
    read_material,
    refuse_overwriting,
)

_PATH = click.Path(path_type=Path)


@click.command()
@click.option("--base", "model", required=True, metavar="DIR|HUB", help="Encoder that stays as it is.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Checkpoint to write.")
@phrases_option
@click.option("--typed-names", type=_PATH, multiple=True, metavar="F",
              help="TSV of names and entity types; may be repeated.")  # fmt: skip
@aliases_option
@click.option("--epochs", type=click.IntRange(1), default=12, show_default=True)
@click.option("--learning-rate", type=click.FloatRange(0, min_open=True), default=3e-3, show_default=True)
@click.option("--balance", type=click.FloatRange(0, 1), default=0.5, show_default=True,
              help="0 draws each name alike, 1 each type alike.")  # fmt: skip
@click.option("--max-each", type=click.IntRange(1), default=20_000, show_default=True, help="Names of one type.")
@click.option("--no-hold-out", is_flag=True, help="Use all names, and keep none for a test.")
@click.option("--name", metavar="NAME", help="Of the model.  [default: the folder's]")
@click.option("--pooling", type=click.Choice(["mean", "cls"]), help="In place of what the base says.")
@click.option("--prefix", metavar="TEXT", help="Before each name, in place of the base's own.")
@click.option("--seed", type=int, default=0, show_default=True)
@min_count_option
@max_errors_option
@device_option
@json_option
def head(
    model: str,
    out: Path,
    phrases: tuple[Path, ...],
    typed_names: tuple[Path, ...],
    aliases: tuple[Path, ...],
    epochs: int,
    learning_rate: float,
    balance: float,
    max_each: int,
    no_hold_out: bool,
    name: str | None,
    pooling: str | None,
    prefix: str | None,
    seed: int,
    min_count: int,
    max_errors: int,
    device: str,
    as_json: bool,
) -> None:
    """Fit a type head on a frozen encoder, and write both as a checkpoint.

    A tenth of the names is held out and scored.

    \b
    pearl-qdrant train head --base Lihuchen/pearl_small --phrases phrase_with_etype.txt --out pearl-small-typed
    pearl-qdrant train head --base averaged/ --typed-names names.tsv --out typed
    """
    refuse_overwriting(out, model, *phrases)
    with needs_extra("train"):
        from training.head.run import HeadOptions, run_head
        from training.networks.base_network import find_device, open_base

        place = find_device(device)
        examples = read_material(phrases, aliases, typed_names=typed_names, min_count=min_count, max_errors=max_errors)
        base = open_base(model, name=name or out.name, pooling=pooling, prefix=prefix, seed=seed)
        options = HeadOptions(epochs, learning_rate, balance, max_each, not no_hold_out, seed)
        try:
            scores = run_head(base, examples, options, out, device=place)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    if as_json:
        found = {} if scores is None else {"accuracy": scores.accuracy, "macro_f1": scores.macro_f1, "n": scores.n}
        echo_json({"model": str(out), **found})
    elif scores is not None:
        echo(f"{out}: accuracy {scores.accuracy:.1%}, macro-F1 {scores.macro_f1:.3f} on {scores.n:,} names")
