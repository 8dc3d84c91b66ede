"""Models: what a test of one measured; those installed on the gateway's machine, and the containers that use them."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel

from latent_core.wire.base import Envelope
from latent_core.wire.refresh import SpaceState


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


class SchemaSupport(StrEnum):
    """What a server does with the JSON schema of an answer."""

    ENFORCED = "enforced"
    IGNORED = "ignored"
    REFUSED = "refused"


class LanguageModelTest(BaseModel):
    """Measurements of one language model."""

    model: str
    kind: str
    """Of its provider."""
    latency_p50_ms: float
    """Of a whole short answer."""
    first_part_ms: float | None
    """Until a streamed answer begins; None if the server does not stream."""
    json_schema: SchemaSupport
    reads_images: bool
    """Whether it named the colour of a picture."""
    reads_pdf: bool
    """Whether it named the number on a page."""
    reads_long: bool
    """Whether it read a prompt of 6,000 words whole."""
    input_price: float | None
    """Of a million tokens that it reads; None is unknown."""
    output_price: float | None
    """Of a million tokens that it writes."""
    tokens_read: int
    """By the test itself, as the server counts them."""
    tokens_written: int
    cost: float | None
    """Of the test itself."""
    warnings: list[str] = []
    """What should be changed before a container permits it."""


class ModelUse(BaseModel):
    """A container with an embedding space of a model."""

    container_id: str
    state: SpaceState


class InstalledModelView(BaseModel):
    """An installed model."""

    reference: str
    """Name and revision, as commands take them."""
    name: str
    """The value of ``embedder`` in manifests."""
    hub_id: str
    revision: str
    version: str
    kind: str
    dims: int | None
    window: int | None
    precision: str
    bytes: int
    added_at: datetime
    used_by: list[ModelUse]


class MissingModel(BaseModel):
    """A model that containers need and that is not installed here."""

    name: str
    version: str
    message: str
    """With the command that installs it."""
    used_by: list[ModelUse]


class ModelList(Envelope):
    models: list[InstalledModelView]
    missing: list[MissingModel]
