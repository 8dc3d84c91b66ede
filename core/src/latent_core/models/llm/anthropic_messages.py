"""Anthropic's messages. PDFs are documents, which the model reads as text and pictures; the schema of an answer is
``output_config.format``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

from latent_core.domain.errors import InputRefused
from latent_core.models.llm.port import (
    Answer,
    AnswerPart,
    AudioPart,
    Completion,
    ImagePart,
    Part,
    PdfPart,
    Stop,
    TextPart,
    Usage,
)
from latent_core.models.llm.schema import OF_MESSAGES, narrowed
from latent_core.models.llm.usage import reported
from latent_core.models.llm.wire import ModelEndpoint, ModelWire, encoded

PATH: Final = "/messages"
VERSION: Final = "2023-06-01"
_STOPS: Final = {
    "end_turn": Stop.END,
    "stop_sequence": Stop.END,
    "max_tokens": Stop.LENGTH,
    "model_context_window_exceeded": Stop.LENGTH,
    "refusal": Stop.REFUSAL,
}
_READ: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class AnthropicMessages:
    """Implements ``ModelClient``."""

    def __init__(self, endpoint: ModelEndpoint) -> None:
        self.name = endpoint.name
        self.reads_pdf = endpoint.reads_pdf
        self.reads_images = endpoint.reads_images
        self._model = endpoint.model
        self._wire = ModelWire(endpoint, PATH, {"anthropic-version": VERSION})

    async def complete(self, request: Completion) -> Answer:
        answer = await self._wire.ask(self._body(request), request.seconds)
        blocks = answer.get("content")
        if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
            raise self._wire.malformed("its content is no list of blocks")
        text = "".join(self._text(block.get("text")) for block in blocks if _is_text(block))
        stop = self._stop(answer.get("stop_reason"))
        if stop is None:
            raise self._wire.malformed("it has no stop_reason")
        if stop is Stop.REFUSAL:
            text = text or _explanation(answer)
        return Answer(text, self._usage(answer.get("usage"), request, text), stop)

    async def stream(self, request: Completion) -> AsyncGenerator[AnswerPart, None]:
        texts: list[str] = []
        counts: dict[str, Any] = {}
        stop: Stop | None = None
        body = {**self._body(request), "stream": True}
        async with aclosing(self._wire.events(body, request.seconds)) as events:
            async for event in events:
                match event:
                    case {"type": "message_start", "message": {"usage": dict(usage)}}:
                        counts |= usage
                    case {"type": "content_block_delta", "delta": {"type": "text_delta"} as delta}:
                        piece = self._text(delta.get("text"))
                        texts.append(piece)
                        yield AnswerPart(piece)
                    case {"type": "message_delta", "delta": dict(delta)}:
                        stop = self._stop(delta.get("stop_reason"))
                        usage = event.get("usage")
                        given = usage if isinstance(usage, dict) else {}
                        counts |= {key: n for key, n in given.items() if n is not None}
                        if stop is Stop.REFUSAL and not texts and (why := _explanation(delta)):
                            texts.append(why)
                            yield AnswerPart(why)
                    case {"type": "message_stop"}:
                        break
        if stop is None:
            raise self._wire.malformed("its stream was cut off")
        yield AnswerPart(usage=self._usage(counts, request, "".join(texts)), stop=stop)

    async def close(self) -> None:
        await self._wire.close()

    def _body(self, request: Completion) -> dict[str, Any]:
        content = [_block(part) for part in request.parts if part != TextPart("")]
        body: dict[str, Any] = {
            "model": self._model,
            "max_tokens": request.max_tokens,
            "messages": [{"role": "user", "content": content}],
        }
        if request.system:
            body["system"] = request.system
        if request.schema is not None:
            schema = narrowed(request.schema.schema, OF_MESSAGES)
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        return body

    def _text(self, text: Any) -> str:
        if not isinstance(text, str):
            raise self._wire.malformed("a block has no text")
        return text

    def _stop(self, reason: Any) -> Stop | None:
        if reason is None:
            return None
        if (stop := _STOPS.get(str(reason))) is None:
            raise self._wire.malformed(f"it ended with {str(reason)[:40]}")
        return stop

    def _usage(self, counts: Any, request: Completion, text: str) -> Usage:
        return reported(self._wire, counts, _READ, "output_tokens", request, text)


def _is_text(block: dict[str, Any]) -> bool:
    """Others hold what the model thought."""
    return block.get("type") == "text"


def _explanation(answer: dict[str, Any]) -> str:
    match answer.get("stop_details"):
        case {"explanation": str() as why}:
            return why
    return ""


def _block(part: Part) -> dict[str, Any]:
    match part:
        case TextPart(text):
            return {"type": "text", "text": text}
        case ImagePart(data, media_type):
            return {"type": "image", "source": _source(data, media_type)}
        case PdfPart(data, name):
            return {"type": "document", "source": _source(data, "application/pdf"), "title": name}
        case AudioPart():
            raise InputRefused("recordings are for models of speech")


def _source(data: bytes, media_type: str) -> dict[str, str]:
    return {"type": "base64", "media_type": media_type, "data": encoded(data)}
