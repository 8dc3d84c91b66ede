"""The interpreter of this installation, for files that outlive the call: a service, the start hook of an agent."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Final

from latent_core.domain.errors import Invalid

OF_UVX: Final = ("archive-v", "environments-v", "builds-v")
"""Folders of uv's cache, where uvx keeps environments until the cache is cleaned."""
OF_PIPX_RUN: Final = ((".cache", "pipx"), ("Caches", "pipx"), ("pipx", ".cache"))
"""Where `pipx run` keeps its own, for two weeks."""


def lasting(python: Path, use: str) -> Path:
    """``python``, unless it is in a temporary environment: then ``Invalid`` says that ``use`` needs another one."""
    for command, is_temporary in (("uvx", _is_of_uvx), ("pipx run", _is_of_pipx_run)):
        if is_temporary(python):
            raise Invalid(
                f"this latent runs from a temporary environment of {command}, and {use} would end with it: install it "
                "with `uv tool install latent-containers` or `pipx install latent-containers`, and call it from there"
            )
    return python


def _is_of_uvx(python: Path) -> bool:
    return any(part.startswith(OF_UVX) for part in python.parts)


def _is_of_pipx_run(python: Path) -> bool:
    return any(pair in OF_PIPX_RUN for pair in pairwise(python.parts))
