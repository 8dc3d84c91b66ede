"""Answers of language models in a fixed form: anything else is a named failure. Nothing is repaired."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from latent_core.domain.errors import IngestFailed

MAX_PROBLEMS: Final = 5
"""Named in a cause."""


class Violation(StrEnum):
    """Why an answer does not have its form."""

    INVALID_JSON = "invalid_json"
    EXTRA_KEY = "extra_key"
    OUT_OF_RANGE = "out_of_range"
    SCHEMA = "schema"
    TRUNCATED = "truncated"
    REFUSAL = "refusal"


class AnswerRefused(IngestFailed):
    """An answer that does not have its form. ``reason`` in details is a ``Violation``."""

    def __init__(self, reason: Violation, message: str) -> None:
        super().__init__(message, reason=reason.value)
        self.reason = reason


class AnswerForm(BaseModel):
    """The base of forms: no other keys, no other types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


Form = TypeVar("Form", bound=AnswerForm)


def limited_text(limit: int) -> AfterValidator:
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


def limited_items(limit: int) -> AfterValidator:
    def check(value: list[Any]) -> list[Any]:
        if len(value) > limit:
            raise ValueError(f"at most {limit} items, not {len(value)}")
        return value

    return AfterValidator(check)


def json_schema_of(form: type[AnswerForm]) -> Mapping[str, Any]:
    """The form as a JSON schema without definitions, for servers that enforce one."""
    schema = form.model_json_schema()
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


def read_answer(text: str, form: type[Form], what: str) -> Form:
    """``text`` in its form, whose name in messages is ``what``. ``AnswerRefused`` names what is wrong."""
    try:
        data = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as exc:
        raise AnswerRefused(
            Violation.INVALID_JSON, f"The answer of the model is not valid JSON: {exc}"
        ) from exc
    try:
        return form.model_validate(data)
    except ValidationError as exc:
        raise _refused(exc, what) from exc


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


def _refused(error: ValidationError, what: str) -> AnswerRefused:
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
        f"The answer of the model is no {what}: {'; '.join(places[:MAX_PROBLEMS])}{more}",
    )
