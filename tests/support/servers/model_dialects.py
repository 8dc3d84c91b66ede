"""How models are called over HTTP: Anthropic's messages, OpenAI's responses and chat completions, Gemini's contents.

Each dialect reads a request (the tools it offers, the answers of tools it shows) and writes a reply (a call, a text).
``PlainDialect`` is for clients that have no model: they send what a model would be shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import orjson

Body = Mapping[str, Any]

_USAGE: Final = {"input_tokens": 1, "output_tokens": 1}
_RESPONSE_USAGE: Final = {
    **_USAGE,
    "total_tokens": 2,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}
_CHAT_USAGE: Final = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
_PICTURES: Final = frozenset({"image", "input_image", "image_url"})
_SAYS_NOTHING: Final = frozenset({"type", "id", "mimeType", "mime_type", "detail"})


@dataclass(frozen=True, slots=True)
class OfferedTool:
    name: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class ShownAnswer:
    """The answer of a tool as the model reads it."""

    text: str
    error: bool | None = None
    """Whether the dialect's own flag says so; None where the dialect or the client gives none."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    tools: tuple[OfferedTool, ...]
    answers: tuple[ShownAnswer, ...]
    images: int
    """Pictures that the model sees, in answers or in messages after them."""
    streamed: bool


@dataclass(frozen=True, slots=True)
class FunctionCall:
    tool: OfferedTool
    arguments: Mapping[str, Any]
    number: int
    """Of the call in its conversation."""

    @property
    def id(self) -> str:
        return f"call_{self.number:04}"

    @property
    def json(self) -> str:
        return orjson.dumps(self.arguments).decode()


@dataclass(frozen=True, slots=True)
class Reply:
    """One JSON document, or the events of a stream."""

    document: Any = None
    events: tuple[bytes, ...] = ()


class Dialect(Protocol):
    def read(self, body: Body, *, streamed: bool) -> ModelRequest: ...

    def call(self, body: Body, call: FunctionCall, *, streamed: bool) -> Reply: ...

    def say(self, body: Body, text: str, *, streamed: bool) -> Reply: ...


def shown_text(value: Any) -> str:
    """All that is text in an answer, whichever way a client packs it."""
    return "\n".join(_texts(value))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, Mapping) and not _is_picture(value):
        for key, one in value.items():
            if key not in _SAYS_NOTHING:
                yield from _texts(one)


def pictures(value: Any) -> int:
    """How many there are anywhere in a request."""
    if isinstance(value, list):
        return sum(pictures(one) for one in value)
    if not isinstance(value, Mapping):
        return 0
    return 1 if _is_picture(value) else sum(pictures(one) for one in value.values())


def _is_picture(value: Mapping[str, Any]) -> bool:
    if value.get("type") in _PICTURES:
        return any(value.get(key) for key in ("source", "image_url", "data"))
    inline = value.get("inlineData") or value.get("inline_data")
    return isinstance(inline, Mapping) and str(inline.get("mimeType", "")).startswith("image/")


def _event(data: Mapping[str, Any], name: str = "") -> bytes:
    line = f"event: {name}\n".encode() if name else b""
    return line + b"data: " + orjson.dumps(data) + b"\n\n"


def _typed(events: Iterable[tuple[str, Mapping[str, Any]]]) -> Reply:
    return Reply(events=tuple(_event({"type": name, **data}, name) for name, data in events))


class AnthropicDialect:
    """``POST /v1/messages``."""

    def read(self, body: Body, *, streamed: bool) -> ModelRequest:
        parts = [
            part
            for message in body.get("messages", ())
            if isinstance(message["content"], list)
            for part in message["content"]
            if part.get("type") == "tool_result"
        ]
        return ModelRequest(
            tools=tuple(OfferedTool(t["name"]) for t in body.get("tools", ())),
            answers=tuple(
                ShownAnswer(shown_text(p.get("content")), p.get("is_error") is True) for p in parts
            ),
            images=pictures(body.get("messages", [])),
            streamed=streamed,
        )

    def call(self, body: Body, call: FunctionCall, *, streamed: bool) -> Reply:
        block = {"type": "tool_use", "id": f"toolu_{call.id}", "name": call.tool.name}
        delta = {"type": "input_json_delta", "partial_json": call.json}
        whole = {**block, "input": call.arguments}
        return self._reply(body, {**block, "input": {}}, delta, whole, "tool_use", streamed)

    def say(self, body: Body, text: str, *, streamed: bool) -> Reply:
        delta = {"type": "text_delta", "text": text}
        whole = {"type": "text", "text": text}
        return self._reply(body, {"type": "text", "text": ""}, delta, whole, "end_turn", streamed)

    @staticmethod
    def _reply(
        body: Body, opening: Body, delta: Body, whole: Body, reason: str, streamed: bool
    ) -> Reply:
        message = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": body.get("model", "scripted"),
            "stop_sequence": None,
            "usage": _USAGE,
        }
        if not streamed:
            return Reply({**message, "content": [whole], "stop_reason": reason})
        start = {**message, "content": [], "stop_reason": None}
        end = {"delta": {"stop_reason": reason, "stop_sequence": None}, "usage": _USAGE}
        return _typed(
            (
                ("message_start", {"message": start}),
                ("content_block_start", {"index": 0, "content_block": opening}),
                ("content_block_delta", {"index": 0, "delta": delta}),
                ("content_block_stop", {"index": 0}),
                ("message_delta", end),
                ("message_stop", {}),
            )
        )


class ResponsesDialect:
    """``POST /v1/responses``."""

    def read(self, body: Body, *, streamed: bool) -> ModelRequest:
        given = body.get("input", [])
        items = given if isinstance(given, list) else []
        return ModelRequest(
            tools=tuple(self._tools(body.get("tools") or ())),
            answers=tuple(
                ShownAnswer(shown_text(item["output"]))
                for item in items
                if item.get("type") == "function_call_output"
            ),
            images=pictures(items),
            streamed=streamed,
        )

    @staticmethod
    def _tools(tools: Iterable[Body]) -> Iterator[OfferedTool]:
        for tool in tools:
            if tool.get("type") == "namespace":
                for inner in tool["tools"]:
                    yield OfferedTool(inner["name"], tool["name"])
            elif tool.get("type") == "function":
                yield OfferedTool(tool["name"])

    def call(self, body: Body, call: FunctionCall, *, streamed: bool) -> Reply:
        item = {
            "type": "function_call",
            "id": f"fc_{call.id}",
            "call_id": call.id,
            "name": call.tool.name,
            "arguments": call.json,
            "status": "completed",
            **({"namespace": call.tool.namespace} if call.tool.namespace else {}),
        }
        deltas = (
            ("response.function_call_arguments.delta", {"delta": call.json}),
            ("response.function_call_arguments.done", {"arguments": call.json}),
        )
        return self._reply(body, item, {**item, "arguments": ""}, deltas, streamed)

    def say(self, body: Body, text: str, *, streamed: bool) -> Reply:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        item = {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": content,
        }
        part = {"content_index": 0, "logprobs": []}
        deltas = (
            ("response.output_text.delta", {**part, "delta": text}),
            ("response.output_text.done", {**part, "text": text}),
        )
        return self._reply(body, item, {**item, "content": []}, deltas, streamed)

    @staticmethod
    def _reply(
        body: Body, item: Body, opening: Body, deltas: Iterable[tuple[str, Body]], streamed: bool
    ) -> Reply:
        response = {
            "id": "resp_1",
            "object": "response",
            "created_at": 1_700_000_000,
            "model": body.get("model", "scripted"),
            "parallel_tool_calls": False,
            "tool_choice": "auto",
            "tools": [],
            "error": None,
            "incomplete_details": None,
        }
        whole = {**response, "status": "completed", "output": [item], "usage": _RESPONSE_USAGE}
        if not streamed:
            return Reply(whole)
        begun = {**response, "status": "in_progress", "output": []}
        place = {"output_index": 0}
        events: tuple[tuple[str, Body], ...] = (
            ("response.created", {"response": begun}),
            ("response.output_item.added", {**place, "item": opening}),
            *((name, {**place, "item_id": item["id"], **data}) for name, data in deltas),
            ("response.output_item.done", {**place, "item": item}),
            ("response.completed", {"response": whole}),
        )
        return _typed(
            (name, {**data, "sequence_number": n}) for n, (name, data) in enumerate(events)
        )


class ChatDialect:
    """``POST /v1/chat/completions``."""

    def read(self, body: Body, *, streamed: bool) -> ModelRequest:
        messages = body.get("messages", [])
        return ModelRequest(
            tools=tuple(OfferedTool(t["function"]["name"]) for t in body.get("tools") or ()),
            answers=tuple(
                ShownAnswer(shown_text(m.get("content"))) for m in messages if m["role"] == "tool"
            ),
            images=pictures(messages),
            streamed=streamed,
        )

    def call(self, body: Body, call: FunctionCall, *, streamed: bool) -> Reply:
        function = {"name": call.tool.name, "arguments": call.json}
        calls = [{"index": 0, "id": call.id, "type": "function", "function": function}]
        return self._reply(body, {"content": None, "tool_calls": calls}, "tool_calls", streamed)

    def say(self, body: Body, text: str, *, streamed: bool) -> Reply:
        return self._reply(body, {"content": text}, "stop", streamed)

    @staticmethod
    def _reply(body: Body, part: Body, reason: str, streamed: bool) -> Reply:
        head = {
            "id": "chatcmpl-1",
            "created": 1_700_000_000,
            "model": body.get("model", "scripted"),
        }
        message = {"role": "assistant", **part}
        if not streamed:
            choice = {"index": 0, "message": message, "finish_reason": reason}
            return Reply(
                {**head, "object": "chat.completion", "choices": [choice], "usage": _CHAT_USAGE}
            )
        chunk = {**head, "object": "chat.completion.chunk"}
        first = {"index": 0, "delta": message, "finish_reason": None}
        last = {"index": 0, "delta": {}, "finish_reason": reason}
        events = (
            _event({**chunk, "choices": [first]}),
            _event({**chunk, "choices": [last], "usage": _CHAT_USAGE}),
            b"data: [DONE]\n\n",
        )
        return Reply(events=events)


class GeminiDialect:
    """``POST /v1beta/models/<model>:generateContent`` and ``:streamGenerateContent?alt=sse``."""

    def read(self, body: Body, *, streamed: bool) -> ModelRequest:
        parts = [p for content in body.get("contents", ()) for p in content.get("parts", ())]
        return ModelRequest(
            tools=tuple(
                OfferedTool(function["name"])
                for tool in body.get("tools") or ()
                for function in tool.get("functionDeclarations", ())
            ),
            answers=tuple(
                ShownAnswer(
                    shown_text(response.get("response")), "error" in response.get("response", {})
                )
                for part in parts
                if (response := part.get("functionResponse")) is not None
            ),
            images=pictures(parts),
            streamed=streamed,
        )

    def call(self, body: Body, call: FunctionCall, *, streamed: bool) -> Reply:
        function = {"id": call.id, "name": call.tool.name, "args": call.arguments}
        return self._reply({"functionCall": function}, streamed)

    def say(self, body: Body, text: str, *, streamed: bool) -> Reply:
        return self._reply({"text": text}, streamed)

    @staticmethod
    def _reply(part: Body, streamed: bool) -> Reply:
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        content = {"role": "model", "parts": [part]}
        answer = {
            "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
            "usageMetadata": usage,
            "modelVersion": "scripted",
            "responseId": "response-1",
        }
        return Reply(events=(_event(answer),)) if streamed else Reply(answer)


class PlainDialect:
    """``POST /plain``: ``{tools: [name], answers: [{content, isError}]}``, answered by ``{name, arguments}`` or ``{}``."""

    def read(self, body: Body, *, streamed: bool) -> ModelRequest:
        answers = body["answers"]
        return ModelRequest(
            tools=tuple(OfferedTool(name) for name in body["tools"]),
            answers=tuple(
                ShownAnswer(shown_text(a["content"]), bool(a["isError"])) for a in answers
            ),
            images=pictures(answers),
            streamed=False,
        )

    def call(self, body: Body, call: FunctionCall, *, streamed: bool) -> Reply:
        return Reply({"name": call.tool.name, "arguments": call.arguments})

    def say(self, body: Body, text: str, *, streamed: bool) -> Reply:
        return Reply({})
