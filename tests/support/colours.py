"""What the stand-in for an embedder sees in a picture: the name of its colour, so that words find it."""

from __future__ import annotations

import io
from typing import Any, Final

from PIL import Image

COLOURS: Final = {
    "red": (200, 0, 0),
    "green": (0, 160, 0),
    "blue": (0, 0, 200),
    "yellow": (230, 220, 0),
    "black": (0, 0, 0),
    "grey": (128, 128, 128),
    "white": (255, 255, 255),
}


def colour_of(image: bytes) -> str:
    """The name that is nearest to the mean of all pixels."""
    with Image.open(io.BytesIO(image)) as opened:
        whole = opened.convert("RGB").resize((1, 1), Image.Resampling.BOX)
    mean: Any = whole.getpixel((0, 0))

    def distance(name: str) -> int:
        return sum((ours - theirs) ** 2 for ours, theirs in zip(COLOURS[name], mean, strict=True))

    return min(COLOURS, key=distance)


def picture(colour: str, form: str = "PNG", size: tuple[int, int] = (120, 80)) -> bytes:
    """One that shows nothing but its colour."""
    buffer = io.BytesIO()
    Image.new("RGB", size, COLOURS[colour]).save(buffer, form)
    return buffer.getvalue()
