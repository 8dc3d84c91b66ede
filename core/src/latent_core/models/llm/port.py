"""The ``LanguageModel`` interface: a request of text, images and PDFs, and its answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    data: bytes
    media_type: str
    """``image/png``, ``image/jpeg``, ``image/webp`` or ``image/gif``."""


@dataclass(frozen=True, slots=True)
class PdfPart:
    data: bytes
    name: str = "document.pdf"
    """For the model; contains no path."""


@dataclass(frozen=True, slots=True)
class AudioPart:
    """A recording, for models of speech only."""

    data: bytes
    name: str
    """Without a path; servers recognise the format by its suffix."""
    media_type: str


Part = TextPart | ImagePart | PdfPart | AudioPart


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """The form of an answer. Servers enforce only a part of it, or nothing: the reader of an answer validates it."""

    name: str
    """1 to 64 of a-z, A-Z, 0-9, ``_`` and ``-``."""
    version: int
    """A part of the key of stored answers."""
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Completion:
    """One request."""

    system: str
    parts: Sequence[Part]
    schema: JsonSchema | None
    max_tokens: int
    """Of the answer."""
    seconds: float
    """The deadline of the whole answer."""


@dataclass(frozen=True, slots=True)
class Usage:
    input_tokens: int
    output_tokens: int

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class Stop(StrEnum):
    """Why an answer ends."""

    END = "end"
    LENGTH = "length"
    """At ``max_tokens``, or where the model's context is full: the text is cut."""
    REFUSAL = "refusal"
    """The model, or a filter of its server, refuses. The text is the reason, or empty."""


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    usage: Usage
    stop: Stop = Stop.END


@dataclass(frozen=True, slots=True)
class AnswerPart:
    """A piece of the text. The last one has no text, but ``usage`` and ``stop``: a stream without it was cut off."""

    text: str = ""
    usage: Usage | None = None
    stop: Stop | None = None


class LanguageModel(Protocol):
    """What features know of a model. Only ``calls`` calls it, as a ``ModelClient``."""

    @property
    def name(self) -> str:
        """``<provider>/<model>``."""
        ...

    @property
    def reads_pdf(self) -> bool:
        """Whether requests may have ``PdfPart``."""
        ...

    @property
    def reads_images(self) -> bool:
        """Whether requests may have ``ImagePart``."""
        ...


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Implements ``LanguageModel``."""

    name: str
    reads_pdf: bool
    reads_images: bool


class ModelClient(LanguageModel, Protocol):
    """A model at its server."""

    async def complete(self, request: Completion) -> Answer:
        """One call over the network, without retries. ``InputRefused`` if the server refuses this request,
        ``Misconfigured`` if it refuses all, ``RateLimited`` and ``Unavailable`` if it may accept it later, ``TimedOut``
        after its seconds, and ``MalformedAnswer`` for what is no answer: cut off, no JSON, another content type."""
        ...

    def stream(self, request: Completion) -> AsyncGenerator[AnswerPart, None]:
        """As ``complete``; close it (``aclosing``) to end the request early. ``MalformedAnswer`` where the stream ends without the last part."""
        ...

    async def close(self) -> None: ...
