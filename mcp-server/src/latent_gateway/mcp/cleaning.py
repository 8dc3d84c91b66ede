"""Characters that people do not see and models or terminals obey: control characters (ESC begins commands of a
terminal), bidirectional overrides, and Unicode tags, which can hide a whole text."""

from __future__ import annotations

import re
from typing import Any, Final

HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)
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
