"""Where sessions run: the providers of the installed onnxruntime, in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import onnxruntime


class Device(StrEnum):
    """By the name of its provider, the first choice first."""

    CUDA = "CUDAExecutionProvider"
    ROCM = "ROCMExecutionProvider"
    MIGRAPHX = "MIGraphXExecutionProvider"
    DIRECTML = "DmlExecutionProvider"
    CPU = "CPUExecutionProvider"

    @property
    def label(self) -> str:
        return _LABELS[self]


_LABELS: Final = {
    Device.CUDA: "CUDA",
    Device.ROCM: "ROCm",
    Device.MIGRAPHX: "MIGraphX",
    Device.DIRECTML: "DirectML",
    Device.CPU: "CPU",
}
PACKAGES: Final = (
    "onnxruntime",
    "onnxruntime-gpu",
    "onnxruntime-rocm",
    "onnxruntime-migraphx",
    "onnxruntime-directml",
)
"""Each has the module ``onnxruntime``, so only one of them may be installed."""


def devices(available: Sequence[str] | None = None) -> list[Device]:
    """Those that the runtime has, in the order in which they are tried; the CPU is the last. Providers that are not
    named here are not used: TensorRT builds engines for minutes, CoreML computes in half precision."""
    found = onnxruntime.get_available_providers() if available is None else available
    return [device for device in Device if device in found or device is Device.CPU]


def described() -> str:
    """What local models run on, in words."""
    return ", else ".join(device.label for device in devices())


def runtime_packages() -> list[str]:
    """The installed ones of ``PACKAGES`` with their versions."""
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return found


def clash(packages: Sequence[str] | None = None) -> str | None:
    """What is wrong with the installed packages of the runtime, and what to do; None if nothing is."""
    found = runtime_packages() if packages is None else packages
    if len(found) < 2:
        return None
    names = " ".join(one.partition(" ")[0] for one in found)
    return (
        f"{' and '.join(found)} are installed over each other, so neither is whole: pip uninstall -y {names}, then pip"
        " install the one that fits this machine"
    )
