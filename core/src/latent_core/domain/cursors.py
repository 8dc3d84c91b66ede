"""Cursors: the position at which a listing continues. Opaque to clients and validated on use."""

from __future__ import annotations

import base64
import binascii

from latent_core.domain.errors import Invalid

MAX_PAGE = 500


def encode(position: object) -> str:
    return base64.urlsafe_b64encode(str(position).encode()).decode().rstrip("=")


def decode(cursor: str) -> str:
    """The position in a cursor; ``Invalid`` when ``encode`` did not make it."""
    try:
        return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, ValueError) as exc:
        raise Invalid(
            "invalid cursor: it does not come from this API. Start again without a cursor"
        ) from exc


def decode_int(cursor: str | None, default: int) -> int:
    if cursor is None:
        return default
    text = decode(cursor)
    if not text.isdecimal() or len(text) > 18:
        raise Invalid(
            "invalid cursor: it does not come from this API. Start again without a cursor"
        )
    return int(text)
