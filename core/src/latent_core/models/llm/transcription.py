"""Speech to text over HTTP, as OpenAI's ``/v1/audio/transcriptions`` and the servers that copy it.

``verbose_json`` with segments is requested, since chunks need times. Models that refuse it are asked for ``json``, which
has text only. Source: OpenAI API reference, "Create transcription".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import httpx
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from latent_core.domain.errors import Invalid, Misconfigured, UpstreamError
from latent_core.models.http.address import in_version_1, parsed_address
from latent_core.models.http.client import ModelHttpClient, ModelServer
from latent_core.models.providers.entry import Kind
from latent_core.models.providers.registry import ProviderModel
from latent_core.telemetry.redaction import OwnKey

TRANSCRIBES: Final = frozenset({Kind.OPENAI, Kind.VLLM})
MAX_ANSWER_BYTES: Final = 32 * 1024 * 1024
MAX_SEGMENTS: Final = 100_000
_NO_SUCH_PLACE: Final = (404, 405)
_REFUSED: Final = (400, 422)
_FORMS: Final = (
    {"response_format": "verbose_json", "timestamp_granularities[]": "segment"},
    {"response_format": "json"},
)

Seconds = Annotated[float, Field(ge=0.0, le=10_000_000.0, allow_inf_nan=False)]


class Segment(BaseModel):
    """Words that are spoken from ``begin`` to ``end``, in seconds from the start."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    begin: Seconds = Field(validation_alias=AliasChoices("begin", "start"))
    end: Seconds
    text: str
    speaker: str = ""


class Transcript(BaseModel):
    """The text of a recording. Without ``segments`` the server gave no times."""

    model_config = ConfigDict(frozen=True)

    text: str
    language: str | None = None
    duration: Seconds | None = None
    segments: tuple[Segment, ...] = Field(default=(), max_length=MAX_SEGMENTS)


@dataclass(frozen=True, slots=True)
class Recording:
    """A file of sound."""

    data: bytes
    name: str
    """Without a path; servers recognise the format by its suffix."""
    media_type: str


class Transcriber:
    """One model of speech of one provider."""

    def __init__(self, model: ProviderModel) -> None:
        """``Misconfigured`` for a provider without its key, ``Invalid`` for one without transcriptions."""
        provider = model.provider
        if provider.kind not in TRANSCRIBES:
            kinds = " and ".join(sorted(kind.value for kind in TRANSCRIBES))
            raise Invalid(
                f"the provider '{provider.name}' is of kind {provider.kind.value}, which transcribes no speech; use one of"
                f" kind {kinds}"
            )
        if (missing := provider.missing()) is not None:
            raise Misconfigured(f"the provider '{provider.name}' {missing}")
        self.name = f"{provider.name}/{model.model}"
        self._model = model
        base = parsed_address(provider.base_url or "", provider.address_setting)
        self._host = base.host
        self._places = in_version_1(base, "/audio/transcriptions")

    async def transcribe(self, recording: Recording, seconds: float) -> Transcript:
        """One call; ``seconds`` is its deadline. ``Invalid`` if the server refuses the recording."""
        refusal: Invalid | None = None
        for url in self._places:
            for form in _FORMS:
                try:
                    return await self._ask(url, recording, form, seconds)
                except Invalid as error:
                    refusal = error
                status = refusal.details.get("upstream_status")
                if status not in _REFUSED:
                    break
            if refusal is None or refusal.details.get("upstream_status") not in _NO_SUCH_PLACE:
                break
        assert refusal is not None
        raise refusal

    async def _ask(
        self, url: httpx.URL, recording: Recording, form: dict[str, str], seconds: float
    ) -> Transcript:
        provider, name = self._model.provider, f"the model of speech '{self.name}' at {self._host}"
        server = ModelServer(
            name=name,
            url=url,
            key=OwnKey(provider.secret(), provider.key_setting, provider.key_header),
            refused=lambda status, text: Invalid(
                f"{name} refuses '{recording.name}' ({status}): {text}", upstream_status=status
            ),
            too_long=lambda limit: UpstreamError(f"{name} sent more than {limit} bytes"),
        )
        client = ModelHttpClient(server, connections=1, seconds=seconds)
        files = [("file", (recording.name, recording.data, recording.media_type))]
        try:
            answer = await client.post_form(
                {"model": self._model.model, **form}, files, max_bytes=MAX_ANSWER_BYTES
            )
        finally:
            await client.close()
        return _read(answer, name)


def _read(answer: Any, name: str) -> Transcript:
    if not isinstance(answer, dict) or not isinstance(answer.get("text"), str):
        raise UpstreamError(f"{name} sent a response without a text")
    fields = {key: answer.get(key) for key in ("text", "language", "duration")}
    try:
        return Transcript.model_validate({**fields, "segments": answer.get("segments") or ()})
    except ValidationError as exc:
        where = ".".join(map(str, exc.errors()[0]["loc"]))
        raise UpstreamError(f"{name} sent an invalid response: {where}") from exc


def in_order(segments: Sequence[Segment]) -> list[Segment]:
    """Segments with words, by their begin."""
    spoken = [one for one in segments if one.text.strip()]
    return sorted(spoken, key=lambda one: (one.begin, one.end))
