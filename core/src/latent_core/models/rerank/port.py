"""A query and texts in, one score a text out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Reranker(Protocol):
    """Reads query and text together, which is slower and better than comparing their vectors."""

    @property
    def name(self) -> str:
        """As people read it in issues and logs; holds no secret and no path of the server."""
        ...

    async def rerank(self, query: str, texts: Sequence[str], deadline: float) -> list[float]:
        """A finite score for each text, in the order of the texts: the greater, the better it answers ``query``.

        Scores compare within one call. Neither ``query`` nor a text is blank. ``deadline`` is a time of the
        event loop: ``TimedOut`` when it passes. Other trouble is ``RateLimited`` or ``Unavailable`` when it
        may pass, and ``Invalid`` when it will not. There are no scores for some texts only.
        """
        ...

    async def close(self) -> None: ...
