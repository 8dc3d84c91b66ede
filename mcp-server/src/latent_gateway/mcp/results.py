"""What a tool answers: the truth as compact JSON, structured and once more as text, since clients read one or the other."""

from __future__ import annotations

from typing import Any, Final

import orjson
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel, ValidationError

from latent_core.domain.errors import Issue, IssueCode, LatentError

LEAST_CHARS: Final = 1_000
MOST_CHARS: Final = 60_000
DEFAULT_CHARS: Final = 10_000
"""Of one answer, as UTF-8: clients cut or drop longer ones."""
MOST_PROBLEMS: Final = 10
MOST_MESSAGE_CHARS: Final = 600
_BY_TOOLS: Final = {
    "/v1/containers/list": "containers_list",
    "; upload the file first": "; `latent ingest` uploads files",
}
"""Remedies that name HTTP routes, and what does the same here."""


class Answer(BaseModel):
    """Structured content. What is at its default is left out."""

    def compact(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_defaults=True)


class Told(BaseModel):
    """An issue that does not make the answer an error."""

    code: str
    message: str


def told(issue: Issue) -> Told:
    return Told(code=issue.code.value, message=by_tools(issue.message))


def by_tools(message: str) -> str:
    """A message with remedies that the reader has."""
    for route, tool in _BY_TOOLS.items():
        message = message.replace(route, tool)
    return message[:MOST_MESSAGE_CHARS]


def size(content: Any) -> int:
    """Bytes of ``content`` as JSON; at least as many as it has characters."""
    return len(orjson.dumps(content))


def longest(text: str, room: int) -> str:
    """The longest beginning of ``text`` that takes at most ``room`` bytes as JSON, quotes not counted."""
    low, high = 0, min(len(text), max(room, 0))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size(text[:middle]) - 2 <= room else (low, middle - 1)
    return text[:low]


def answered(answer: Answer) -> CallToolResult:
    content = answer.compact()
    return CallToolResult(
        content=[TextContent(type="text", text=orjson.dumps(content).decode())],
        structured_content=content,
    )


def failed(error: LatentError) -> CallToolResult:
    """The cause and the remedy in both places: some clients show the text of an error, some the structure."""
    told: dict[str, Any] = {"code": error.code.value, "message": by_tools(error.message)}
    if error.transient:
        told["retry"] = True
    return CallToolResult(
        content=[TextContent(type="text", text=f"{told['code']}: {told['message']}")],
        structured_content={"error": told},
        is_error=True,
    )


def code_of(result: CallToolResult) -> IssueCode:
    """Of what ``failed`` made."""
    return IssueCode((result.structured_content or {})["error"]["code"])


def problems(exc: ValidationError) -> str:
    """What is wrong with arguments, without repeating them."""
    return "; ".join(_problem(error) for error in exc.errors(include_url=False)[:MOST_PROBLEMS])


def _problem(error: Any) -> str:
    place = ".".join(str(part)[:60] for part in error["loc"]) or "arguments"
    if error["type"] == "extra_forbidden":
        return f"'{place}' is no argument of this tool"
    return f"{place}: {str(error['msg']).removeprefix('Value error, ')}"
