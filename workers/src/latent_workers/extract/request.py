"""What a language model gets of a page, and the hash of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from secrets import token_hex
from typing import Final, Literal

import orjson

from latent_core.domain.errors import IngestFailed
from latent_core.domain.extraction import PROMPT, VERSION, json_schema
from latent_core.models.llm.port import (
    Completion,
    ImagePart,
    JsonSchema,
    Part,
    PdfPart,
    TextPart,
)

MAX_TOKENS: Final = 16_000
"""Of an answer."""
SECONDS: Final = 300.0
MAX_FILE_BYTES: Final = 16 * 1024 * 1024
"""Of the PDF or image of a page: servers accept little more in a request with two of them."""
MAX_CHARS: Final = 50_000
"""Of the text of a page."""
MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class PageFile:
    """How a page looks."""

    kind: Literal["pdf", "image"]
    sha256: str
    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class PageSide:
    """One of the two pages of a request."""

    text: str
    file: PageFile | None
    """None where the model reads texts only, or where nothing is drawn."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A page and the one after it."""

    page: PageSide
    following: PageSide | None

    @property
    def hash(self) -> str:
        """Of everything that the model gets except the prompt. The number of the page is not part of it, so that pages
        that only moved are not extracted again."""
        sides = [_hashed(side) for side in (self.page, self.following) if side is not None]
        return hashlib.sha256(orjson.dumps(sides)).hexdigest()


def _hashed(side: PageSide) -> list[str | None]:
    file = side.file
    return [side.text, file.kind if file else None, file.sha256 if file else None]


def completion(request: PageRequest) -> Completion:
    """The request. ``IngestFailed`` with the reason ``too_large`` if a page is over the limits."""
    for side in (request.page, request.following):
        if side is not None:
            _check(side)
    return Completion(
        system=prompt(),
        parts=[*_parts(request, nonce=token_hex(12))],
        schema=JsonSchema("page_extraction", VERSION, json_schema()),
        max_tokens=MAX_TOKENS,
        seconds=SECONDS,
    )


@cache
def prompt() -> str:
    return resources.files(__package__).joinpath("prompts", f"{PROMPT}.txt").read_text("utf-8")


def _parts(request: PageRequest, *, nonce: str) -> Iterator[Part]:
    """``nonce`` is in the markers around texts, so that no text can contain the end of its own."""
    yield TextPart("The page to describe:")
    yield from _side(request.page, f"text-of-the-page-{nonce}")
    if request.following is not None:
        yield TextPart("The page after it, only for the ends of sections that begin on the page:")
        yield from _side(request.following, f"text-of-the-page-after-{nonce}")


def _side(side: PageSide, marker: str) -> Iterator[Part]:
    if side.file is not None:
        yield _attached(side.file)
    yield TextPart(f"<{marker}>\n{side.text}\n</{marker}>")


def _attached(file: PageFile) -> Part:
    if file.kind == "pdf":
        return PdfPart(file.data, "page.pdf")
    return ImagePart(file.data, file.media_type)


def _check(side: PageSide) -> None:
    if side.file is not None and len(side.file.data) > MAX_FILE_BYTES:
        raise IngestFailed(
            f"The {side.file.kind} of the page has {len(side.file.data) / MIB:.1f} MiB; at most "
            f"{MAX_FILE_BYTES // MIB} MiB go to a language model",
            reason="too_large",
        )
    if len(side.text) > MAX_CHARS:
        raise IngestFailed(
            f"The text of the page has {len(side.text)} characters; at most {MAX_CHARS} go to a language model",
            reason="too_large",
        )
