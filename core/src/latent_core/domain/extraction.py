"""What a language model says about one page, in exactly this form; anything else is a named failure of that page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from latent_core.domain.errors import IngestFailed

PROMPT: Final = "page-1"
"""The prompt's file; its name is the version."""
VERSION: Final = 1
"""Of the form below. A page that was extracted with a lower one is stale."""
MAX_TEXT: Final = 100_000
MAX_LINE: Final = 8_000
MAX_SECTIONS: Final = 200
MAX_VISUALS: Final = 100
MAX_PROBLEMS: Final = 5
"""Named in a cause."""


class Violation(StrEnum):
    """Why an answer is no page extraction."""

    INVALID_JSON = "invalid_json"
    EXTRA_KEY = "extra_key"
    OUT_OF_RANGE = "out_of_range"
    SCHEMA = "schema"
    TRUNCATED = "truncated"
    REFUSAL = "refusal"


class AnswerRefused(IngestFailed):
    """An answer of a model that is no page extraction. ``reason`` in details is a ``Violation``."""

    def __init__(self, reason: Violation, message: str) -> None:
        super().__init__(message, reason=reason.value)
        self.reason = reason


def _text(limit: int) -> AfterValidator:
    # Not max_length: a strict schema of a model's server must not contain it.
    def check(value: str) -> str:
        if len(value) > limit:
            raise ValueError(f"at most {limit} characters, not {len(value)}")
        if "\0" in value or _has_surrogate(value):
            raise ValueError("contains characters that no text has")
        return value

    return AfterValidator(check)


def _has_surrogate(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return True
    return False


def _items(limit: int) -> AfterValidator:
    def check(value: list[Any]) -> list[Any]:
        if len(value) > limit:
            raise ValueError(f"at most {limit} items, not {len(value)}")
        return value

    return AfterValidator(check)


Line = Annotated[str, _text(MAX_LINE)]
Long = Annotated[str, _text(MAX_TEXT)]
Grade = Annotated[int, Field(ge=1, le=5)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Section(_Strict):
    """A section that begins on the page, with its end from the next page."""

    heading: Line
    text: Long


class Visual(_Strict):
    type: Literal["chart", "image", "diagram", "table", "other"]
    description: Line
    relevance: Grade
    """1: decoration; 5: the page cannot be understood without it."""


class PageExtraction(_Strict):
    """The description of one page."""

    summary: Line
    sections: Annotated[list[Section], _items(MAX_SECTIONS)]
    full_text: Long
    """Of this page alone."""
    visuals: Annotated[list[Visual], _items(MAX_VISUALS)]
    visual_importance: Grade
    """1: the text says everything; 5: only the picture does."""


def json_schema() -> Mapping[str, Any]:
    """The form as a JSON schema without definitions, for servers that enforce one."""
    schema = PageExtraction.model_json_schema()
    definitions = schema.pop("$defs", {})
    inlined: dict[str, Any] = _inlined(schema, definitions)
    return inlined


def _inlined(part: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(part, list):
        return [_inlined(one, definitions) for one in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _inlined(definitions[part["$ref"].rpartition("/")[2]], definitions)
    return {key: _inlined(value, definitions) for key, value in part.items() if key != "title"}


def extraction_of(text: str) -> PageExtraction:
    """The page extraction that ``text`` is. ``AnswerRefused`` names what is wrong; nothing is repaired."""
    try:
        data = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as exc:
        raise AnswerRefused(
            Violation.INVALID_JSON, f"The answer of the model is not valid JSON: {exc}"
        ) from exc
    try:
        return PageExtraction.model_validate(data)
    except ValidationError as exc:
        raise _refused(exc) from exc


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key '{twice[:100]}' occurs twice")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


_OF_TYPE: Final = {
    "extra_forbidden": Violation.EXTRA_KEY,
    "greater_than_equal": Violation.OUT_OF_RANGE,
    "less_than_equal": Violation.OUT_OF_RANGE,
}


def _refused(error: ValidationError) -> AnswerRefused:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    kinds = {_OF_TYPE.get(problem["type"], Violation.SCHEMA) for problem in problems}
    reason = kinds.pop() if len(kinds) == 1 else Violation.SCHEMA
    places = [
        f"{'.'.join(str(part)[:100] for part in problem['loc']) or 'answer'}: "
        f"{problem['msg'].removeprefix('Value error, ')}"
        for problem in problems
    ]
    more = f" (and {len(places) - MAX_PROBLEMS} more)" if len(places) > MAX_PROBLEMS else ""
    return AnswerRefused(
        reason,
        f"The answer of the model is no page extraction: {'; '.join(places[:MAX_PROBLEMS])}{more}",
    )
