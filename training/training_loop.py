"""The one loop of all training: steps of an objective, with a saved state to resume from, and a log.

    state.safetensors    weights, optimizer, and what the run depends on
    log.csv              a row per step

In several processes, one per GPU, started by torchrun:

    each process encodes its own pairs -> vectors and keys are gathered from all -> every process computes the loss of
    the whole batch, in which only its own vectors have gradients -> gradients are summed over the processes

The sum equals the gradient that one process with all pairs would compute. A gathered vector is
dim x 4 bytes: 4,096 pairs of 384 are 12 MB a step.
"""

from __future__ import annotations

import csv
import json
import logging
import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import Tensor, distributed, nn

from pearl_qdrant.encoder.runtime.torch_runtime import resolve_cuda
from pearl_qdrant.errors import TrainingError
from pearl_qdrant.progress import counting_bar
from training.batches import Shard


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
    distributed.init_process_group("nccl" if on_gpu else "gloo")
    try:
        yield shard
    finally:
        distributed.destroy_process_group()


def local_device(device: torch.device) -> torch.device:
    """Return the GPU of this process on its machine and make it the current one; other devices come back unchanged.

    Call it before anything is loaded onto a GPU: a load onto plain "cuda" uses the current GPU. Raises DeviceError if
    the machine has fewer GPUs than processes.
    """
    if device.type != "cuda":
        return device
    if "LOCAL_RANK" in os.environ:
        device = torch.device(resolve_cuda(f"cuda:{os.environ['LOCAL_RANK']}"))
    torch.cuda.set_device(device)
    return device


def gather_rows(rows: Tensor) -> Tensor:  # (n, ...); n may differ between processes
    """Gather the rows of all processes in the order of ranks, (sum of n, ...); only the own rows have gradients."""
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


_log = logging.getLogger(__name__)

LOG = "log.csv"


def open_log(folder: Path, *, done: int, record: type[StepRecord]) -> TextIO:
    """Open the log of a run in a folder; on a resume, rows after the saved state (step `done`) are removed."""
    path, header = folder / LOG, [field.name for field in fields(record)]
    kept: list[list[str]] = []
    if done and path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file)
            next(rows, None)
            # A kill may have cut the last row short.
            kept = [row for row in rows if len(row) == len(header) and row[0].isdigit() and int(row[0]) <= done]
    log = path.open("w", encoding="utf-8", newline="")
    _write_rows(log, [header, *kept])
    return log


def _write_rows(log: TextIO, rows: Iterable[Iterable[object]]) -> None:
    csv.writer(log, lineterminator="\n").writerows(rows)
    log.flush()


STATE = "state.safetensors"
SAVE_SECONDS = 300.0
"""Seconds between two saved states, at most, plus one step."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class StepRecord:
    """Figures of one step. A subclass adds those of its objective: losses are floats, counts are integers."""

    step: int  # from 1
    learning_rate: float  # learning rate of the first parameters
    seconds: float  # duration of the step, waiting included
    waited: float  # share of the duration spent waiting for data, in [0, 1]


@dataclass(frozen=True, slots=True)
class LossRecord(StepRecord):
    """Figures of one step of an objective with a single loss, in nats."""

    loss: float


class Objective(ABC):
    """What a loop minimises."""

    network: nn.Module  # all weights that a state has
    # of its parameters; the key "rate" of a group is the factor of the group's learning rate
    optimizer: torch.optim.Optimizer
    record: type[StepRecord]  # figures of a step
    clip: float = 0.0  # largest norm of the gradient; 0 for no limit

    def identity(self) -> Mapping[str, Any]:
        """Return the settings that a resumed run must share, serialisable as JSON."""
        return {}

    def batches(self, steps: range) -> Iterable[Any]:
        """Return the batches of these steps, in order; by default the steps themselves."""
        return steps

    @abstractmethod
    def rate(self, step: int, factor: float) -> float:
        """Return the learning rate of a step, from 1, for parameters whose rate has a factor."""

    @abstractmethod
    def backward(self, step: int, batch: Any) -> Mapping[str, Tensor | float]:
        """Add the gradient of a step; returns the figures that the record adds to those of `StepRecord`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingLoop:
    """A run: the steps of an objective.

    With a folder it writes state.safetensors (to resume) and log.csv. With several processes (`process_group`) all run
    the same loop, and the first one writes. On Ctrl-C or SIGTERM a single process finishes its step and writes its
    state before it stops.
    """

    name: str  # of the progress bar
    objective: Objective  # what is learnt. Its network is trained in place, on the device where it is
    steps: int  # optimizer steps of the whole run
    folder: Path | None = None  # created if absent; None: nothing is written
    resume: bool = True  # resume from the state in `folder`, if there is one; otherwise the state is removed
    save_every: int = 500  # steps between two saved states, at most
    save_seconds: float = SAVE_SECONDS  # seconds between two saved states, at most, plus one step
    on_step: Callable[[Any], None] = lambda _: None  # called with the figures of each step
    shard: Shard = field(default_factory=Shard)  # this process
    progress: bool = True  # show a progress bar on stderr
    clock: Callable[[], float] = time.monotonic  # returns seconds; decides when a state is due by time

    def run(self) -> int:
        """Take the steps that are not done; returns the steps done, all of them unless it was stopped. Raises
        TrainingError if the state in the folder is of another run, or a loss is not finite.
        """
        done = self._load()
        same_start(self.objective.network)
        is_single, is_first = self.shard.world_size == 1, self.shard.rank == 0
        # With several processes one of them cannot stop alone: the others would wait for it. A single one stops after
        # the log is closed.
        no_stop: list[int] = []
        with deferred_stop() if is_single else nullcontext(no_stop) as stop, ExitStack() as stack:
            log = None
            if self.folder is not None and is_first:
                log = stack.enter_context(open_log(self.folder, done=done, record=self.objective.record))
            hidden = not (self.progress and is_first)
            bar = counting_bar(self.name, "step", self.steps, initial=done, disable=hidden)
            stack.enter_context(bar)
            saved_at = self.clock()
            for record in self._records(range(done + 1, self.steps + 1)):
                done, is_last = record.step, record.step == self.steps
                own = list(asdict(record).items())[len(fields(StepRecord)) :]
                bar.set_postfix(
                    {name: f"{value:.4g}" for name, value in own if isinstance(value, float)}, refresh=False
                )
                bar.update()
                if log is not None:
                    figures = asdict(record).values()
                    _write_rows(log, [[one if isinstance(one, int) else f"{one:.6g}" for one in figures]])
                self.on_step(record)
                # Clock and stop request are read after the call, which may take long.
                is_overdue = self.clock() - saved_at >= self.save_seconds
                is_stopping, is_saved = bool(stop), is_last or done % self.save_every == 0
                if log is not None and (is_saved or is_stopping or is_overdue):
                    self._save(done)
                    saved_at = self.clock()
                if is_saved:
                    wait_for_all()
                if is_stopping:
                    break
        return done

    def _records(self, steps: range) -> Iterator[StepRecord]:
        """Take steps, and yield a record of each."""
        objective, optimizer = self.objective, self.objective.optimizer
        trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        began = time.perf_counter()
        for step, batch in zip(steps, objective.batches(steps), strict=True):
            waited = time.perf_counter() - began
            for group in optimizer.param_groups:
                group["lr"] = objective.rate(step, group.get("rate", 1.0))
            optimizer.zero_grad()
            figures = objective.backward(step, batch)
            sum_gradients(trained)
            if objective.clip:
                nn.utils.clip_grad_norm_(trained, objective.clip)
            optimizer.step()
            # The figures are read after the step is taken: until then a GPU need not wait.
            known = {name: value.item() if isinstance(value, Tensor) else value for name, value in figures.items()}
            rate, seconds = objective.rate(step, 1.0), time.perf_counter() - began
            if not all(abs(value) < float("inf") for value in known.values()):
                shown = ", ".join(f"{value} ({name})" for name, value in known.items())
                raise TrainingError(
                    f"step {step}: the loss is not finite: {shown}. Start over with a learning rate below {rate:g}, or "
                    f"in fp32"
                )
            yield objective.record(step=step, learning_rate=rate, seconds=seconds, waited=waited / seconds, **known)
            began = time.perf_counter()

    def _load(self) -> int:
        """Load the state or remove it; returns the steps done. No process starts before the first has removed it."""
        if self.folder is None:
            return 0
        self.folder.mkdir(parents=True, exist_ok=True)
        path, objective = self.folder / STATE, self.objective
        if self.resume:
            done = load_state(path, objective.network, objective.optimizer, objective.identity())
            if done:
                _log.info("resuming after step %d", done)
            return done
        wait_for_all()
        if self.shard.rank == 0:
            path.unlink(missing_ok=True)
        wait_for_all()
        return 0

    def _save(self, step: int) -> None:
        assert self.folder is not None
        objective = self.objective
        save_state(self.folder / STATE, step, objective.network, objective.optimizer, objective.identity())


def save_state(
    path: Path, step: int, network: nn.Module, optimizer: torch.optim.Optimizer, identity: Mapping[str, Any]
) -> None:
    """Write the state after a step; an old file is replaced."""
    from safetensors.torch import save_file

    tensors = {f"network.{name}": tensor for name, tensor in network.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": torch.as_tensor(value) for name, value in state.items()}
    # Tied weights share memory, which safetensors does not accept.
    copied = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }
    part = path.with_suffix(".part")
    save_file(copied, part, metadata={"step": str(step), "identity": json.dumps(dict(identity), sort_keys=True)})
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.replace(path)


def load_state(path: Path, network: nn.Module, optimizer: torch.optim.Optimizer, identity: Mapping[str, Any]) -> int:
    """Restore a state; returns the steps done, 0 if there is no state. Raises TrainingError if the file is damaged, or
    belongs to a run with other settings or another network.
    """
    if not path.exists():
        return 0
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        step, before = int(metadata["step"]), dict(json.loads(metadata["identity"]))
        states: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _under(tensors, "optimizer.").items():
            index, _, key = name.partition(".")
            states.setdefault(int(index), {})[key] = tensor
    except (SafetensorError, KeyError) as error:
        raise TrainingError(f"{path} is not the state of a training run ({error}). Remove it to start over") from error
    now = json.loads(json.dumps(dict(identity)))
    keys = sorted({*before, *now})
    other = [f"{key} {before.get(key)!r}, now {now.get(key)!r}" for key in keys if before.get(key) != now.get(key)]
    if other:
        raise TrainingError(
            f"{path} is of a run with other settings ({'; '.join(other[:4])}). Resume with the same settings, write to "
            f"another folder, or start over with restart"
        )
    try:
        network.load_state_dict(_under(tensors, "network."))
    except RuntimeError as error:
        raise TrainingError(f"{path} is of another network ({error}). Write to another folder") from error
    optimizer.load_state_dict({"state": states, "param_groups": optimizer.state_dict()["param_groups"]})
    return step


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names start with a prefix, without the prefix."""
    return {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}


@contextmanager
def deferred_stop() -> Iterator[list[int]]:
    """Record the number of a first Ctrl-C or SIGTERM within the block; it takes effect at the end of the block.

    A second signal takes effect at once. An ignored signal stays ignored. Only the main thread can set handlers: in
    another thread nothing is deferred.
    """
    stop: list[int] = []
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    # None is a handler that was not set from Python, and that Python cannot restore.
    deferred = [number for number in _SIGNALS if before[number] not in (signal.SIG_IGN, None)]
    if threading.current_thread() is not threading.main_thread():
        deferred = []

    def restore() -> None:
        for number in deferred:
            signal.signal(number, before[number])

    def note(number: int, _: object) -> None:
        stop.append(number)
        restore()
        _log.warning("stopping after this step; a second signal stops without saving")

    for number in deferred:
        signal.signal(number, note)
    try:
        yield stop
    finally:
        restore()
    for caught in stop:
        signal.raise_signal(caught)
