"""The summary of a document: what a language model answers, what we add, and the file of both."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Any, Final
from uuid import UUID

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from latent_core.domain.model_answer import AnswerForm, json_schema_of, read_answer
from latent_core.domain.text import HIDDEN, trouble

MIN_WORDS: Final = 200
MAX_WORDS: Final = 400
"""Of the prose."""
MAX_PROSE_CHARS: Final = 8_000
SUMMARY_VERSION: Final = 1
"""Of the schema of answers."""

# Scripts without spaces between words: two characters count as one word.
_DENSE: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"
)
_SPACES: Final = re.compile(r"\s+")


def word_count(text: str) -> int:
    """Words between spaces; in scripts that write none, half of the characters."""
    dense = len(_DENSE.findall(text))
    return len(_DENSE.sub(" ", text).split()) + (dense + 1) // 2


def _line(value: str) -> str:
    """One line without characters that people do not see."""
    line = _SPACES.sub(" ", value).strip()
    if not line:
        raise ValueError("must not be empty")
    if (wrong := trouble(line)) is not None:
        raise ValueError(wrong)
    return HIDDEN.sub("", line)


def _prose(value: str) -> str:
    text = value.replace("\r\n", "\n").strip()
    if (wrong := trouble(text, layout=True)) is not None:
        raise ValueError(wrong)
    text = HIDDEN.sub("", text)
    words = word_count(text)
    if not MIN_WORDS <= words <= MAX_WORDS:
        raise ValueError(f"has {words} words, not {MIN_WORDS} to {MAX_WORDS}")
    return text


def _distinct(values: list[str]) -> list[str]:
    return list(dict.fromkeys(values))


Name = Annotated[str, Field(max_length=120), AfterValidator(_line)]
Query = Annotated[str, Field(max_length=200), AfterValidator(_line)]


class SummaryAnswer(AnswerForm):
    """What the model answers. It names nothing that we know ourselves."""

    product_tags: Annotated[list[Name], Field(max_length=10), AfterValidator(_distinct)]
    """Products, libraries and systems that the document is about."""
    key_topics: Annotated[list[Name], Field(min_length=1, max_length=12), AfterValidator(_distinct)]
    api_symbols: Annotated[list[Name], Field(max_length=40), AfterValidator(_distinct)]
    """Functions, classes, commands, routes and settings that it explains, exactly as it writes them."""
    related_files: Annotated[list[Name], Field(max_length=20), AfterValidator(_distinct)]
    """Other files that it names, exactly as it writes them."""
    suggested_queries: Annotated[
        list[Query], Field(min_length=1, max_length=8), AfterValidator(_distinct)
    ]
    """Questions that it answers."""
    prose: Annotated[str, Field(max_length=MAX_PROSE_CHARS), AfterValidator(_prose)]
    """200 to 400 words."""


class SummaryFrontMatter(BaseModel):
    """The front matter of a summary."""

    model_config = ConfigDict(frozen=True)

    doc_id: UUID
    source_path: str
    language: str | None
    product_tags: list[str] = []
    last_updated: date | None
    """When the source was modified, else fetched."""
    key_topics: list[str] = []
    api_symbols: list[str] = []
    related_files: list[str] = []
    """Documents of the container."""
    suggested_queries: list[str] = []

    @property
    def keywords(self) -> str:
        """Words by which the summary is found, in addition to those of its prose."""
        return " ".join([*self.api_symbols, *self.key_topics])


SUMMARY_FIELDS: Final = tuple(SummaryFrontMatter.model_fields)
LIST_FIELDS: Final = (
    "product_tags",
    "key_topics",
    "api_symbols",
    "related_files",
    "suggested_queries",
)


def summary_answer(text: str) -> SummaryAnswer:
    """The answer that ``text`` is; ``AnswerRefused`` names what is wrong. Nothing is repaired."""
    return read_answer(text, SummaryAnswer, "summary")


def summary_schema() -> dict[str, Any]:
    """The form of an answer as a JSON schema."""
    schema = dict(json_schema_of(SummaryAnswer))
    schema.pop("description", None)
    return schema


def summary_file(front_matter: SummaryFrontMatter, prose: str) -> str:
    """``<doc>.summary.md``: front matter in YAML, then the prose."""
    fields = front_matter.model_dump(mode="json")
    head = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=1_000)
    return f"---\n{head}---\n\n{prose}\n"
