"""Routing: whether a page is better looked at or read as text."""

from __future__ import annotations

from typing import Final, Literal

from latent_core.domain.chunk import Modality

IMAGE_FROM: Final = 0.4
"""Share of a page that is picture (``latent_workers.render.visual``) from which on its text tells too little of
it. Pages of prose with a figure have 0.05 to 0.3, slides, scans and pages made of figures 0.4 to 1."""

ReadAs = Literal["text", "image"]


def visual_importance(measured: float | None, modality: str) -> float | None:
    """0 to 1; an image is nothing else. None where it is not known."""
    return 1.0 if modality == Modality.IMAGE.value else measured


def read_as(visual: float | None) -> ReadAs:
    """What is not known is read as text, which is cheaper and always there."""
    return "image" if visual is not None and visual >= IMAGE_FROM else "text"
