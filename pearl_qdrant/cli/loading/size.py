"""`pearl-qdrant size`."""

from __future__ import annotations

import click

from pearl_qdrant.cli.common.options import json_option
from pearl_qdrant.cli.common.terminal import echo, echo_json
from pearl_qdrant.settings import DEFAULT_QUANTIZATION
from pearl_qdrant.sizing import defaults


@click.command()
@click.option("--names", multiple=True, type=float, required=True, help="Names of the base, as 150e6; may be repeated.")
@click.option(
    "--cores", type=int, default=defaults.CORES, show_default=True, help="Processor cores that build, all together."
)
@click.option("--gpus", type=int, default=defaults.GPUS, show_default=True, help="GPUs that encode; 0 for none.")
@click.option(
    "--node-memory-gb",
    type=float,
    default=defaults.NODE_MEMORY_GB,
    show_default=True,
    help="Memory of a node that serves.",
)
@click.option("--replicas", type=int, default=defaults.REPLICAS, show_default=True, help="Copies of each shard.")
@click.option(
    "--quantization",
    type=click.Choice(["none", "int8", "binary", "turbo"]),
    default=DEFAULT_QUANTIZATION,
    show_default=True,
    help="That of times, nodes and links; the last lines show all.",
)
@click.option("--dim", type=int, default=defaults.DIM, show_default=True, help="Width of the model's vectors.")
@click.option(
    "--names-per-shard",
    type=float,
    default=defaults.NAMES_PER_SHARD,
    show_default=True,
    help="Names under one graph, at most.",
)
@click.option("--rates", type=click.Path(dir_okay=False), help="A file of rates in place of the package's.")
@click.option("--show-rates", is_flag=True, help="Also print each rate with its machine and source.")
@json_option
def size(
    names: tuple[float, ...],
    cores: int,
    gpus: int,
    node_memory_gb: float,
    replicas: int,
    quantization: str,
    dim: int,
    names_per_shard: float,
    rates: str | None,
    show_rates: bool,
    as_json: bool,
) -> None:
    """Estimate hours, cost, disk, memory, shards and latency of a base, from measured rates.

    \b
    pearl-qdrant size --names 9e6 --names 150e6 --names 1e9
    pearl-qdrant size --names 150e6 --cores 64 --gpus 8 --quantization binary
    """
    from pearl_qdrant.sizing import Machines, estimate_size, format_estimates, read_rates
    from pearl_qdrant.sizing.rates import RATES_FILE

    known = read_rates(rates or RATES_FILE)
    machines = Machines(cores, gpus, node_memory_gb, replicas)
    estimates = [
        estimate_size(one, machines, quantization=quantization, dim=dim, names_per_shard=names_per_shard, rates=known)
        for one in names
    ]
    if as_json:
        for estimate in estimates:
            echo_json(estimate.to_json())
        return
    echo(*format_estimates(estimates).splitlines())
    if show_rates:
        for rate in known.values():
            where = f"{rate.kind}, {rate.machine}, {rate.date}: {rate.source}"
            echo(f"{rate.name:<20}{rate.value:>12,g}  {rate.unit} ({where})")
