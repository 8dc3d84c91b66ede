"""Texts without hidden characters."""

from __future__ import annotations

import re
from typing import Any, Final

from latent_core.domain.text import HIDDEN

LINE_END: Final = re.compile("\r\n?")


def visible(text: str) -> str:
    """``text`` without them; line ends are LF."""
    return HIDDEN.sub("", LINE_END.sub("\n", text))


def cleaned(value: Any) -> Any:
    """All texts within a JSON value, keys included."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(key): cleaned(inner) for key, inner in value.items()}
    return [cleaned(inner) for inner in value] if isinstance(value, list) else value
