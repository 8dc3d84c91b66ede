"""Meta given on the command line: ``--meta key=value`` over ``--meta-file``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from latent_client.sidecars import read_meta
from latent_core.domain.errors import Invalid
from latent_core.domain.text import unsound


def meta_of(pairs: Sequence[str], file: Path | None) -> dict[str, Any]:
    """A key given several times is a list. Values are text; the server reads them as the container's
    schema says. ``Invalid`` names the flag, or file and line."""
    meta = read_meta(file) if file else {}
    given: dict[str, list[str]] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise Invalid(
                f"--meta '{pair[:80]}': write it as key=value, such as --meta city=Berlin"
            )
        given.setdefault(key.strip(), []).append(value)
    meta |= {key: values[0] if len(values) == 1 else values for key, values in given.items()}
    wrong = unsound(meta)
    if wrong is not None:
        key, why = wrong
        raise Invalid(f"--meta {key}: {why}")
    return meta
