"""Answers of tools: compact JSON, both as structured content and as text, because clients read one or the other.
Errors are text alone."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, Final

import orjson
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel, ValidationError

from latent_core.domain.errors import Issue, IssueCode, LatentError
from latent_gateway.envelope import retry_seconds
from latent_gateway.mcp.cleaning import cleaned, visible

MIN_CHARS: Final = 1_000
MAX_CHARS: Final = 60_000
DEFAULT_CHARS: Final = 10_000
"""Of one answer, as UTF-8: clients cut or drop longer ones."""
MAX_PROBLEMS: Final = 10
MAX_MESSAGE_CHARS: Final = 600
_BY_TOOLS: Final = {
    "/v1/containers/list": "containers_list",
    "; upload the file first": "; `latent ingest` uploads files",
}
"""Remedies that name HTTP routes, and the equivalent tools."""


class ToolResult(BaseModel):
    """Structured content. Fields with their default value or without a value are omitted."""

    def compact(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_defaults=True, exclude_none=True)


class IssueSummary(BaseModel):
    """An issue of a successful answer."""

    code: str
    message: str


def issue_summary(issue: Issue) -> IssueSummary:
    return IssueSummary(code=issue.code.value, message=by_tools(issue.message))


def by_tools(message: str) -> str:
    """A message with remedies that an MCP client can use."""
    for route, tool in _BY_TOOLS.items():
        message = message.replace(route, tool)
    return message[:MAX_MESSAGE_CHARS]


def size(content: Any) -> int:
    """Bytes of ``content`` as JSON; at least the number of its characters."""
    return len(orjson.dumps(content))


def longest(text: str, max_bytes: int) -> str:
    """The longest beginning of ``text`` that takes at most ``max_bytes`` bytes as JSON without quotes."""
    low, high = 0, min(len(text), max(max_bytes, 0))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size(text[:middle]) - 2 <= max_bytes else (low, middle - 1)
    return text[:low]


def answered(answer: ToolResult, notes: Sequence[str] = ()) -> CallToolResult:
    """``notes``: what was used instead of the given arguments, shown as issues."""
    content: dict[str, Any] = cleaned(answer.compact())
    if notes:
        issues = [{"code": IssueCode.INVALID.value, "message": note} for note in notes]
        content["issues"] = [*content.get("issues", ()), *issues]
    return CallToolResult(
        content=[TextContent(type="text", text=orjson.dumps(content).decode())],
        structured_content=content,
    )


def failed(error: LatentError) -> CallToolResult:
    """Code, cause, remedy and the time to wait, as text. Structured content would not fit the tool's output schema:
    clients that validate it would show their own complaint instead."""
    text = f"{error.code.value}: {by_tools(error.message)}"
    if error.transient and "retry in" not in text.lower():
        text = f"{text.removesuffix('.')}. {_retry(error)}"
    return CallToolResult(content=[TextContent(type="text", text=visible(text))], is_error=True)


def _retry(error: LatentError) -> str:
    seconds = retry_seconds(error)
    return "The same call may succeed later." if seconds is None else f"Retry in {seconds} s."


def problems(exc: ValidationError, known: Sequence[str] = ()) -> str:
    """The errors of arguments, without their values. ``known``: the names of the tool's arguments."""
    errors = exc.errors(include_url=False)[:MAX_PROBLEMS]
    return "; ".join(_problem(error, known) for error in errors)


def _problem(error: Any, known: Sequence[str]) -> str:
    place = ".".join(str(part)[:60] for part in error["loc"]) or "arguments"
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(place, known, n=1)
        names = f"did you mean '{near[0]}'?" if near else f"it takes {', '.join(known)}"
        return f"'{place}' is not an argument of this tool" + (f"; {names}" if known else "")
    if error["type"] == "missing":
        return f"'{place}' is required"
    return f"{place}: {str(error['msg']).removeprefix('Value error, ')}"
