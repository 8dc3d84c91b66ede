"""How much a page is to be seen rather than read: 1 to 5, by a language model or by the measured share of pictures."""

from __future__ import annotations

from typing import Final, Literal, cast

Importance = Literal[1, 2, 3, 4, 5]
ReadAs = Literal["text", "image"]
ImportanceBy = Literal["model", "measure"]

SHARES: Final[tuple[tuple[float, Importance], ...]] = ((0.7, 5), (0.4, 4), (0.2, 3), (0.05, 2))
"""From which share of pictures on a page (``latent_workers.render.visual``) the measure gives which importance. Prose with
a figure has 0.05 to 0.3; slides, scans and pages of figures have 0.4 to 1."""
IMAGE_FROM: Final = 4
"""From this importance, the text of a page is not enough to read it."""


def of_share(share: float | None) -> Importance | None:
    """The importance that stands in for a model's; None if the share is not known."""
    if share is None:
        return None
    return next((importance for from_share, importance in SHARES if share >= from_share), 1)


def judged(
    by_model: int | None, share: float | None
) -> tuple[Importance | None, ImportanceBy | None]:
    """A model's judgement (1 to 5, as stored), or the measure that stands in for it; and whose it is."""
    if by_model is not None:
        return cast(Importance, by_model), "model"
    importance = of_share(share)
    return importance, None if importance is None else "measure"


def read_as(importance: int | None) -> ReadAs:
    """Unknown pages are read as text, which is cheaper and always available."""
    return "image" if importance is not None and importance >= IMAGE_FROM else "text"
