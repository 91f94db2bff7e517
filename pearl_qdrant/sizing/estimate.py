"""Estimate what a base of n names takes, by this arithmetic over `rates.tsv`.

    load hours, processor   n / scan + n / (load_core x cores)      counted and cut by one process; then read, encoded,
    load hours, GPU         n / scan + n / min(encode_gpu x GPUs, write_core x cores)                    and written
    graph hours             n x log(names of a shard) / log(graph_names) / (graph_core x cores) x its quantisation
    re-encoding hours       the longer of load without its scan and n / scroll, + graph
    disk                    n x (whole vectors + quantised copies + graph + payload + n-grams + payload indexes + ids)
    memory of a search      n x (quantised copies + graph + index of n-grams + payload indexes + ids), in the page cache
    shards                  n / names of a shard, rounded up; each has one graph
    nodes                   replicas x memory / (the part of a node's memory that is for it), rounded up
    one link, one process   link_ms + graph_ms x (shards - 1)
    one link, a cluster     link_ms + graph_ms x (shards of a node - 1) + server_ms, + node_ms if there are more nodes

Rates of one core are taken times the number of cores: loads and graphs of different shards share nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pearl_qdrant.errors import OptionError
from pearl_qdrant.settings import DEFAULT_QUANTIZATION
from pearl_qdrant.sizing.defaults import CORES, DIM, GPUS, NAMES_PER_SHARD, NODE_MEMORY_GB, REPLICAS
from pearl_qdrant.sizing.rates import Rate, read_rates

MEMORY_SHARE = 0.75
"""The part of a node's memory that is left for the page cache."""

QUANTIZATIONS = ("int8", "turbo", "binary", "none")

_HOUR = 3600.0
_GB = 1e9
_MAX_NAMES = 1e12
_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Machines:
    """What builds and what serves.

    Attributes:
        cores: Processor cores that build, of all machines together.
        gpus: GPUs that encode; 0 for none.
        node_memory_gb: Memory of one node that serves, in GB (10^9 bytes).
        replicas: Copies of each shard.
    """

    cores: int = CORES
    gpus: int = GPUS
    node_memory_gb: float = NODE_MEMORY_GB
    replicas: int = REPLICAS

    def __post_init__(self) -> None:
        for name, least in (("cores", 1), ("gpus", 0), ("node_memory_gb", 1), ("replicas", 1)):
            value = getattr(self, name)
            if not least <= value < math.inf:
                raise OptionError(name, f"'{name}' is {value}, but must be a number of at least {least}.")


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one copy takes under one quantisation.

    Attributes:
        quantization: How vectors are kept for finding candidates; scores come from the whole ones.
        disk_gb: Disk of one copy.
        memory_gb: Page cache that its searches need; whole vectors stay on the disk.
        graph_hours: Building all graphs.
        nodes: Nodes that hold all replicas in memory.
    """

    quantization: str
    disk_gb: float
    memory_gb: float
    graph_hours: float
    nodes: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a base takes. Hours are of all machines together, costs in dollars, sizes in GB (10^9 bytes).

    Attributes:
        names: Names of the base.
        dim: Width of the vectors.
        quantization: That of the figures beside `footprints`.
        machines: What builds and serves.
        shards: Parts with a graph each.
        load_cpu_hours, load_gpu_hours: Counting, reading, encoding and writing; None without a GPU.
        graph_hours: Building the graphs.
        build_cpu_hours, build_gpu_hours: Load and graphs.
        build_cpu_cost, build_gpu_cost: Cores, and GPUs while they encode.
        reencode_cpu_hours, reencode_gpu_hours: Another model: one process reads the stored names while they are encoded
            and written, then the graphs.
        build_memory_gb: Anonymous memory of one process that builds the graph of one shard.
        disk_gb, memory_gb: One copy.
        nodes: Nodes that hold all replicas in memory.
        link_ms: One link in one process that holds all shards.
        cluster_link_ms: One link on a cluster.
        push_hours: Sending one copy to a server as shard snapshots, one after the other.
        footprints: Disk, memory, graph and nodes under each quantisation.
    """

    names: int
    dim: int
    quantization: str
    machines: Machines
    shards: int
    load_cpu_hours: float
    load_gpu_hours: float | None
    graph_hours: float
    build_cpu_hours: float
    build_gpu_hours: float | None
    build_cpu_cost: float
    build_gpu_cost: float | None
    reencode_cpu_hours: float
    reencode_gpu_hours: float | None
    build_memory_gb: float
    disk_gb: float
    memory_gb: float
    nodes: int
    link_ms: float
    cluster_link_ms: float
    push_hours: float
    footprints: tuple[Footprint, ...]

    def to_json(self) -> dict[str, Any]:
        """The figures as plain values, rounded to six digits."""
        rounded: dict[str, Any] = _round(asdict(self))
        return rounded


def estimate_size(  # long: one line a figure
    names: float,
    machines: Machines | None = None,
    *,
    quantization: str = DEFAULT_QUANTIZATION,
    dim: int = DIM,
    names_per_shard: float = NAMES_PER_SHARD,
    rates: Mapping[str, Rate] | None = None,
) -> Estimate:
    """Estimate time, cost, disk, memory and latency of a base.

    Args:
        names: Names of the base, aliases included: one point each.
        machines: What builds and what serves.
        quantization: How vectors are kept for finding candidates.
        dim: Width of the vectors.
        names_per_shard: Names under one graph, at most.
        rates: From `read_rates`; by default those of the package.

    Raises:
        OptionError: If a number makes no sense.
    """
    names = _checked("names", names, _MAX_NAMES)
    names_per_shard = _checked("names_per_shard", names_per_shard, _MAX_NAMES)
    dim = _checked("dim", dim, 65_536)
    if quantization not in QUANTIZATIONS:
        raise OptionError(
            "quantization", f"'{quantization}' is no quantisation. There are: {', '.join(QUANTIZATIONS)}."
        )
    machines = machines or Machines()
    value = {name: rate.value for name, rate in (rates or read_rates()).items()}
    shards = math.ceil(names / names_per_shard)
    footprints = tuple(_footprint(kind, names, shards, dim, machines, value) for kind in QUANTIZATIONS)
    chosen = next(one for one in footprints if one.quantization == quantization)
    cores, gpus = machines.cores, machines.gpus
    scan = names / value["scan"] / _HOUR
    encode_cpu = names / (value["load_core"] * cores) / _HOUR
    encode_gpu = names / min(value["encode_gpu"] * gpus, value["write_core"] * cores) / _HOUR if gpus else None
    load_cpu, load_gpu = scan + encode_cpu, _plus(encode_gpu, scan)
    scroll = names / value["scroll"] / _HOUR
    build_cpu, build_gpu = load_cpu + chosen.graph_hours, _plus(load_gpu, chosen.graph_hours)
    core_price, gpu_price = value["core_price"], value["gpu_price"]
    gpu_cost = None
    if encode_gpu is not None and build_gpu is not None:
        gpu_cost = build_gpu * cores * core_price + encode_gpu * gpus * gpu_price
    nodes_of_copy = max(1, chosen.nodes // machines.replicas)
    shards_of_node = math.ceil(shards / nodes_of_copy)
    cluster_ms = value["link_ms"] + value["graph_ms"] * (shards_of_node - 1) + value["server_ms"]
    return Estimate(
        names=names,
        dim=dim,
        quantization=quantization,
        machines=machines,
        shards=shards,
        load_cpu_hours=load_cpu,
        load_gpu_hours=load_gpu,
        graph_hours=chosen.graph_hours,
        build_cpu_hours=build_cpu,
        build_gpu_hours=build_gpu,
        build_cpu_cost=build_cpu * cores * core_price,
        build_gpu_cost=gpu_cost,
        reencode_cpu_hours=max(encode_cpu, scroll) + chosen.graph_hours,
        reencode_gpu_hours=None if encode_gpu is None else max(encode_gpu, scroll) + chosen.graph_hours,
        build_memory_gb=math.ceil(names / shards) * value["graph_memory"] / _GB,
        disk_gb=chosen.disk_gb,
        memory_gb=chosen.memory_gb,
        nodes=chosen.nodes,
        link_ms=value["link_ms"] + value["graph_ms"] * (shards - 1),
        cluster_link_ms=cluster_ms + (value["node_ms"] if nodes_of_copy > 1 else 0.0),
        push_hours=chosen.disk_gb * 1e3 / value["push_mb"] / _HOUR,
        footprints=footprints,
    )


def quantized_bytes(quantization: str, dim: int) -> float:
    """Bytes of a name's quantised vector, as the engine writes it: `quantized.data` over its names."""
    return {"int8": dim + 4.0, "turbo": dim / 2 + 8, "binary": math.ceil(dim / 128) * 16.0, "none": 0.0}[quantization]


def _footprint(
    quantization: str, names: int, shards: int, dim: int, machines: Machines, value: Mapping[str, float]
) -> Footprint:
    """What one copy takes. Without quantised vectors, a search finds candidates by the whole ones, in memory."""
    whole, small = float(_FLOAT_BYTES * dim), quantized_bytes(quantization, dim)
    searched = value["graph_bytes"] + value["lexical_index_bytes"] + value["index_bytes"] + value["id_bytes"]
    memory = names * (searched + (small or whole)) / _GB
    disk = names * (searched + small + whole + value["payload_bytes"] + value["lexical_bytes"]) / _GB
    slower = {"turbo": value["graph_turbo"], "none": value["graph_none"]}.get(quantization, 1.0)
    depth = math.log(max(2.0, names / shards)) / math.log(value["graph_names"])
    graph = names * depth / (value["graph_core"] * machines.cores) * slower / _HOUR
    nodes_of_copy = math.ceil(memory / (MEMORY_SHARE * machines.node_memory_gb))
    return Footprint(quantization, disk, memory, graph, nodes_of_copy * machines.replicas)


def _checked(option: str, value: float, most: float) -> int:
    if not 1 <= value <= most:
        raise OptionError(option, f"'{option}' is {value}, but must be a number from 1 to {most:,.0f}.")
    return int(value)


def _plus(hours: float | None, more: float) -> float | None:
    return None if hours is None else hours + more


def _round(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _round(one) for key, one in value.items()}
    return [_round(one) for one in value] if isinstance(value, (list, tuple)) else value
