"""Characters that nobody sees and a model reads: the usual way to hide instructions in a page (Unicode TR 36)."""

from __future__ import annotations

import re
from typing import Final

# Tags and variation selectors carry whole messages, bidi controls turn lines around.
_SMUGGLING: Final = (
    "\U000e0000-\U000e007f\U000e0100-\U000e01ef\ufe00-\ufe0e\u202a-\u202e\u2066-\u2069"
)
# Zero width and other blanks, soft hyphens, joiners of mathematics, Hangul fillers.
_BLANK: Final = "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
_ALWAYS: Final = re.compile(f"[{_SMUGGLING}{_BLANK}]")
_HIDDEN: Final = re.compile(f"[{_SMUGGLING}]")
# Joiners are spelling in Arabic and Indic scripts, and hold emoji together; elsewhere they only break words apart.
_JOINERS: Final = re.compile(
    "(?<![\u0600-\u08ff\u0900-\u109f\u1780-\u18af\ua800-\uabff\ufb50-\ufeff\u2190-\u2bff\ufe0f\U0001f000-\U0001faff])[\u200c\u200d]"
)


def strip_invisible(text: str) -> tuple[str, int]:
    """``text`` without them, and how many were of the kinds that can carry a message."""
    hidden = len(_HIDDEN.findall(text))
    return _JOINERS.sub("", _ALWAYS.sub("", text)), hidden
