"""Models and what a test of one measured."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel


class WindowBasis(StrEnum):
    """How a window is known."""

    FILES = "files"
    """From the files of a local model."""
    REPORTED = "reported"
    """By the server."""
    PROBED = "probed"
    """By texts of growing length, to 1/16 of the last step."""
    LOWER_BOUND = "lower_bound"
    """The longest text of the test was read whole."""


class ModelTest(BaseModel):
    """Measurements of one embedder."""

    model: str
    kind: str
    """Of its provider, or ``local``."""
    version: str
    """Of a new container's vectors."""
    dims: int
    window: int | None
    """Tokens per text; None if not even the shortest text of the test was read whole."""
    window_basis: WindowBasis
    truncates: bool | None
    """Whether longer texts are cut without an error; None if no text was long enough to tell."""
    latency_p50_ms: float
    """Of one short query."""
    texts_per_second: float
    """Of one request with several texts."""
    tokens_per_second: int
    rate_per_minute: int | None = None
    """Texts per minute that are sent at most; None: the server's own answers decide."""
    server_limits: dict[str, str] = {}
    """What the server's headers say, such as ``requests``."""
    price_per_million: float | None = None
    """Of tokens; None is unknown."""
    tokens_used: int = 0
    """By the test itself, as the server counts them."""
    warnings: list[str] = []
    """What should be changed before anything is ingested."""
