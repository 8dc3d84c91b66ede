"""What a language model says about one page, in exactly this form; anything else is a named failure of that page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from latent_core.domain.model_answer import (
    AnswerForm,
    json_schema_of,
    limited_items,
    limited_text,
    read_answer,
)

PROMPT: Final = "page-1"
"""The prompt's file; its name is the version."""
VERSION: Final = 1
"""Of the form below. A page that was extracted with a lower one is stale."""
MAX_TEXT: Final = 100_000
MAX_LINE: Final = 8_000
MAX_SECTIONS: Final = 200
MAX_VISUALS: Final = 100

Line = Annotated[str, limited_text(MAX_LINE)]
Long = Annotated[str, limited_text(MAX_TEXT)]
Grade = Annotated[int, Field(ge=1, le=5)]


class Section(AnswerForm):
    """A section that begins on the page, with its end from the next page."""

    heading: Line
    text: Long


class Visual(AnswerForm):
    type: Literal["chart", "image", "diagram", "table", "other"]
    description: Line
    relevance: Grade
    """1: decoration; 5: the page cannot be understood without it."""


class PageExtraction(AnswerForm):
    """The description of one page."""

    summary: Line
    sections: Annotated[list[Section], limited_items(MAX_SECTIONS)]
    full_text: Long
    """Of this page alone."""
    visuals: Annotated[list[Visual], limited_items(MAX_VISUALS)]
    visual_importance: Grade
    """1: the text says everything; 5: only the picture does."""


def json_schema() -> Mapping[str, Any]:
    """The form as a JSON schema without definitions, for servers that enforce one."""
    return json_schema_of(PageExtraction)


def extraction_of(text: str) -> PageExtraction:
    """The page extraction that ``text`` is. ``AnswerRefused`` names what is wrong; nothing is repaired."""
    return read_answer(text, PageExtraction, "page extraction")
