"""The request to the language model: the rules, the numbered sources, and the question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from secrets import token_hex
from typing import Final

from latent_core.models.llm.port import Completion, ImagePart, Part, PdfPart, TextPart
from latent_core.wire.ask import AskSource

PROMPT: Final = "ask-1"
"""The file of the prompt; its name is the version."""
MAX_TOKENS: Final = 2_000
"""Of an answer."""


@dataclass(frozen=True, slots=True)
class NumberedSource:
    """A source, and what the model gets of it."""

    about: AskSource
    text: str
    page: PdfPart | ImagePart | None = None
    """How its page looks; None if its text is enough, or all there is."""
    next_page: PdfPart | ImagePart | None = None


def completion(question: str, sources: Sequence[NumberedSource], *, seconds: float) -> Completion:
    return Completion(
        system=prompt(),
        parts=[*_parts(question, sources, nonce=token_hex(12))],
        schema=None,
        max_tokens=MAX_TOKENS,
        seconds=seconds,
    )


@cache
def prompt() -> str:
    return resources.files(__package__).joinpath("prompts", f"{PROMPT}.txt").read_text("utf-8")


def _parts(question: str, sources: Sequence[NumberedSource], *, nonce: str) -> Iterator[Part]:
    """``nonce`` is in the markers around texts, so that no text can contain the end of its own."""
    for source in sources:
        yield from _source(source, f"source-{nonce}")
    yield TextPart(f"The question:\n<question-{nonce}>\n{question}\n</question-{nonce}>")


def _source(source: NumberedSource, marker: str) -> Iterator[Part]:
    about = source.about
    page = f", page {about.page}" if about.page is not None else ""
    written = ", written by a language model" if about.generated is not None else ""
    yield TextPart(f"[{about.n}]{page}{written}:")
    if source.page is not None:
        yield source.page
    heading = " > ".join(part for part in (about.title, about.place.heading_path) if part)
    text = "" if isinstance(source.page, PdfPart) else f"\n{source.text}"
    yield TextPart(f"<{marker}>\n{heading}{text}\n</{marker}>")
    if source.next_page is not None:
        yield TextPart(f"The page that follows the page of [{about.n}]:")
        yield source.next_page
