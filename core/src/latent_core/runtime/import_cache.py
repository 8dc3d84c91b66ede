"""Packages that others look for and that are not installed: looked for once, not at every request.

httpcore imports ``sniffio`` several times a request. Where it is not there, each time is a search through all
folders of packages: a third of what a small request costs.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Final

LOOKED_FOR: Final = ("sniffio",)


def remember_absent(names: tuple[str, ...] = LOOKED_FOR) -> None:
    """Have Python say of those that are absent that they are, without a search. For a composition root."""
    for name in names:
        if name not in sys.modules and find_spec(name) is None:
            sys.modules[name] = None  # type: ignore[assignment]  # documented: it then cannot be found
