"""Server-sent events (WHATWG HTML, "Server-sent events"): the data of each, from the bytes of a response."""

from __future__ import annotations

import codecs
import re
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

MEDIA_TYPE: Final = "text/event-stream"
_END_OF_LINE: Final = re.compile(r"\r\n|\n|\r")


async def event_data(pieces: AsyncIterator[bytes]) -> AsyncGenerator[str, None]:
    """The data of each whole event. One that the end of the response cuts is dropped, as the standard requires."""
    data: list[str] = []
    async for line in _lines(pieces):
        if not line:
            if data:
                yield "\n".join(data)
            data = []
            continue
        name, _, value = line.partition(":")
        if name == "data":
            data.append(value.removeprefix(" "))


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Whole lines, without their ends."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    async for piece in pieces:
        text = rest + decoder.decode(piece)
        held = "\r" if text.endswith("\r") else ""  # the other half of CR LF may follow
        *whole, rest = _END_OF_LINE.split(text.removesuffix("\r") if held else text)
        rest += held
        for line in whole:
            yield line
