"""Chooses runtime and device of a model. Imports torch only if a GPU is requested or its driver is present."""

from __future__ import annotations

import importlib.util
import logging
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pearl_qdrant.errors import DeviceError, ModelError
from pearl_qdrant.installing import install_command

Runtime = Literal["auto", "onnx", "torch"]

logger = logging.getLogger(__name__)

_DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """Runtime and device of a model.

    Attributes:
        runtime: "onnx" or "torch".
        device: "cpu" or "cuda:N".
    """

    runtime: str
    device: str


def check_device(device: str) -> None:
    """Check the name of a device. Raises ValueError if it is not auto, cpu, cuda or cuda:N."""
    if not _DEVICE.fullmatch(device):
        raise ValueError(f"device is auto, cpu, cuda or cuda:N, not {device!r}")


def plan_device(name: str, *, device: str, runtime: Runtime, has_onnx: bool, has_torch: bool) -> DevicePlan:
    """Choose runtime and device for a model. Raises DeviceError if the device does not exist, or torch is not installed
    for it; ModelError if the model has no weights for that runtime, or torch is not installed.

    Args:
        name: The model's name, for messages.
        device: "cpu", "cuda", "cuda:N", or "auto".
        runtime: The requested runtime; "auto" is ONNX on a CPU if the model has it, else torch.
        has_onnx: Whether the model has an ONNX graph.
        has_torch: Whether it has safetensors.
    """
    if device.startswith("cuda"):
        return _on_gpu(name, device, runtime, has_torch)
    if device == "auto" and runtime != "onnx" and (gpu := _free_gpu(name, has_torch)):
        return DevicePlan("torch", gpu)
    if has_onnx and runtime != "torch":
        return DevicePlan("onnx", "cpu")
    if runtime == "onnx":
        raise ModelError(f"Model '{name}' has no ONNX graph. Use runtime auto or torch.")
    if not has_torch:
        raise ModelError(_no_torch_weights(name))
    if not torch_is_installed():
        raise ModelError(f"Model '{name}' has no ONNX graph, and torch is not installed: {install_command('torch')}")
    return DevicePlan("torch", "cpu")


def torch_is_installed() -> bool:
    """Whether torch and transformers can be imported; imports neither."""
    return all(importlib.util.find_spec(name) is not None for name in ("torch", "transformers"))


def gpu_driver_is_present() -> bool:
    """Whether an NVIDIA driver is loaded; checks for files, because importing torch takes a second."""
    if sys.platform == "win32":
        return Path(r"C:\Windows\System32\nvcuda.dll").exists()
    return any(Path(path).exists() for path in ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg"))


def _on_gpu(name: str, device: str, runtime: Runtime, has_torch: bool) -> DevicePlan:
    """The requested GPU, or an error with the reason."""
    if runtime == "onnx":
        raise DeviceError(
            device, f"Device '{device}' was requested, but ONNX graphs run only on the CPU. Use runtime torch."
        )
    if not torch_is_installed():
        raise DeviceError(
            device, f"Device '{device}' was requested, but torch is not installed: {install_command('torch')}"
        )
    from pearl_qdrant.encoder.runtime.torch_runtime import resolve_cuda

    resolved = resolve_cuda(device)
    if not has_torch:
        raise ModelError(_no_torch_weights(name))
    return DevicePlan("torch", resolved)


def _free_gpu(name: str, has_torch: bool) -> str | None:
    """A GPU for `auto`; None, with a log message, if something is missing that a present GPU needs."""
    if not gpu_driver_is_present():
        return None
    if not torch_is_installed():
        logger.info(
            "There is a GPU, but torch is not installed: %s runs on the CPU. %s", name, install_command("torch")
        )
        return None
    if not has_torch:
        logger.info("There is a GPU, but %s", _no_torch_weights(name))
        return None
    from pearl_qdrant.encoder.runtime.torch_runtime import resolve_cuda

    try:
        return resolve_cuda("cuda")
    except DeviceError as error:
        logger.info("There is a GPU driver, but %s", error)
        return None


def _no_torch_weights(name: str) -> str:
    return f"model '{name}' has no weights for torch. Rebuild them with: pearl-qdrant models export {name} --torch"
