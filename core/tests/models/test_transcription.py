"""The client of speech models against servers in the style of OpenAI's."""

import asyncio
from collections.abc import Awaitable, Callable
from email.parser import BytesParser
from typing import Any

import orjson
import pytest
from pydantic import SecretStr

from latent_core.domain.errors import Invalid, LimitReached, UpstreamError, UpstreamTimeout
from latent_core.models.llm.transcription import Recording, Segment, Transcriber, in_order
from latent_core.models.providers.entry import Kind
from latent_core.models.providers.registry import Provider, ProviderModel
from tests.support.servers.raw_http import HttpReply, HttpRequest, HttpServer

RECORDING = Recording(b"RIFF....WAVEfmt ", "talk.wav", "audio/wav")
VERBOSE = {
    "task": "transcribe",
    "language": "english",
    "duration": 4.5,
    "text": "Good morning. We begin.",
    "segments": [
        {"id": 0, "start": 0.0, "end": 1.5, "text": " Good morning.", "tokens": [1]},
        {"id": 1, "start": 2.0, "end": 4.5, "text": " We begin.", "tokens": [2]},
    ],
    "usage": {"type": "duration", "seconds": 5},
}


def transcriber(address: str, key: str | None = None) -> Transcriber:
    secret = None if key is None else SecretStr(key)
    provider = Provider("speech", Kind.OPENAI, address, key=secret)
    return Transcriber(ProviderModel(provider, "whisper-1"))


def form_of(request: HttpRequest) -> dict[str, Any]:
    """The fields of a form; of a file its name, type and bytes."""
    head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
    fields: dict[str, Any] = {}
    for part in BytesParser().parsebytes(head + request.body).walk():
        name = part.get_param("name", header="content-disposition")
        if name is not None:
            data = part.get_payload(decode=True)
            file = part.get_filename()
            fields[str(name)] = (
                data.decode() if file is None else (file, part.get_content_type(), data)
            )
    return fields


async def served(
    answer: Callable[[HttpRequest], Awaitable[HttpReply | None]],
    key: str | None = None,
    seconds: float = 20.0,
    base: str = "/v1",
) -> Any:
    server = HttpServer(answer)
    await server.start()
    try:
        return await transcriber(server.address + base, key).transcribe(RECORDING, seconds)
    finally:
        await server.close()


async def test_a_recording_is_sent_as_a_form_and_its_segments_are_read() -> None:
    seen: list[HttpRequest] = []

    async def answer(request: HttpRequest) -> HttpReply:
        seen.append(request)
        return HttpReply(200, orjson.dumps(VERBOSE))

    transcript = await served(answer, key="sk-1")
    assert transcript.text == "Good morning. We begin."
    assert [(one.begin, one.end, one.text.strip()) for one in transcript.segments] == [
        (0.0, 1.5, "Good morning."),
        (2.0, 4.5, "We begin."),
    ]
    (request,) = seen
    assert (request.method, request.path) == ("POST", "/v1/audio/transcriptions")
    assert request.headers["authorization"] == "Bearer sk-1"
    assert form_of(request) == {
        "model": "whisper-1",
        "response_format": "verbose_json",
        "timestamp_granularities[]": "segment",
        "file": ("talk.wav", "audio/wav", RECORDING.data),
    }


async def test_a_model_without_segments_gives_its_text_alone() -> None:
    forms: list[dict[str, Any]] = []

    async def answer(request: HttpRequest) -> HttpReply:
        forms.append(form_of(request))
        if forms[-1]["response_format"] == "verbose_json":
            body = {
                "error": {"message": "response_format 'verbose_json' is not compatible with model"}
            }
            return HttpReply(400, orjson.dumps(body))
        return HttpReply(200, orjson.dumps({"text": "Good morning."}))

    transcript = await served(answer)
    assert (transcript.text, transcript.segments) == ("Good morning.", ())
    assert [form["response_format"] for form in forms] == ["verbose_json", "json"]


async def test_addresses_without_a_version_are_tried_with_and_without_it() -> None:
    paths: list[str] = []

    async def answer(request: HttpRequest) -> HttpReply:
        paths.append(request.path)
        if request.path.startswith("/v1"):
            return HttpReply(404, b"{}")
        return HttpReply(200, orjson.dumps({"text": "Good morning."}))

    assert (await served(answer, base="")).text == "Good morning."
    assert paths == ["/v1/audio/transcriptions", "/audio/transcriptions"]


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (HttpReply(200, b"not json"), UpstreamError),
        (HttpReply(200, b'{"text": 7}'), UpstreamError),
        (
            HttpReply(200, b'{"text": "a", "segments": [{"start": -1, "end": 2, "text": "a"}]}'),
            UpstreamError,
        ),
        (HttpReply(200, b'{"text": "a", "segments": [{"start": 1, "text": "a"}]}'), UpstreamError),
        (HttpReply(429, b"{}", {"Retry-After": "3"}), LimitReached),
        (HttpReply(413, b'{"error": {"message": "Maximum content size limit exceeded"}}'), Invalid),
        (HttpReply(500, b"{}"), UpstreamError),
        (
            HttpReply(200, b"<html><title>Sign in</title></html>", media_type="text/html"),
            UpstreamError,
        ),
        (None, UpstreamError),
    ],
)
async def test_every_wrong_answer_of_a_speech_model_is_a_named_error(
    reply: HttpReply | None, error: type[Exception]
) -> None:
    async def answer(_: HttpRequest) -> HttpReply | None:
        return reply

    with pytest.raises(error) as caught:
        await served(answer, key="sk-secret")
    assert "speech/whisper-1" in str(caught.value)
    assert "sk-secret" not in str(caught.value)


async def test_a_speech_model_that_never_answers_ends_at_its_deadline() -> None:
    async def answer(_: HttpRequest) -> HttpReply | None:
        await asyncio.Event().wait()
        return None

    with pytest.raises(UpstreamTimeout):
        await served(answer, seconds=0.3)


def test_providers_that_transcribe_nothing_are_refused_by_name() -> None:
    provider = Provider("claude", Kind.ANTHROPIC, "https://localhost", key=SecretStr("k"))
    with pytest.raises(Invalid, match=r"claude.*anthropic.*openai"):
        Transcriber(ProviderModel(provider, "x"))


def test_segments_are_ordered_and_empty_ones_dropped() -> None:
    def segment(begin: float, text: str) -> Segment:
        return Segment(begin=begin, end=begin + 1, text=text)

    ordered = in_order([segment(2, "b"), segment(1, " "), segment(0, "a")])
    assert [one.text for one in ordered] == ["a", "b"]
