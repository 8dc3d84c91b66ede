"""What a language model says about a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from latent_core.domain.model_answer import (
    AnswerForm,
    AnswerRefused,
    Violation,
    json_schema_of,
    limited_text,
    read_answer,
)

PROMPT: Final = "caption-1"
"""The prompt's file; its name is the version."""
VERSION: Final = 1
"""Of the form below."""
MAX_CAPTION: Final = 2_000


class Caption(AnswerForm):
    caption: Annotated[str, limited_text(MAX_CAPTION)]


def json_schema() -> Mapping[str, Any]:
    return json_schema_of(Caption)


def caption_of(text: str) -> str:
    """The caption that ``text`` has. ``AnswerRefused`` names what is wrong."""
    caption = read_answer(text, Caption, "caption").caption.strip()
    if not caption:
        raise AnswerRefused(Violation.SCHEMA, "The answer of the model is no caption: it is empty")
    return caption
