"""Small transcripts and exports in the formats of the assistants, written for the tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson


def _lines(values: Sequence[Mapping[str, Any]]) -> bytes:
    return b"".join(orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE) for value in values)


def claude_code(*, question: str = "Why is the lamp dark?", more: str = "Dry it.") -> bytes:
    """A summary, a question, an answer in parts around a call of a tool, notes of the program, a subagent."""

    def line(kind: str, number: int, content: Any, **fields: Any) -> dict[str, Any]:
        message = {"role": kind, "content": content, **fields.pop("message", {})}
        return {
            "type": kind,
            "uuid": f"u-{number}",
            "parentUuid": f"u-{number - 1}",
            "sessionId": "5e55-10",
            "isSidechain": False,
            "timestamp": f"2026-03-01T10:0{number}:00.000Z",
            "message": message,
            **fields,
        }

    answer = {"id": "msg_1", "model": "a-model"}
    thinking = {"type": "thinking", "thinking": "A wick may be wet.", "signature": "x"}
    call = {"type": "tool_use", "id": "t", "name": "Read", "input": {"file_path": "wick.log"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "drip\x1b[31m drip"}
    text = [{"type": "text", "text": "I will look at the wick."}]
    reminder = f"{more}<system-reminder>Be kind.</system-reminder>"
    return _lines(
        [
            {"type": "summary", "summary": "A dark lamp", "leafUuid": "u-9"},
            {"type": "file-history-snapshot", "messageId": "u-0", "snapshot": {}},
            line("user", 0, question),
            line("user", 1, "Caveat: the messages below …", isMeta=True, uuid="u-m"),
            line("assistant", 1, [thinking], message=answer),
            line("assistant", 2, text, message=answer),
            line("assistant", 3, [call], message=answer),
            line("user", 4, [result]),
            line("assistant", 4, "Look into the log.", isSidechain=True, uuid="u-s"),
            line("user", 4, "<command-name>/cost</command-name>", uuid="u-c"),
            line("assistant", 5, [{"type": "text", "text": "The wick is wet."}], message=answer),
            line("assistant", 5, [{"type": "text", "text": "The wick is wet."}], message=answer),
            line("user", 6, [{"type": "text", "text": reminder}]),
        ]
    )


def _codex_items() -> list[dict[str, Any]]:
    def message(role: str, *texts: str) -> dict[str, Any]:
        kind = "output_text" if role == "assistant" else "input_text"
        content = [{"type": kind, "text": text} for text in texts]
        return {"type": "message", "role": role, "content": content}

    return [
        message("developer", "You are a lamp lighter."),
        message("user", "<environment_context>\n  <cwd>/lamps</cwd>\n</environment_context>"),
        message("user", "Trim the wick.\nThen light it."),
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "First the wick."}],
            "encrypted_content": "x",
        },
        {"type": "function_call", "name": "shell", "arguments": '{"command": ["trim"]}'},
        {"type": "function_call_output", "call_id": "c", "output": "done"},
        message("assistant", "It is trimmed and lit."),
    ]


def codex() -> bytes:
    time = "2026-03-01T10:00:00.000Z"
    items = [{"timestamp": time, "type": "response_item", "payload": i} for i in _codex_items()]
    event = {"type": "user_message", "message": "Trim the wick.\nThen light it."}
    meta: dict[str, Any] = {"id": "019a", "cwd": "/lamps", "instructions": None}
    return _lines(
        [
            {"timestamp": time, "type": "session_meta", "payload": meta},
            {"timestamp": time, "type": "turn_context", "payload": {"model": "a-model"}},
            *items,
            {"timestamp": time, "type": "event_msg", "payload": event},
        ]
    )


def codex_older() -> bytes:
    """Without ``payload``."""
    meta: dict[str, Any] = {
        "id": "019a",
        "timestamp": "2025-06-01T10:00:00Z",
        "instructions": None,
        "git": {},
    }
    return _lines([meta, *_codex_items(), {"record_type": "state"}])


def chatgpt(*, filler: int = 0, answer: str = "Colza oil.") -> bytes:
    """Two conversations; the first has two answers, and the second of them is current. ``filler``: characters of a
    hidden message, which make it long."""

    def node(key: str, parent: str | None, role: str, text: str, **fields: Any) -> dict[str, Any]:
        content = {"content_type": "text", "parts": [text]}
        message = {"author": {"role": role}, "content": content, "create_time": 1772359200.0}
        return {"id": key, "parent": parent, "children": [], "message": {**message, **fields}}

    hidden = {"metadata": {"is_visually_hidden_from_conversation": True}}
    nodes = [
        {"id": "root", "parent": None, "children": ["s"], "message": None},
        node("s", "root", "system", "x" * filler, **hidden),
        node("q", "s", "user", "Which oil?"),
        node("a1", "q", "assistant", "Whale oil."),
        node("t", "q", "assistant", 'search("oil")', recipient="browser"),
        node("r", "t", "tool", "many oils"),
        node("a2", "r", "assistant", answer, recipient="all"),
    ]
    first = {
        "title": "Oil for lamps",
        "create_time": 1772359200.0,
        "mapping": {one["id"]: one for one in nodes},
        "current_node": "a2",
        "conversation_id": "c-1",
        "id": "c-1",
    }
    only = node("q", None, "user", "Hello")
    second = {"title": None, "mapping": {"q": only}, "current_node": None, "id": "c-2"}
    return orjson.dumps([first, second])


def claude() -> bytes:
    def message(number: int, sender: str, blocks: list[dict[str, Any]]) -> dict[str, Any]:
        text = "".join(block.get("text", "") for block in blocks)
        time = f"2026-03-01T10:0{number}:00.000000Z"
        return {
            "uuid": f"m-{number}",
            "text": text,
            "content": blocks,
            "sender": sender,
            "created_at": time,
            "attachments": [],
        }

    answer: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "Flat or round?"},
        {"type": "tool_use", "name": "web_search", "input": {"query": "wick"}},
        {"type": "tool_result", "content": [{"type": "text", "text": "wicks"}]},
        {"type": "text", "text": "A flat one."},
    ]
    question = [{"type": "text", "text": "Which wick?"}]
    conversation = {
        "uuid": "d-1",
        "name": "Wicks",
        "created_at": "2026-03-01T10:00:00.000000Z",
        "account": {"uuid": "a"},
        "chat_messages": [message(0, "human", question), message(1, "assistant", answer)],
    }
    return orjson.dumps([conversation])
