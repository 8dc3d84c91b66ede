"""Speech to text over HTTP, as OpenAI's ``/v1/audio/transcriptions`` and the servers that copy it.

``verbose_json`` with segments is requested, since chunks need times. Models that refuse it are requested to send ``json``,
which has text only. Source: OpenAI API reference, "Create transcription".
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from latent_core.domain.errors import InputRefused
from latent_core.models.http.client import Files
from latent_core.models.llm.port import Answer, AnswerPart, AudioPart, Completion
from latent_core.models.llm.usage import reported
from latent_core.models.llm.wire import ModelEndpoint, ModelWire
from latent_core.models.providers.entry import Kind

TRANSCRIBES: Final = frozenset({Kind.OPENAI, Kind.VLLM})
"""Kinds of providers that have this API."""
PATH: Final = "/audio/transcriptions"
MAX_SEGMENTS: Final = 100_000
_WITH_TIMES: Final = {"response_format": "verbose_json", "timestamp_granularities[]": "segment"}
_TEXT_ONLY: Final = {"response_format": "json"}

Seconds = Annotated[float, Field(ge=0.0, le=10_000_000.0, allow_inf_nan=False)]


class Segment(BaseModel):
    """Words that are spoken from ``begin`` to ``end``, in seconds from the start."""

    model_config = ConfigDict(frozen=True)

    begin: Seconds = Field(validation_alias=AliasChoices("begin", "start"))
    end: Seconds
    text: str
    speaker: str | None = None


class Transcript(BaseModel):
    """The text of a recording. Without ``segments`` the server gave no times."""

    model_config = ConfigDict(frozen=True)

    text: str
    language: str | None = None
    duration: Seconds | None = None
    segments: tuple[Segment, ...] = Field(default=(), max_length=MAX_SEGMENTS)


class Transcriber:
    """A model of speech. Implements ``ModelClient``: a request has one ``AudioPart``, and the text of its answer is a
    ``Transcript`` in JSON."""

    reads_pdf = False
    reads_images = False

    def __init__(self, endpoint: ModelEndpoint) -> None:
        self.name = endpoint.name
        self._model = endpoint.model
        self._gives_times = True
        self._wire = ModelWire(endpoint, PATH)

    async def complete(self, request: Completion) -> Answer:
        """``InputRefused`` if the server refuses the recording."""
        (recording,) = (part for part in request.parts if isinstance(part, AudioPart))
        files = [("file", (recording.name, recording.data, recording.media_type))]
        try:
            answer = await self._ask(files, request.seconds)
        except InputRefused as exc:
            if not self._gives_times or "response_format" not in exc.message:
                raise
            self._gives_times = False
            answer = await self._ask(files, request.seconds)
        transcript = self._transcript(answer)
        counts = answer.get("usage")
        tokens = counts if isinstance(counts, dict) and counts.get("type") == "tokens" else {}
        usage = reported(
            self._wire, tokens, ["input_tokens"], "output_tokens", request, transcript.text
        )
        return Answer(transcript.model_dump_json(), usage)

    async def stream(self, request: Completion) -> AsyncGenerator[AnswerPart, None]:
        """The transcript in one part."""
        answer = await self.complete(request)
        yield AnswerPart(answer.text)
        yield AnswerPart(usage=answer.usage, stop=answer.stop)

    async def close(self) -> None:
        await self._wire.close()

    async def _ask(self, files: Files, seconds: float) -> dict[str, Any]:
        form = _WITH_TIMES if self._gives_times else _TEXT_ONLY
        return await self._wire.ask_form({"model": self._model, **form}, files, seconds)

    def _transcript(self, answer: Mapping[str, Any]) -> Transcript:
        if not isinstance(answer.get("text"), str):
            raise self._wire.malformed("it has no text")
        fields = {key: answer.get(key) for key in ("text", "language", "duration")}
        try:
            return Transcript.model_validate({**fields, "segments": answer.get("segments") or ()})
        except ValidationError as exc:
            where = ".".join(map(str, exc.errors()[0]["loc"]))
            raise self._wire.malformed(f"its {where} is not valid") from exc


def in_order(segments: Sequence[Segment]) -> list[Segment]:
    """Segments with words, by their begin."""
    spoken = [one for one in segments if one.text.strip()]
    return sorted(spoken, key=lambda one: (one.begin, one.end))
