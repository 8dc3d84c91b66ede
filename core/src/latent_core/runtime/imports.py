"""Imports of a starting process: a command of a person takes as long as these."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

LOOKED_FOR: Final = ("sniffio",)


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import modules without garbage collection: nearly all that they create stays, and looking through it again
    and again is a tenth of the start."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def remember_absent(names: tuple[str, ...] = LOOKED_FOR) -> None:
    """Make imports of absent packages fail without a search. Called in a composition root."""
    for name in names:
        if name not in sys.modules and find_spec(name) is None:
            sys.modules[name] = None  # type: ignore[assignment]  # documented: the import then fails


@contextmanager
def without_packages(*names: str) -> Iterator[None]:
    """Make imports of these packages fail for the length of the block, for libraries that can do without them."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # documented: the import then fails
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
