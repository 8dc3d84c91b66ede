"""Opens ONNX files in the runtime."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as runtime

from latent_core.domain.errors import Invalid
from latent_core.models.onnx.device import Device, devices

logger = logging.getLogger(__name__)
RUN_ERRORS: Final = (
    runtime.Fail,
    runtime.InvalidArgument,
    runtime.NotImplemented,
    runtime.RuntimeException,
)
_LOAD_ERRORS: Final = (
    *RUN_ERRORS,
    runtime.InvalidGraph,
    runtime.InvalidProtobuf,
    runtime.NoSuchFile,
)


def open_session(path: Path, *, name: str, threads: int, device: Device = Device.CPU) -> Any:
    """A session whose runs use ``threads``, on ``device``. ``Invalid`` if the model cannot be loaded; it tells no path.
    Operators that a GPU lacks run on the CPU; a GPU that cannot be opened is an error."""
    providers = [device.value] if device is Device.CPU else [device.value, Device.CPU.value]
    try:
        session = onnxruntime.InferenceSession(str(path), _options(threads), providers=providers)
    except _LOAD_ERRORS as exc:
        reason = str(exc).replace(str(path.parent), "…")
        raise Invalid(f"the model {path.name} of {name} cannot be loaded: {reason}") from exc
    session.disable_fallback()  # else a failing GPU would become the CPU without a word
    if session.get_providers()[0] != device.value:
        raise Invalid(
            f"{device.label} cannot be opened for {name}: onnxruntime has it, but not its libraries or a device"
        )
    return session


def open_on_first_device(path: Path, *, name: str, threads: int) -> Any:
    """As ``open_session``, on the first device that can be opened: for results that are never stored next to others."""
    for device in devices():
        if device is not Device.CPU:
            try:
                return open_session(path, name=name, threads=threads, device=device)
            except Invalid as exc:
                note_unused(name, device, exc.message)
    return open_session(path, name=name, threads=threads)


def note_unused(name: str, device: Device, reason: str) -> None:
    logger.warning(
        "device_not_used", extra={"model": name, "device": device.label, "reason": reason}
    )


def _options(threads: int) -> Any:
    """Concurrent runs share the session's arena, which takes less memory than separate heaps. Sizes vary too much
    for a memory pattern. Threads stop spinning when a run ends."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options
