"""The state of a training run, from which it resumes: one safetensors file, no pickle.

    network.NAME            weights
    optimizer.I.NAME        the optimizer's state of parameter I
    metadata                step, and the settings that affect what is learnt, as JSON

No random state is stored: batches and dropout are functions of seed, rank and step. The file is written beside the old
one and then replaces it, so that there is a complete file even if the process is killed.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pearl_qdrant.errors import TrainingError
from training.loop.distributed import wait_for_all

_log = logging.getLogger(__name__)


class RunState:
    """The state of a run in a file.

    Args:
        path: The file.
        network, optimizer: Whose state it is.
        identity: Settings that a resumed run must share, serialisable as JSON.
    """

    def __init__(
        self, path: Path, network: nn.Module, optimizer: torch.optim.Optimizer, identity: Mapping[str, Any]
    ) -> None:
        self.optimizer = optimizer
        self._path, self._network, self._identity = path, network, identity

    def load(self) -> int:
        """Load the state, if there is one; returns the steps done. Raises as `load_state`."""
        done = load_state(self._path, network=self._network, optimizer=self.optimizer, identity=self._identity)
        if done:
            _log.info("resuming after step %d", done)
        return done

    def clear(self, *, is_first: bool = True) -> int:
        """Remove the state; returns 0, the steps done. No process may start before the first one has removed it."""
        wait_for_all()
        if is_first:
            self._path.unlink(missing_ok=True)
        wait_for_all()
        return 0

    def save(self, step: int) -> None:
        """Write the state after a step."""
        save_state(self._path, step=step, network=self._network, optimizer=self.optimizer, identity=self._identity)


def is_due(step: int, every: int) -> bool:
    """Return whether something that happens every few steps happens after this one; 0 is never."""
    return every > 0 and step % every == 0


def save_state(
    path: Path, *, step: int, network: nn.Module, optimizer: torch.optim.Optimizer, identity: Mapping[str, Any]
) -> None:
    """Write the state after a step.

    Args:
        path: The file; an old one is replaced.
        step: Steps done.
        network: Its weights are stored.
        optimizer: Its moments are stored.
        identity: Settings that a resumed run must share, serialisable as JSON.
    """
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


def load_state(path: Path, *, network: nn.Module, optimizer: torch.optim.Optimizer, identity: Mapping[str, Any]) -> int:
    """Restore a state; returns the steps done, 0 if there is no state.

    Raises:
        TrainingError: If the file is damaged, or belongs to a run with other settings or another network.
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
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError) as error:
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
