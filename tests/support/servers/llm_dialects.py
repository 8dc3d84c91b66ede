"""The APIs of language models as their originals serve them: chat completions, messages, transcriptions.

Each reads a request as strictly as the original (unknown and missing fields, wrong shapes) and writes an answer, in one
document or as a stream.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any, Final, Protocol

import orjson

from tests.support.servers.raw_http import HttpReply, HttpRequest

Body = Mapping[str, Any]
_DATA_URL: Final = re.compile(r"data:([\w/+.-]+);base64,(.*)", re.S)
_SCHEMA_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_OF_MESSAGES: Final = (
    *("minimum", "maximum", "multipleOf", "minLength", "maxLength", "maxItems", "uniqueItems"),
    "minItems",
    "pattern",
)


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """What a model was shown."""

    path: str
    model: str
    text: str
    """All texts of the user's message."""
    system: str = ""
    images: tuple[bytes, ...] = ()
    pdfs: tuple[bytes, ...] = ()
    audio: bytes = b""
    schema: Mapping[str, Any] | None = None
    schema_name: str | None = None
    strict: bool | None = None
    max_tokens: int | None = None
    streamed: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    text: str
    stop: str = "end"
    """Or ``length``, or ``refusal``."""
    input_tokens: int = 0
    output_tokens: int = 0


class RefusalError(Exception):
    """A request that the original refuses."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class ModelDialect(Protocol):
    paths: Sequence[str]

    def read(self, request: HttpRequest) -> SeenRequest: ...

    def document(self, seen: SeenRequest, answer: GivenAnswer) -> Any: ...

    def events(self, seen: SeenRequest, answer: GivenAnswer) -> list[bytes]: ...

    def refuse(
        self, status: int, message: str, headers: Mapping[str, str] | None = None
    ) -> HttpReply: ...


def _fields(body: Body, needed: set[str], known: set[str]) -> None:
    if missing := needed - set(body):
        raise RefusalError(400, f"Missing required parameter: '{min(missing)}'")
    if strange := set(body) - needed - known:
        raise RefusalError(400, f"Unrecognized request argument supplied: {min(strange)}")


def _decoded(data: Any) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, TypeError) as exc:
        raise RefusalError(400, "Invalid base64 data") from exc


def _of_data_url(url: Any, kind: str) -> bytes:
    found = _DATA_URL.fullmatch(url) if isinstance(url, str) else None
    if found is None or not found[1].startswith(kind):
        raise RefusalError(400, f"Expected a base64-encoded data URL of {kind}")
    return _decoded(found[2])


def _pieces(text: str, count: int = 4) -> Iterator[str]:
    size = max(1, -(-len(text) // count))
    for at in range(0, len(text), size):
        yield text[at : at + size]


def _data(value: Any, name: str = "") -> bytes:
    return (f"event: {name}\n" if name else "").encode() + b"data: " + orjson.dumps(value) + b"\n\n"


class ChatCompletions:
    """``POST /v1/chat/completions``. ``limit``: the name of the limit that it knows; None: both."""

    paths: Sequence[str] = ("/v1/chat/completions",)

    def __init__(
        self, *, limit: str | None = None, reads_images: bool = True, reads_pdf: bool = True
    ) -> None:
        self.limit = limit
        self.reads_images = reads_images
        self.reads_pdf = reads_pdf

    def read(self, request: HttpRequest) -> SeenRequest:
        body = orjson.loads(request.body)
        _fields(
            body,
            {"model", "messages"},
            {"max_tokens", "max_completion_tokens", "response_format", "stream", "stream_options"},
        )
        for name in {"max_tokens", "max_completion_tokens"} & set(body):
            if self.limit not in (None, name):
                raise RefusalError(
                    400,
                    f"Unsupported parameter: '{name}' is not supported with this model. Use '{self.limit}' instead.",
                )
        if "stream_options" in body and body.get("stream") is not True:
            raise RefusalError(400, "The 'stream_options' parameter is only allowed with 'stream'")
        system, user = body["messages"]
        if (system["role"], user["role"]) != ("system", "user"):
            raise RefusalError(400, "roles are system and user")
        texts, images, pdfs = self._content(user["content"])
        schema_name, schema, strict = self._schema(body.get("response_format"))
        return SeenRequest(
            request.path,
            body["model"],
            "\n".join(texts),
            system["content"],
            tuple(images),
            tuple(pdfs),
            schema=schema,
            schema_name=schema_name,
            strict=strict,
            max_tokens=body.get("max_tokens", body.get("max_completion_tokens")),
            streamed=body.get("stream") is True,
            headers=request.headers,
            body=body,
        )

    def _content(self, content: Any) -> tuple[list[str], list[bytes], list[bytes]]:
        texts: list[str] = []
        images: list[bytes] = []
        pdfs: list[bytes] = []
        for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            match part:
                case {"type": "text", "text": str() as text}:
                    texts.append(text)
                case {"type": "image_url", "image_url": {"url": url}} if self.reads_images:
                    images.append(_of_data_url(url, "image/"))
                case {"type": "file", "file": {"filename": str(), "file_data": url}} if (
                    self.reads_pdf
                ):
                    pdfs.append(_of_data_url(url, "application/pdf"))
                case _:
                    raise RefusalError(400, f"unsupported content part: {part.get('type')}")
        return texts, images, pdfs

    @staticmethod
    def _schema(given: Any) -> tuple[str | None, Any, bool | None]:
        if given is None:
            return None, None, None
        if given.get("type") != "json_schema":
            raise RefusalError(400, "Invalid value for 'response_format.type'")
        inner = given["json_schema"]
        _fields(inner, {"name", "schema"}, {"strict", "description"})
        if not _SCHEMA_NAME.fullmatch(inner["name"]):
            raise RefusalError(400, "Invalid 'response_format.json_schema.name'")
        if inner.get("strict"):
            _check_strict(inner["schema"])
        return inner["name"], inner["schema"], inner.get("strict")

    def document(self, seen: SeenRequest, answer: GivenAnswer) -> Any:
        refused = answer.stop == "refusal"
        message = {
            "role": "assistant",
            "content": None if refused else answer.text,
            "refusal": answer.text if refused else None,
        }
        choice = {"index": 0, "message": message, "finish_reason": self._reason(answer)}
        return {**self._head(seen, ""), "choices": [choice], "usage": self._usage(answer)}

    def events(self, seen: SeenRequest, answer: GivenAnswer) -> list[bytes]:
        head = self._head(seen, ".chunk")
        key = "refusal" if answer.stop == "refusal" else "content"

        def chunk(delta: Body, reason: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            return _data({**head, "choices": [choice], "usage": None})

        return [
            chunk({"role": "assistant", "content": ""}),
            *(chunk({key: piece}) for piece in _pieces(answer.text)),
            chunk({}, self._reason(answer)),
            _data({**head, "choices": [], "usage": self._usage(answer)}),
            b"data: [DONE]\n\n",
        ]

    @staticmethod
    def _head(seen: SeenRequest, ending: str) -> dict[str, Any]:
        kind = f"chat.completion{ending}"
        return {"id": "chatcmpl-1", "object": kind, "created": 1_700_000_000, "model": seen.model}

    @staticmethod
    def _reason(answer: GivenAnswer) -> str:
        return "length" if answer.stop == "length" else "stop"

    @staticmethod
    def _usage(answer: GivenAnswer) -> dict[str, int]:
        return {
            "prompt_tokens": answer.input_tokens,
            "completion_tokens": answer.output_tokens,
            "total_tokens": answer.input_tokens + answer.output_tokens,
        }

    def refuse(
        self, status: int, message: str, headers: Mapping[str, str] | None = None
    ) -> HttpReply:
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
        return HttpReply(status, orjson.dumps({"error": error}), headers or {})


def _check_strict(schema: Any) -> None:
    """As OpenAI does for ``strict``."""
    if isinstance(schema, list):
        for one in schema:
            _check_strict(one)
    elif isinstance(schema, Mapping):
        if schema.get("type") == "object":
            if schema.get("additionalProperties") is not False:
                raise RefusalError(400, "'additionalProperties' is required to be false")
            if set(schema.get("required", ())) != set(schema.get("properties", {})):
                raise RefusalError(400, "'required' is required to include every key in properties")
        if unknown := {"minLength", "maxLength", "uniqueItems", "default"} & set(schema):
            raise RefusalError(400, f"'{min(unknown)}' is not permitted")
        for value in schema.values():
            _check_strict(value)


class Messages:
    """``POST /v1/messages`` of Anthropic."""

    paths: Sequence[str] = ("/v1/messages",)

    def read(self, request: HttpRequest) -> SeenRequest:
        if request.headers.get("anthropic-version") != "2023-06-01":
            raise RefusalError(400, "anthropic-version: header is required")
        body = orjson.loads(request.body)
        _fields(body, {"model", "messages", "max_tokens"}, {"system", "stream", "output_config"})
        (message,) = body["messages"]
        if message["role"] != "user":
            raise RefusalError(400, "messages: first message must use the user role")
        texts: list[str] = []
        images: list[bytes] = []
        pdfs: list[bytes] = []
        for block in message["content"]:
            match block:
                case {"type": "text", "text": str() as text} if text.strip():
                    texts.append(text)
                case {
                    "type": "image",
                    "source": {"type": "base64", "media_type": media_type, "data": data},
                } if media_type in ("image/png", "image/jpeg", "image/webp", "image/gif"):
                    images.append(_decoded(data))
                case {
                    "type": "document",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": data},
                }:
                    pdfs.append(_decoded(data))
                case _:
                    raise RefusalError(400, f"messages.0.content: {block.get('type')} is not valid")
        return SeenRequest(
            request.path,
            body["model"],
            "\n".join(texts),
            body.get("system", ""),
            tuple(images),
            tuple(pdfs),
            schema=self._schema(body.get("output_config")),
            max_tokens=body["max_tokens"],
            streamed=body.get("stream") is True,
            headers=request.headers,
            body=body,
        )

    @staticmethod
    def _schema(config: Any) -> Any:
        if config is None:
            return None
        _fields(config, {"format"}, {"effort"})
        given = config["format"]
        if given.get("type") != "json_schema":
            raise RefusalError(400, "output_config.format.type: Input should be 'json_schema'")
        _check_output(given["schema"])
        return given["schema"]

    def document(self, seen: SeenRequest, answer: GivenAnswer) -> Any:
        content = [{"type": "text", "text": answer.text}] if answer.text else []
        return {
            **self._message(seen, answer.input_tokens, answer.output_tokens),
            "content": content,
            "stop_reason": self._reason(answer),
        }

    def events(self, seen: SeenRequest, answer: GivenAnswer) -> list[bytes]:
        opening = {**self._message(seen, answer.input_tokens, 1), "stop_reason": None}
        pieces = [
            {"index": 0, "delta": {"type": "text_delta", "text": piece}}
            for piece in _pieces(answer.text)
        ]
        ending = {
            "delta": {"stop_reason": self._reason(answer), "stop_sequence": None},
            "usage": {"output_tokens": answer.output_tokens},
        }
        block = {"index": 0, "content_block": {"type": "text", "text": ""}}
        events: list[tuple[str, Body]] = [
            ("message_start", {"message": {**opening, "content": []}}),
            ("content_block_start", block),
            ("ping", {}),
            *(("content_block_delta", piece) for piece in pieces),
            ("content_block_stop", {"index": 0}),
            ("message_delta", ending),
            ("message_stop", {}),
        ]
        return [_data({"type": name, **data}, name) for name, data in events]

    @staticmethod
    def _message(seen: SeenRequest, read: int, written: int) -> dict[str, Any]:
        usage = {
            "input_tokens": read,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": written,
        }
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": seen.model,
            "stop_sequence": None,
            "usage": usage,
        }

    @staticmethod
    def _reason(answer: GivenAnswer) -> str:
        return {"end": "end_turn", "length": "max_tokens", "refusal": "refusal"}[answer.stop]

    def refuse(
        self, status: int, message: str, headers: Mapping[str, str] | None = None
    ) -> HttpReply:
        kinds = {429: "rate_limit_error", 529: "overloaded_error", 401: "authentication_error"}
        error = {"type": kinds.get(status, "invalid_request_error"), "message": message}
        body = {"type": "error", "error": error, "request_id": "req_1"}
        return HttpReply(status, orjson.dumps(body), headers or {})


def _check_output(schema: Any) -> None:
    """As Anthropic does: objects are closed, and limits of numbers and lengths are refused."""
    if isinstance(schema, list):
        for one in schema:
            _check_output(one)
    elif isinstance(schema, Mapping):
        if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
            raise RefusalError(
                400, "For 'object' type, 'additionalProperties' must be explicitly set to false"
            )
        if isinstance(schema.get("type"), str):
            for key in _NOT_OF_MESSAGES:
                if key in schema:
                    raise RefusalError(
                        400, f"For '{schema['type']}' type, property '{key}' is not supported"
                    )
        for value in schema.values():
            _check_output(value)


class Transcriptions:
    """``POST /v1/audio/transcriptions``. ``formats``: response formats that its model knows."""

    paths: Sequence[str] = ("/v1/audio/transcriptions",)

    def __init__(self, formats: Sequence[str] = ("json", "verbose_json", "text")) -> None:
        self.formats = formats

    def read(self, request: HttpRequest) -> SeenRequest:
        fields, files = _form(request)
        known = {"model", "response_format", "timestamp_granularities[]", "language"}
        _fields({**fields, **dict.fromkeys(files, "")}, {"model", "file"}, known)
        if (form := fields.get("response_format", "json")) not in self.formats:
            raise RefusalError(400, f"response_format '{form}' is not compatible with this model")
        return SeenRequest(
            request.path,
            fields["model"],
            "",
            audio=files["file"],
            headers=request.headers,
            body=fields,
        )

    def document(self, seen: SeenRequest, answer: GivenAnswer) -> Any:
        """One second of speech per word, a segment per sentence."""
        if seen.body.get("response_format") != "verbose_json":
            tokens = {
                "type": "tokens",
                "input_tokens": answer.input_tokens,
                "output_tokens": answer.output_tokens,
                "total_tokens": answer.input_tokens + answer.output_tokens,
            }
            return {"text": answer.text, "usage": tokens}
        segments, at = [], 0
        for number, sentence in enumerate(re.findall(r"[^.!?]+[.!?]?", answer.text)):
            until = at + len(sentence.split())
            segments.append(
                {"id": number, "seek": 0, "start": float(at), "end": float(until), "text": sentence}
            )
            at = until
        return {
            "task": "transcribe",
            "language": "english",
            "duration": float(at),
            "text": answer.text,
            "segments": segments,
            "usage": {"type": "duration", "seconds": at},
        }

    def events(self, seen: SeenRequest, answer: GivenAnswer) -> list[bytes]:
        raise RefusalError(400, "streaming is not supported")

    def refuse(
        self, status: int, message: str, headers: Mapping[str, str] | None = None
    ) -> HttpReply:
        return HttpReply(status, orjson.dumps({"error": {"message": message}}), headers or {})


def _form(request: HttpRequest) -> tuple[dict[str, str], dict[str, bytes]]:
    head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
    fields: dict[str, str] = {}
    files: dict[str, bytes] = {}
    message = BytesParser(EmailMessage, policy=HTTP).parsebytes(head + request.body)
    for part in message.iter_parts():
        name = str(part.get_param("name", header="content-disposition"))
        content = part.get_payload(decode=True)
        if not isinstance(content, bytes):
            raise RefusalError(400, f"{name} has no content")
        if part.get_filename() is None:
            fields[name] = content.decode()
        else:
            files[name] = content
    return fields, files
