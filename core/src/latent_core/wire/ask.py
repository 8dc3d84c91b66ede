"""Questions that a language model answers from the hits of a search."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, Field

from latent_core.domain.generated import GeneratedBy
from latent_core.wire.base import ContainerId, Envelope, RequestBody
from latent_core.wire.search import MAX_CONTAINERS, PlaceView

MAX_QUESTION_CHARS: Final = 2_000
MAX_TOP_K: Final = 20
DEFAULT_TOP_K: Final = 8


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value


class AskRequest(RequestBody):
    """Body of ``POST /v1/containers/ask``."""

    containers: Annotated[list[ContainerId], Field(min_length=1, max_length=MAX_CONTAINERS)]
    """All of them name the same ``ask.provider``."""
    question: Annotated[str, Field(max_length=MAX_QUESTION_CHARS), AfterValidator(_not_blank)]
    """It is answered by itself: no earlier question is known."""
    top_k: Annotated[int, Field(ge=1, le=MAX_TOP_K)] = DEFAULT_TOP_K
    """Limit of the documents that are read for it."""
    filters: dict[str, Any] = {}
    """As in a search."""
    stream: bool = False
    """Answer as server-sent events: ``sources``, ``text``, ``citations``, then ``end`` or ``error``."""


ReadAs = Literal["text", "image", "pdf"]


class Citation(BaseModel):
    """A source of the answer, as ``[n]`` in its text. The links are made by the gateway, never by the model."""

    n: int
    container_id: str
    doc_id: UUID
    chunk_id: UUID
    title: str
    page: int | None = None
    place: PlaceView
    source_uri: str
    page_uri: str | None = None
    """Image of the page, presigned."""
    page_pdf_uri: str | None = None
    """The page as a PDF, presigned."""
    generated: GeneratedBy | None = None
    """Set if a language model wrote the text of the source."""


class AskSource(Citation):
    """What the model reads."""

    relevance: float | None = None
    """0..1, as of a hit."""
    read_as: ReadAs = "text"
    """What the model gets of it: the text of the hit, the image of the page, or its PDF."""
    next_page: int | None = None
    """The page after it, which goes with it."""


class AskUsage(BaseModel):
    input_tokens: int
    output_tokens: int


class AskEnd(BaseModel):
    """How an answer ended."""

    answered: bool
    refused_by: Literal["search", "model"] | None = None
    """``search``: nothing relevant was found, and no model was called. ``model``: the sources do not answer it."""
    model: str | None = None
    """``<provider>/<model>``; None if none was called."""
    prompt_version: str | None = None
    usage: AskUsage | None = None


class AskAnswer(Envelope, AskEnd):
    text: str = ""
    """Markdown without images, HTML and links; ``[n]`` names a citation."""
    citations: list[Citation] = []
    """Those that the text names."""
    sources: list[AskSource] = []
    """All that the model read."""
