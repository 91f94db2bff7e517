"""Training in several processes, one per GPU, started by torchrun.

    each process encodes its own pairs -> vectors and keys are gathered from all -> every process computes the loss of
    the whole batch, in which only its own vectors have gradients -> gradients are summed over the processes

The sum equals the gradient that one process with all pairs would compute. A gathered vector is
dim x 4 bytes: 4,096 pairs of 384 are 12 MB a step.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
from torch import Tensor, distributed, nn

from pearl_qdrant.encoder.runtime.torch_runtime import resolve_cuda
from training.data.batches import Shard

_TIMEOUT = timedelta(hours=2)
"""How long the other processes wait while the first one evaluates."""


def shard_of_environment() -> Shard:
    """Return rank and number of processes as torchrun sets them; without these, a single process."""
    return Shard(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))


@contextmanager
def process_group(device: torch.device) -> Iterator[Shard]:
    """Join the other processes for a `with` block, by NCCL for GPUs, else gloo; does nothing for a single process."""
    shard = shard_of_environment()
    if shard.world_size == 1:
        yield shard
        return
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if on_gpu else "gloo", timeout=_TIMEOUT)
    try:
        yield shard
    finally:
        distributed.destroy_process_group()


def local_device(device: torch.device) -> torch.device:
    """Return the GPU of this process on its machine and make it the current one; other devices come back unchanged.

    Call it before anything is loaded onto a GPU: a load onto plain "cuda" uses the current GPU.

    Raises:
        DeviceError: If the machine has fewer GPUs than processes.
    """
    if device.type != "cuda":
        return device
    if "LOCAL_RANK" in os.environ:
        device = torch.device(resolve_cuda(f"cuda:{os.environ['LOCAL_RANK']}"))
    torch.cuda.set_device(device)
    return device


def gather_rows(rows: Tensor) -> Tensor:
    """Gather the rows of all processes in the order of ranks, (sum of n, ...); only the own rows have gradients.

    Args:
        rows: (n, ...); n may differ between processes.
    """
    if not _is_joined():
        return rows
    rank, world_size = distributed.get_rank(), distributed.get_world_size()
    counts = [torch.zeros(1, dtype=torch.int64, device=rows.device) for _ in range(world_size)]
    distributed.all_gather(counts, torch.tensor([len(rows)], device=rows.device))
    sizes = [int(count) for count in counts]
    padded = rows.new_zeros((max(sizes), *rows.shape[1:]))
    padded[: len(rows)] = rows.detach()
    gathered = [torch.empty_like(padded) for _ in range(world_size)]
    distributed.all_gather(gathered, padded)
    parts = [part[:size] for part, size in zip(gathered, sizes, strict=True)]
    parts[rank] = rows
    return torch.cat(parts)


def sum_over_processes(value: Tensor) -> Tensor:
    """Sum a tensor over the processes, without gradients."""
    total = value.detach().clone()
    if _is_joined():
        distributed.all_reduce(total)
    return total


def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Set the gradient of each parameter to its sum over the processes; a missing gradient counts as zero."""
    if not _is_joined():
        return
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        distributed.all_reduce(parameter.grad)


def same_start(network: nn.Module) -> None:
    """Copy the weights of the first process to all others."""
    if _is_joined():
        for tensor in network.state_dict().values():
            distributed.broadcast(tensor, 0)


def wait_for_all() -> None:
    """Block until every process has made this call."""
    if _is_joined():
        distributed.barrier()


def _is_joined() -> bool:
    return distributed.is_available() and distributed.is_initialized()
