"""Chat completions in the style of OpenAI: also of Ollama, vLLM, llama.cpp, LM Studio and gateways.

The schema of an answer is ``response_format: {type: json_schema}``, which all of these take. PDFs are parts of the type
``file``, which OpenAI's own API reads and local servers refuse.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final

from latent_core.domain.errors import InputRefused
from latent_core.models.llm.port import (
    Answer,
    AnswerPart,
    AudioPart,
    Completion,
    ImagePart,
    JsonSchema,
    Part,
    PdfPart,
    Stop,
    TextPart,
    Usage,
)
from latent_core.models.llm.schema import OF_CHAT, is_strict, narrowed
from latent_core.models.llm.usage import reported
from latent_core.models.llm.wire import ModelEndpoint, ModelWire, data_url

PATH: Final = "/chat/completions"
PDF: Final = "application/pdf"
LIMITS: Final = ("max_tokens", "max_completion_tokens")
"""Names of the limit of an answer: local servers know the first, OpenAI's reasoning models only the second."""
_STOPS: Final = {
    "stop": Stop.END,
    "eos": Stop.END,
    "length": Stop.LENGTH,
    "content_filter": Stop.REFUSAL,
}


class OpenAiChat:
    """Implements ``ModelClient``."""

    def __init__(self, endpoint: ModelEndpoint, *, limit: str = LIMITS[0]) -> None:
        """``limit`` of ``LIMITS``; the other one is tried if the server refuses it."""
        self.name = endpoint.name
        self.reads_pdf = endpoint.reads_pdf
        self.reads_images = endpoint.reads_images
        self._model = endpoint.model
        self._limit = limit
        self._wire = ModelWire(endpoint, PATH)

    async def complete(self, request: Completion) -> Answer:
        limit = self._limit
        try:
            answer = await self._wire.ask(self._body(request), request.seconds)
        except InputRefused as exc:
            self._change_limit(exc, limit)
            answer = await self._wire.ask(self._body(request), request.seconds)
        choice = self._choice(answer)
        if choice is None:
            raise self._wire.malformed("it has no choices")
        text, refusal = self._text_of(choice.get("message"))
        stop = self._stop(choice.get("finish_reason"))
        if stop is None:
            raise self._wire.malformed("it has no finish_reason")
        usage = self._usage(answer, request, text or refusal)
        return Answer(refusal or text, usage, Stop.REFUSAL if refusal else stop)

    async def stream(self, request: Completion) -> AsyncGenerator[AnswerPart, None]:
        limit = self._limit
        try:
            async with aclosing(self._parts(request)) as parts:
                async for part in parts:
                    yield part
            return
        except InputRefused as exc:  # before the first part
            self._change_limit(exc, limit)
        async with aclosing(self._parts(request)) as parts:
            async for part in parts:
                yield part

    async def close(self) -> None:
        await self._wire.close()

    async def _parts(self, request: Completion) -> AsyncGenerator[AnswerPart, None]:
        body = {**self._body(request), "stream": True, "stream_options": {"include_usage": True}}
        texts: list[str] = []
        refused, stop, usage = False, None, None
        async with aclosing(self._wire.events(body, request.seconds)) as events:
            async for event in events:
                if event is None:
                    break
                usage = event.get("usage") or usage
                choice = self._choice(event)
                if choice is None:
                    continue
                text, refusal = self._text_of(choice.get("delta") or {})
                stop = self._stop(choice.get("finish_reason")) or stop
                refused = refused or bool(refusal)
                if piece := text or refusal:
                    texts.append(piece)
                    yield AnswerPart(piece)
        if stop is None:
            raise self._wire.malformed("its stream was cut off")
        used = self._usage({"usage": usage}, request, "".join(texts))
        yield AnswerPart(usage=used, stop=Stop.REFUSAL if refused else stop)

    def _body(self, request: Completion) -> dict[str, Any]:
        messages = [
            {"role": "system", "content": request.system},
            {"role": "user", "content": _content(request.parts)},
        ]
        body: dict[str, Any] = {"model": self._model, "messages": messages}
        body[self._limit] = request.max_tokens
        if request.schema is not None:
            body["response_format"] = _format(request.schema)
        return body

    def _change_limit(self, refusal: InputRefused, used: str) -> None:
        """Use the other name of the limit from now on if the server refused only that of ``used``; else raise."""
        if f"'{used}'" not in refusal.message:
            raise refusal
        self._limit = LIMITS[1 - LIMITS.index(used)]

    def _choice(self, answer: dict[str, Any]) -> dict[str, Any] | None:
        choices = answer.get("choices")
        if not choices:
            return None
        if not isinstance(choices, list) or not isinstance(choices[0], dict):
            raise self._wire.malformed("its choices are no list of objects")
        return choices[0]

    def _text_of(self, message: Any) -> tuple[str, str]:
        """The text, and the text of a refusal."""
        if not isinstance(message, dict):
            raise self._wire.malformed("a choice has no message")
        content, refusal = message.get("content") or "", message.get("refusal") or ""
        if not isinstance(content, str) or not isinstance(refusal, str):
            raise self._wire.malformed("the content of its message is no text")
        return content, refusal

    def _stop(self, reason: Any) -> Stop | None:
        if reason is None:
            return None
        if (stop := _STOPS.get(str(reason))) is None:
            raise self._wire.malformed(f"it ended with {str(reason)[:40]}")
        return stop

    def _usage(self, answer: dict[str, Any], request: Completion, text: str) -> Usage:
        counts = answer.get("usage")
        return reported(self._wire, counts, ("prompt_tokens",), "completion_tokens", request, text)


def _content(parts: Sequence[Part]) -> Any:
    """One text if there are no pictures: templates of some local models read nothing else."""
    if all(isinstance(part, TextPart) for part in parts):
        return "\n\n".join(part.text for part in parts if isinstance(part, TextPart))
    return [_part(part) for part in parts]


def _part(part: Part) -> dict[str, Any]:
    match part:
        case TextPart(text):
            return {"type": "text", "text": text}
        case ImagePart(data, media_type):
            return {"type": "image_url", "image_url": {"url": data_url(media_type, data)}}
        case PdfPart(data, name):
            return {"type": "file", "file": {"filename": name, "file_data": data_url(PDF, data)}}
        case AudioPart():
            raise InputRefused("recordings are for models of speech")


def _format(schema: JsonSchema) -> dict[str, Any]:
    accepted = narrowed(schema.schema, OF_CHAT)
    named = {"name": schema.name, "schema": accepted, "strict": is_strict(accepted)}
    return {"type": "json_schema", "json_schema": named}
