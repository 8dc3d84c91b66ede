"""PyMuPDF without its layout model, whose import costs 60 MB and half a second."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, cast


class PdfError(Exception):
    """MuPDF could not read something, for a reason other than memory."""


def load() -> Any:
    """The ``pymupdf`` module without console output; only for children of the sandbox."""
    modules = cast("dict[str, ModuleType | None]", sys.modules)
    modules.setdefault("pymupdf.layout", None)
    modules.setdefault("pymupdf4llm", None)
    pymupdf: Any = importlib.import_module("pymupdf")
    pymupdf.TOOLS.mupdf_display_errors(False)
    pymupdf.TOOLS.mupdf_display_warnings(False)
    pymupdf.no_recommend_layout()
    return pymupdf


@contextmanager
def reading() -> Iterator[None]:
    """Maps MuPDF's errors to ``PdfError``, and a failed allocation to ``MemoryError``."""
    pymupdf = load()
    try:
        yield
    except (pymupdf.mupdf.FzErrorBase, RuntimeError, ValueError, IndexError) as exc:
        if "malloc" in str(exc) or "out of memory" in str(exc):
            raise MemoryError from exc
        raise PdfError(str(exc)) from exc
