"""Transcripts of Claude Code and Codex: JSONL, one conversation per file.

A malformed line is reported with its number; the rest continues.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from latent_core.domain.conversation import Role
from latent_workers.parse.conversation.messages import (
    FoundConversation,
    MessageList,
    TranscriptOptions,
    UnreadPart,
    call_text,
    texts_of,
)

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""A longer line holds the output of a tool and is skipped."""
_NOTES: Final = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)
_COMMANDS: Final = (
    "<command-name>",
    "<command-message>",
    "<local-command-stdout>",
    "<local-command-caveat>",
    "<bash-stdout>",
)
_CONTEXT: Final = (
    "<environment_context>",
    "<user_instructions>",
    "<permissions instructions>",
    "<turn_aborted>",
    "# AGENTS.md instructions",
)

Outcome = FoundConversation | UnreadPart


def claude_code(file: BinaryIO, name: str, options: TranscriptOptions) -> Iterator[Outcome]:
    """A transcript of Claude Code. Skips messages of subagents, unless the file holds no others."""
    lines: list[dict[str, Any]] = []
    for outcome in _lines(file):
        if isinstance(outcome, UnreadPart):
            yield outcome
        else:
            lines.append(outcome)
    own = [line for line in lines if not line.get("isSidechain")]
    messages = MessageList(options)
    known: set[str] = set()
    for line in own if any(line.get("type") in ("user", "assistant") for line in own) else lines:
        identity = line.get("uuid")
        if not isinstance(identity, str) or identity not in known:
            _add_claude_code(messages, line)
        if isinstance(identity, str):
            known.add(identity)
    session = _first(lines, "sessionId")
    title = _first(lines, "customTitle") or _first(lines, "aiTitle") or _first(lines, "summary")
    yield messages.found(session or name, title, session)


def _add_claude_code(messages: MessageList, line: dict[str, Any]) -> None:
    role, message = line.get("type"), line.get("message")
    if role not in ("user", "assistant") or not isinstance(message, dict):
        return
    if line.get("isMeta") or line.get("isCompactSummary"):
        return
    time, content, part = line.get("timestamp"), message.get("content"), message.get("id")
    part_of = part if isinstance(part, str) else None
    for block in content if isinstance(content, list) else [{"type": "text", "text": content}]:
        if not isinstance(block, dict):
            continue
        found = _block(block, Role(role))
        if found is not None:
            messages.add(*found, time, part_of)


def _block(block: dict[str, Any], role: Role) -> tuple[Role, str] | None:
    match block.get("type"):
        case "text":
            text = _NOTES.sub("", _text(block.get("text"))).strip()
            return None if text.startswith(_COMMANDS) else (role, text)
        case "thinking":
            return Role.REASONING, _text(block.get("thinking"))
        case "tool_use":
            return Role.TOOL, call_text(block.get("name"), block.get("input"))
        case "tool_result":
            return Role.TOOL, texts_of(block.get("content"), ("text",))
    return None


def codex(file: BinaryIO, name: str, options: TranscriptOptions) -> Iterator[Outcome]:
    """A rollout of Codex, in the form with ``payload`` and in the older one without."""
    messages = MessageList(options)
    session: str | None = None
    for outcome in _lines(file):
        if isinstance(outcome, UnreadPart):
            yield outcome
            continue
        payload = outcome.get("payload")
        item = payload if isinstance(payload, dict) else outcome
        kind = outcome.get("type")
        if kind == "session_meta" or (kind is None and "instructions" in outcome):
            session = session or _text(item.get("id")) or None
        elif kind == "response_item" or item is outcome:
            _add_codex(messages, item, outcome.get("timestamp"))
    yield messages.found(session or name, None, session)


def _add_codex(messages: MessageList, item: dict[str, Any], time: Any) -> None:
    match item.get("type"):
        case "message":
            role = item.get("role")
            text = texts_of(item.get("content"), ("input_text", "output_text", "text"))
            if role in ("user", "assistant") and not text.lstrip().startswith(_CONTEXT):
                messages.add(Role(role), text, time)
        case "reasoning":
            text = texts_of(item.get("summary"), ("summary_text",))
            messages.add(Role.REASONING, text, time)
        case "function_call" | "custom_tool_call":
            arguments = item.get("arguments", item.get("input"))
            messages.add(Role.TOOL, call_text(item.get("name"), arguments), time)
        case "local_shell_call":
            messages.add(Role.TOOL, call_text("shell", item.get("action")), time)
        case "function_call_output" | "custom_tool_call_output":
            messages.add(Role.TOOL, _output(item.get("output")), time)


def _output(output: Any) -> str:
    if isinstance(output, dict):
        output = output.get("content")
    return texts_of(output, ("text", "input_text", "output_text"))


def _lines(file: BinaryIO) -> Iterator[dict[str, Any] | UnreadPart]:
    return (value for _, value in numbered_objects(file))


def numbered_objects(file: BinaryIO) -> Iterator[tuple[int, dict[str, Any] | UnreadPart]]:
    """The object on each line with its number, or why there is none; blank lines are skipped."""
    number = 0
    while raw := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(raw) > MAX_LINE_BYTES and not raw.endswith(b"\n"):
            while raw and not raw.endswith(b"\n"):
                raw = file.readline(MAX_LINE_BYTES)
            yield number, UnreadPart(number, f"is longer than {MAX_LINE_BYTES // 2**20} MB")
        elif raw.strip():
            yield number, _object(raw, number)


def _object(raw: bytes, number: int) -> dict[str, Any] | UnreadPart:
    try:
        value = json.loads(raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace"))
    except (ValueError, RecursionError) as exc:
        return UnreadPart(number, f"is not valid JSON: {str(exc)[:200]}")
    if isinstance(value, dict):
        return value
    return UnreadPart(number, f"is {type(value).__name__}, not an object")


def _first(lines: list[dict[str, Any]], key: str) -> str | None:
    found = (line.get(key) for line in lines)
    return next((value for value in found if isinstance(value, str) and value.strip()), None)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
