"""Opens ONNX files in the runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as runtime

from latent_core.domain.errors import Invalid

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


def open_session(path: Path, *, name: str, threads: int) -> Any:
    """A session whose runs use ``threads``. ``Invalid`` if the model cannot be loaded; it tells no path."""
    try:
        return onnxruntime.InferenceSession(
            str(path), _options(threads), providers=["CPUExecutionProvider"]
        )
    except _LOAD_ERRORS as exc:
        reason = str(exc).replace(str(path.parent), "…")
        raise Invalid(f"the model {path.name} of {name} cannot be loaded: {reason}") from exc


def _options(threads: int) -> Any:
    """Concurrent runs share the session's arena, which takes less memory than separate heaps. Sizes vary too much
    for a memory pattern. Threads stop spinning when a run ends."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options
