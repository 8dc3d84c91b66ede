"""Bodies as they come over the wire, taken apart in bounded pieces: a bomb costs no more than its first excess."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

from latent_core.domain.errors import IngestFailed, Unavailable

PIECE: Final = 1024 * 1024
ACCEPTED: Final = "gzip, deflate"

_GZIP: Final = 16 + zlib.MAX_WBITS
_ZLIB: Final = zlib.MAX_WBITS
_RAW: Final = -zlib.MAX_WBITS
_MAGIC: Final = b"\x1f\x8b"
_NAMES: Final = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": _ZLIB}


def inflater_for(encoding: str) -> Inflater | None:
    """What undoes a ``Content-Encoding``, None for none; ``IngestFailed`` for one that was not asked for."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return None
    if name not in _NAMES:
        raise IngestFailed(f"the page came in the encoding '{name[:40]}', which was not asked for")
    return Inflater(_NAMES[name])


class Inflater:
    """One compressed body. ``window_bits`` as zlib takes them."""

    def __init__(self, window_bits: int) -> None:
        self._bits = window_bits
        self._inner = zlib.decompressobj(window_bits)
        self._begun = False
        self._behind = b""
        """What came after the end of a member, too little to tell whether it begins another."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Pieces of at most ``PIECE`` bytes; what is not asked for is not inflated."""
        more = bool(data)
        while more:
            if self._inner.eof and not self._begins_again(data):
                return
            data, self._behind = self._behind + data, b""
            piece = self._inflate(data)
            if piece:
                yield piece
            ended = self._inner.eof
            data = self._inner.unused_data if ended else self._inner.unconsumed_tail
            # A full piece may have more behind it although all input is taken.
            more = bool(data) or (len(piece) == PIECE and not ended)

    def finish(self) -> None:
        """``Unavailable`` when the body stopped in the middle."""
        if self._begun and not self._inner.eof:
            raise Unavailable("the page was cut off in the middle; it is fetched again")

    def _inflate(self, data: bytes) -> bytes:
        try:
            piece = self._inner.decompress(data, PIECE)
        except zlib.error as exc:
            if self._begun or self._bits != _ZLIB:
                raise IngestFailed(f"the page cannot be decompressed: {exc}") from exc
            # Many servers mean a bare stream when they say deflate.
            self._inner, self._bits = zlib.decompressobj(_RAW), _RAW
            return self._inflate(data)
        self._begun = True
        return piece

    def _begins_again(self, data: bytes) -> bool:
        """Whether another member of a gzip stream begins; anything else behind its end is padding."""
        start = (self._behind + data)[: len(_MAGIC)]
        if self._bits != _GZIP or not _MAGIC.startswith(start):
            self._bits = _RAW  # nothing can follow any more
            return False
        if len(start) < len(_MAGIC):
            self._behind = start
            return False
        self._inner = zlib.decompressobj(_GZIP)
        return True
