"""The client of speech models, against servers in the style of OpenAI's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest
from pydantic import SecretStr

from latent_core.domain.errors import (
    InputRefused,
    LatentError,
    LimitReached,
    MalformedAnswer,
    UpstreamError,
    UpstreamTimeout,
)
from latent_core.models.llm.port import AudioPart, Completion, Usage
from latent_core.models.llm.transcription import Segment, Transcriber, Transcript, in_order
from latent_core.models.llm.wire import ModelEndpoint
from tests.support.servers.llm_dialects import Transcriptions
from tests.support.servers.llm_server import MODEL, LanguageModelServer, Lie
from tests.support.servers.raw_http import HttpReply, HttpRequest, HttpServer

RECORDING = AudioPart(b"RIFF....WAVEfmt ", "talk.wav", "audio/wav")


def request_for(seconds: float = 20.0) -> Completion:
    return Completion("", [RECORDING], None, max_tokens=1, seconds=seconds)


def transcriber(address: str, key: str | None = None) -> Transcriber:
    secret = None if key is None else SecretStr(key)
    return Transcriber(ModelEndpoint(f"speech/{MODEL}", MODEL, address, secret))


async def transcribed(
    server: LanguageModelServer, key: str | None = None
) -> tuple[Transcript, Usage]:
    model = transcriber(server.base_url, key)
    try:
        answer = await model.complete(request_for())
    finally:
        await model.close()
    return Transcript.model_validate_json(answer.text), answer.usage


async def served(
    answer: Callable[[HttpRequest], Awaitable[HttpReply | None]], seconds: float = 20.0
) -> Any:
    server = HttpServer(answer)
    await server.start()
    model = transcriber(server.address, "sk-secret")
    try:
        return await model.complete(request_for(seconds))
    finally:
        await model.close()
        await server.close()


async def test_a_recording_is_sent_as_a_form_and_its_segments_are_read() -> None:
    async with LanguageModelServer(key="sk", script=["Good morning. We begin now."]) as server:
        transcript, _ = await transcribed(server, "sk")
    assert transcript.text == "Good morning. We begin now."
    assert [(one.begin, one.end, one.text.strip()) for one in transcript.segments] == [
        (0.0, 2.0, "Good morning."),
        (2.0, 5.0, "We begin now."),
    ]
    (seen,) = server.seen
    assert (seen.model, seen.audio) == (MODEL, RECORDING.data)
    assert seen.body["response_format"] == "verbose_json"


async def test_a_model_without_segments_gives_its_text_alone() -> None:
    speech = Transcriptions(formats=("json",))
    async with LanguageModelServer(speech=speech, script=["Good morning."]) as server:
        transcript, usage = await transcribed(server)
    assert (transcript.text, transcript.segments) == ("Good morning.", ())
    assert usage.output_tokens == 2  # as the server reports


@pytest.mark.parametrize(
    ("lie", "error"),
    [
        (Lie.RATE_LIMITED, LimitReached),
        (Lie.SERVER_ERROR, UpstreamError),
        (Lie.HUNG_UP, UpstreamError),
        (Lie.TRUNCATED, UpstreamError),
        (Lie.WRONG_CONTENT_TYPE, UpstreamError),
    ],
)
async def test_every_fault_of_a_speech_model_is_a_named_error(
    lie: Lie, error: type[LatentError]
) -> None:
    async with LanguageModelServer(script=[lie, lie]) as server:
        with pytest.raises(error) as caught:
            await transcribed(server)
    assert f"speech/{MODEL}" in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        b'{"text": 7}',
        b'{"text": "a", "segments": [{"start": -1, "end": 2, "text": "a"}]}',
        b'{"text": "a", "segments": [{"start": 1, "text": "a"}]}',
        b'{"text": "a", "segments": [{"start": 1, "end": 1e99, "text": "a"}]}',
    ],
)
async def test_a_transcript_of_another_shape_is_malformed(body: bytes) -> None:
    async def answer(_: HttpRequest) -> HttpReply:
        return HttpReply(200, body)

    with pytest.raises(MalformedAnswer, match=f"speech/{MODEL}"):
        await served(answer)


async def test_a_recording_over_the_limit_of_the_server_is_refused_once() -> None:
    calls = 0

    async def answer(_: HttpRequest) -> HttpReply:
        nonlocal calls
        calls += 1
        message = {"error": {"message": "Maximum content size limit (26214400) exceeded"}}
        return HttpReply(413, orjson.dumps(message))

    with pytest.raises(InputRefused, match="Maximum content size") as caught:
        await served(answer)
    assert "sk-secret" not in str(caught.value)
    assert calls == 1


async def test_a_speech_model_that_never_answers_ends_at_its_deadline() -> None:
    async def answer(_: HttpRequest) -> HttpReply | None:
        await asyncio.Event().wait()
        return None

    with pytest.raises(UpstreamTimeout):
        await served(answer, seconds=0.3)


def test_segments_are_ordered_and_empty_ones_dropped() -> None:
    def segment(begin: float, text: str) -> Segment:
        return Segment.model_validate({"start": begin, "end": begin + 1, "text": text})

    ordered = in_order([segment(2, "b"), segment(1, " "), segment(0, "a")])
    assert [one.text for one in ordered] == ["a", "b"]
