"""Estimates as a table: a column a base."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pearl_qdrant.sizing.estimate import Estimate

_WIDTH = 42
_CELL = 18

_Row = tuple[str, Callable[[Estimate], str]]


def format_estimates(estimates: Sequence[Estimate]) -> str:
    """The table that `pearl-qdrant size` prints.

    Args:
        estimates: At least one, all with the same machines, width and quantisation.
    """
    first = estimates[0]
    rows = [("names", _names), *_building(first), *_serving(first)]
    lines = [_line(title, [cell(one) for one in estimates]) for title, cell in rows]
    for i, footprint in enumerate(first.footprints):
        title = f"{footprint.quantization}: disk, memory, nodes"
        lines.append(_line(title, [_footprint(one, i) for one in estimates]))
    return "\n".join(lines)


def _line(title: str, cells: Sequence[str]) -> str:
    return (f"{title:<{_WIDTH}}" + "".join(f"{cell:>{_CELL}}" for cell in cells)).rstrip()


def _names(estimate: Estimate) -> str:
    return f"{estimate.names:,}"


def _building(first: Estimate) -> list[_Row]:
    cores, gpus = f"{first.machines.cores} cores", f"{first.machines.gpus} GPU"
    rows: list[_Row] = [
        (f"read, encode, write: {cores}", lambda one: _hours(one.load_cpu_hours)),
        (f"  the same, {gpus} encode", lambda one: _hours(one.load_gpu_hours)),
        (f"graphs: {cores}", lambda one: _hours(one.graph_hours)),
        (f"all of it: {cores}", lambda one: _hours(one.build_cpu_hours)),
        ("  cost", lambda one: _dollars(one.build_cpu_cost)),
        (f"all of it: {cores}, {gpus}", lambda one: _hours(one.build_gpu_hours)),
        ("  cost", lambda one: _dollars(one.build_gpu_cost)),
        (f"another model: {cores}", lambda one: _hours(one.reencode_cpu_hours)),
        (f"  the same, {gpus} encode", lambda one: _hours(one.reencode_gpu_hours)),
        ("memory that builds one graph", lambda one: _gb(one.build_memory_gb)),
    ]
    return rows


def _serving(first: Estimate) -> list[_Row]:
    copies = first.machines.replicas
    return [
        ("shards, a graph each", lambda one: f"{one.shards:,}"),
        (f"nodes of {first.machines.node_memory_gb:,.0f} GB, {copies} replicas", lambda one: f"{one.nodes:,}"),
        ("one link, one process", lambda one: f"{one.link_ms:,.0f} ms"),
        ("one link, the cluster", lambda one: f"{one.cluster_link_ms:,.0f} ms"),
        ("sending one copy to a server", lambda one: _hours(one.push_hours)),
        ("one copy (GB of disk, GB of memory, nodes)", lambda one: ""),
    ]


def _footprint(estimate: Estimate, i: int) -> str:
    one = estimate.footprints[i]
    return f"{_number(one.disk_gb)}, {_number(one.memory_gb)}, {one.nodes:,}"


def _hours(hours: float | None) -> str:
    return "-" if hours is None else f"{_number(hours)} h"


def _dollars(cost: float | None) -> str:
    return "-" if cost is None else f"${_number(cost)}"


def _gb(size: float) -> str:
    return f"{_number(size)} GB"


def _number(value: float) -> str:
    """Two digits at least, without a tail that nobody measured."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
