"""Language models over HTTP, against a real server that is as strict as the originals and can lie."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import orjson
import pytest
from pydantic import SecretStr

from latent_core.domain.errors import (
    ConnectionClosed,
    InputRefused,
    LatentError,
    LimitReached,
    MalformedAnswer,
    Misconfigured,
    UpstreamError,
    UpstreamOverload,
    UpstreamTimeout,
)
from latent_core.models.llm.anthropic_messages import AnthropicMessages
from latent_core.models.llm.openai_chat import LIMITS, OpenAiChat
from latent_core.models.llm.port import (
    AnswerPart,
    AudioPart,
    Completion,
    ImagePart,
    JsonSchema,
    LanguageModel,
    PdfPart,
    Stop,
    TextPart,
    Usage,
)
from latent_core.models.llm.transcription import Transcriber, Transcript
from latent_core.models.llm.wire import ModelEndpoint
from tests.support.servers.llm_dialects import (
    ChatCompletions,
    GivenAnswer,
    Messages,
    Transcriptions,
)
from tests.support.servers.llm_server import MODEL, Fault, LanguageModelServer, Lie

KEY: Final = "sk-very-secret-key-0123456789"
PROMPT: Final = "The lamp is red. It stands on a table."
SCHEMA: Final = JsonSchema(
    "note",
    1,
    {
        "type": "object",
        "properties": {
            "note": {"type": "string", "minLength": 3, "maxLength": 80},
            "weight": {"type": "integer", "minimum": 1, "maximum": 5},
        },
        "required": ["note", "weight"],
        "additionalProperties": False,
    },
)


def completion(**changes: Any) -> Completion:
    request: dict[str, Any] = {
        "system": "Answer.",
        "parts": [TextPart(PROMPT)],
        "schema": SCHEMA,
        "max_tokens": 500,
        "seconds": 30.0,
    }
    return Completion(**{**request, **changes})


def endpoint(server: LanguageModelServer, path: str = "", key: str = KEY) -> ModelEndpoint:
    return ModelEndpoint(
        f"work/{MODEL}",
        MODEL,
        server.base_url + path,
        SecretStr(key),
        reads_pdf=True,
        reads_images=True,
        setting="base_url of work",
        key_setting="key_file of work",
    )


@pytest.fixture
async def server() -> AsyncIterator[LanguageModelServer]:
    async with LanguageModelServer(key=KEY) as server:
        yield server


CLIENTS: Final[Mapping[str, Callable[[ModelEndpoint], LanguageModel]]] = {
    "chat": OpenAiChat,
    "messages": lambda endpoint: AnthropicMessages(replace(endpoint, key_header="x-api-key")),
}


@pytest.fixture(params=[*CLIENTS])
async def model(
    server: LanguageModelServer, request: pytest.FixtureRequest
) -> AsyncIterator[LanguageModel]:
    made = CLIENTS[request.param](endpoint(server))
    yield made
    await made.close()


async def streamed(model: LanguageModel, request: Completion) -> list[AnswerPart]:
    return [part async for part in model.stream(request)]


async def test_a_request_has_its_texts_pictures_and_schema_and_the_answer_its_usage(
    server: LanguageModelServer, model: LanguageModel
) -> None:
    parts = [TextPart(PROMPT), ImagePart(b"\x89PNG", "image/png"), PdfPart(b"%PDF-1.7", "p. 7.pdf")]
    answer = await model.complete(completion(parts=parts))
    (seen,) = server.seen
    assert (seen.system, seen.text, seen.model) == ("Answer.", PROMPT, MODEL)
    assert (seen.images, seen.pdfs) == ((b"\x89PNG",), (b"%PDF-1.7",))
    assert seen.max_tokens == 500
    assert seen.schema is not None
    assert orjson.loads(answer.text) == {"note": "The lamp is red.", "weight": 1}
    assert answer.stop is Stop.END
    assert answer.usage == Usage(len(f"Answer. {PROMPT}".split()), len(answer.text.split()))


async def test_a_streamed_answer_comes_in_pieces_and_ends_with_its_usage(
    server: LanguageModelServer, model: LanguageModel
) -> None:
    whole = await model.complete(completion(schema=None))
    *pieces, last = await streamed(model, completion(schema=None))
    assert len(pieces) > 2
    assert "".join(piece.text for piece in pieces) == whole.text
    assert last == AnswerPart(usage=whole.usage, stop=Stop.END)
    assert server.seen[-1].streamed


async def test_limits_that_a_server_does_not_enforce_are_in_the_description_of_its_schema(
    server: LanguageModelServer, model: LanguageModel
) -> None:
    await model.complete(completion())
    (seen,) = server.seen
    assert seen.schema is not None
    assert "maxLength: 80" in seen.schema["properties"]["note"]["description"]


@pytest.mark.parametrize(("lie", "stop"), [(Lie.REFUSAL, Stop.REFUSAL), (Lie.LENGTH, Stop.LENGTH)])
async def test_a_refusal_and_a_cut_answer_say_so(
    server: LanguageModelServer, model: LanguageModel, lie: Lie, stop: Stop
) -> None:
    server.script = [lie, lie]
    answer = await model.complete(completion())
    assert answer.stop is stop
    *pieces, last = await streamed(model, completion())
    assert last.stop is stop
    assert "".join(piece.text for piece in pieces) == answer.text
    assert last.usage == answer.usage


WHOLE: Final[list[tuple[Lie, type[LatentError], str]]] = [
    (Lie.RATE_LIMITED, LimitReached, "limits requests"),
    (Lie.OVERLOADED, UpstreamOverload, "Overloaded"),
    (Lie.SERVER_ERROR, UpstreamError, "internal error"),
    (Lie.WRONG_CONTENT_TYPE, MalformedAnswer, "wrong content type: text/html"),
    (Lie.HUNG_UP, ConnectionClosed, "closed the connection"),
    (Lie.TRUNCATED, MalformedAnswer, "not valid JSON"),
    (Lie.ERROR_IN_STREAM, UpstreamOverload, "failed in its answer"),
    (Lie.UNREADABLE_REQUEST, InputRefused, "refuses this request"),
]


@pytest.mark.parametrize(("lie", "error", "cause"), WHOLE)
async def test_each_lie_is_a_named_error_without_the_key(
    server: LanguageModelServer,
    model: LanguageModel,
    lie: Lie,
    error: type[LatentError],
    cause: str,
) -> None:
    server.script = [Fault(lie, "7"), Fault(lie, "7")]
    with pytest.raises(error, match=cause) as raised:
        await model.complete(completion())
    assert KEY not in str(raised.value)
    assert raised.value.details.get("retry_after") == (
        7.0 if lie in (Lie.RATE_LIMITED, Lie.OVERLOADED, Lie.SERVER_ERROR) else None
    )
    cause = "cut off" if lie is Lie.TRUNCATED else cause
    with pytest.raises(error, match=cause):
        await streamed(model, completion())


async def test_texts_that_are_no_json_are_returned_as_they_are(
    server: LanguageModelServer, model: LanguageModel
) -> None:
    server.script = [Lie.INVALID_JSON, Lie.EXTRA_KEY, Lie.OUT_OF_RANGE]
    answers = [(await model.complete(completion())).text for _ in range(3)]
    assert not answers[0].startswith("{")
    assert "unexpected" in orjson.loads(answers[1])
    assert orjson.loads(answers[2])["weight"] > 5


async def test_a_silent_server_ends_at_the_deadline(
    server: LanguageModelServer, model: LanguageModel
) -> None:
    server.script = [Lie.SLOW, Lie.SLOW]
    with pytest.raises(UpstreamTimeout):
        await model.complete(completion(seconds=0.2))
    with pytest.raises(UpstreamTimeout):
        await streamed(model, completion(seconds=0.2))


async def test_a_stream_that_stalls_ends_at_the_deadline(
    server: LanguageModelServer, model: LanguageModel
) -> None:
    server.stall_after = 3
    with pytest.raises(UpstreamTimeout):
        await streamed(model, completion(seconds=0.5))


async def test_a_stream_that_is_closed_early_leaves_its_connection_usable(
    server: LanguageModelServer, model: LanguageModel
) -> None:
    stream = model.stream(completion(schema=None))
    assert (await anext(stream)).text
    await stream.aclose()
    assert (await model.complete(completion())).stop is Stop.END


@pytest.mark.parametrize("client", [*CLIENTS.values()], ids=[*CLIENTS])
async def test_an_address_may_have_the_version_or_not(
    server: LanguageModelServer, client: Callable[[ModelEndpoint], LanguageModel]
) -> None:
    for path in ("", "/", "/v1", "/v1/"):
        made = client(endpoint(server, path))
        assert (await made.complete(completion())).stop is Stop.END
        assert len(await streamed(made, completion())) > 1
        await made.close()


@pytest.mark.parametrize("client", [*CLIENTS.values()], ids=[*CLIENTS])
async def test_a_wrong_key_and_a_wrong_address_name_their_settings(
    server: LanguageModelServer, client: Callable[[ModelEndpoint], LanguageModel]
) -> None:
    for path, key, setting in (
        ("", "sk-other", "key_file of work"),
        ("/x", KEY, "base_url of work"),
    ):
        made = client(endpoint(server, path, key))
        with pytest.raises(Misconfigured, match=setting) as raised:
            await made.complete(completion())
        assert key not in str(raised.value)
        with pytest.raises(Misconfigured, match=setting):
            await streamed(made, completion())
        await made.close()


@pytest.mark.parametrize("first", LIMITS)
async def test_the_limit_of_an_answer_has_the_name_that_the_model_knows(
    server: LanguageModelServer, first: str
) -> None:
    server.chat.limit = LIMITS[1 - LIMITS.index(first)]
    made = OpenAiChat(endpoint(server), limit=first)
    both = [made.complete(completion()) for _ in range(3)]
    assert {answer.stop for answer in await asyncio.gather(*both)} == {Stop.END}
    await streamed(made, completion())
    assert {seen.max_tokens for seen in server.seen} == {500}
    await made.close()


async def test_a_schema_that_is_closed_is_enforced_and_an_open_one_is_a_hint(
    server: LanguageModelServer,
) -> None:
    made = OpenAiChat(endpoint(server))
    open_schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    await made.complete(completion())
    await made.complete(completion(schema=JsonSchema("open", 1, open_schema)))
    assert [seen.strict for seen in server.seen] == [True, False]
    await made.close()


@pytest.mark.parametrize(
    ("client", "dialect"), [*zip(CLIENTS.values(), (ChatCompletions, Messages), strict=True)]
)
async def test_tokens_are_estimated_where_a_server_reports_none(
    server: LanguageModelServer,
    monkeypatch: pytest.MonkeyPatch,
    client: Callable[[ModelEndpoint], LanguageModel],
    dialect: type[ChatCompletions | Messages],
) -> None:
    monkeypatch.setattr(dialect, "events", _without_usage(dialect.events))
    monkeypatch.setattr(dialect, "document", _without_usage(dialect.document))
    made = client(endpoint(server))
    server.script = [GivenAnswer("x" * 41)] * 2
    answer = await made.complete(completion(system="", parts=[TextPart("y" * 80)]))
    assert answer.usage == Usage(20, 11)
    *_, last = await streamed(made, completion(system="", parts=[TextPart("y" * 80)]))
    assert last.usage == answer.usage
    await made.close()


def _without_usage(original: Callable[..., Any]) -> Callable[..., Any]:
    def answer(*given: Any) -> Any:
        made = original(*given)
        if isinstance(made, dict):
            return {key: value for key, value in made.items() if key != "usage"}
        return [re.sub(rb'"usage":\{[^}]*\}', b'"usage":null', event) for event in made]

    return answer


# -- Anthropic's messages


async def test_what_a_model_thought_is_no_part_of_its_answer_and_cached_tokens_count(
    server: LanguageModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def document(*_: Any) -> Any:
        return {
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                {"type": "text", "text": "The lamp "},
                {"type": "text", "text": "is red."},
            ],
            "stop_reason": "end_turn",
            "usage": {
                "input_tokens": 3,
                "cache_creation_input_tokens": 20,
                "cache_read_input_tokens": None,
                "output_tokens": 9,
            },
        }

    monkeypatch.setattr(Messages, "document", document)
    made = CLIENTS["messages"](endpoint(server))
    answer = await made.complete(completion())
    assert (answer.text, answer.usage) == ("The lamp is red.", Usage(23, 9))
    await made.close()


@pytest.mark.parametrize("reason", ["tool_use", "pause_turn", "new_reason", None])
async def test_an_answer_that_ended_in_an_unknown_way_is_no_answer(
    server: LanguageModelServer, monkeypatch: pytest.MonkeyPatch, reason: str | None
) -> None:
    monkeypatch.setattr(Messages, "_reason", staticmethod(lambda _: reason))
    monkeypatch.setattr(ChatCompletions, "_reason", staticmethod(lambda _: reason))
    for client in CLIENTS.values():
        made = client(endpoint(server))
        with pytest.raises(MalformedAnswer, match=reason or "has no (stop|finish)_reason"):
            await made.complete(completion())
        with pytest.raises(MalformedAnswer, match=reason or "cut off"):
            await streamed(made, completion())
        await made.close()


# -- Speech


SPOKEN: Final = "Hello there. The lamp is red."


@pytest.fixture
async def transcriber(server: LanguageModelServer) -> AsyncIterator[Transcriber]:
    server.answer = lambda _: SPOKEN
    made = Transcriber(endpoint(server))
    yield made
    await made.close()


def recording() -> Completion:
    return completion(system="", parts=[AudioPart(b"RIFF", "a.wav", "audio/wav")], schema=None)


async def test_a_transcript_has_the_times_of_its_segments(
    server: LanguageModelServer, transcriber: Transcriber
) -> None:
    answer = await transcriber.complete(recording())
    transcript = Transcript.model_validate_json(answer.text)
    times = [(one.begin, one.end, one.text.strip()) for one in transcript.segments]
    assert times == [(0.0, 2.0, "Hello there."), (2.0, 6.0, "The lamp is red.")]
    assert (transcript.text, transcript.duration) == (SPOKEN, 6.0)
    (seen,) = server.seen
    assert (seen.audio, seen.model) == (b"RIFF", MODEL)


async def test_a_model_that_gives_no_times_transcribes_without_them(
    server: LanguageModelServer, transcriber: Transcriber
) -> None:
    server.speech.formats = ("json",)
    for _ in range(2):
        answer = await transcriber.complete(recording())
        transcript = Transcript.model_validate_json(answer.text)
        assert (transcript.text, transcript.segments) == (SPOKEN, ())
    assert server.refused == 1  # it is remembered


async def test_a_recording_that_cannot_be_read_is_sent_once(
    server: LanguageModelServer, transcriber: Transcriber
) -> None:
    server.script = [Lie.UNREADABLE_REQUEST]
    with pytest.raises(InputRefused):
        await transcriber.complete(recording())
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    "segments",
    [
        [{"start": -1, "end": 1, "text": "a"}],
        [{"start": "x", "end": 1, "text": "a"}],
        [{"start": 0, "end": 1}],
        ["a"],
        "a",
    ],
)
async def test_segments_with_impossible_times_are_no_transcript(
    transcriber: Transcriber, monkeypatch: pytest.MonkeyPatch, segments: Any
) -> None:
    monkeypatch.setattr(
        Transcriptions, "document", lambda *_: {"text": SPOKEN, "segments": segments}
    )
    with pytest.raises(MalformedAnswer):
        await transcriber.complete(recording())


@pytest.mark.parametrize(("lie", "error", "cause"), WHOLE)
async def test_each_lie_of_a_transcriber_is_a_named_error_without_the_key(
    server: LanguageModelServer,
    transcriber: Transcriber,
    lie: Lie,
    error: type[LatentError],
    cause: str,
) -> None:
    server.script = [Fault(lie, "7")]
    with pytest.raises(error, match=cause) as raised:
        await transcriber.complete(recording())
    assert KEY not in str(raised.value)
