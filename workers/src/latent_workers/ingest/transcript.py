"""The words of a recording: the container's model of speech writes them while the recording is ingested (ADR 0058)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final
from uuid import UUID

from latent_core.db.containers import Container
from latent_core.domain.errors import IngestFailed, Issue, IssueCode
from latent_core.domain.generated import GeneratedBy, GeneratedKind
from latent_core.domain.text import language_named
from latent_core.models.llm.calls import SPEECH, CachedAnswer, Call
from latent_core.models.llm.port import AudioPart, Completion
from latent_core.models.llm.transcription import Transcript, in_order
from latent_core.queue.context import JobContext
from latent_core.runtime.tasks import ended
from latent_workers.deps import Deps
from latent_workers.parse.parsed import ParsedDocument
from latent_workers.parse.text import spoken
from latent_workers.parse.text.decode import clean
from latent_workers.parse.text.spoken import SpokenLine

PROMPT: Final = "transcript-1"
"""There is no prompt; the version of what is requested."""
MAX_BYTES: Final = 512 * 1024 * 1024
"""Of a recording: it is held in memory. Services accept less (OpenAI 25 MB), own servers more."""
SECONDS: Final = 4 * 3600.0
"""Of one transcription: a server without a GPU needs about as long as the recording lasts."""
SECONDS_BETWEEN_CHECKS: Final = 1.0
SUFFIXES: Final = {
    "audio/wav": (".wav",),
    "audio/mpeg": (".mp3", ".mpga", ".mpeg"),
    "audio/ogg": (".ogg", ".oga", ".opus"),
    "audio/flac": (".flac",),
    "audio/mp4": (".m4a", ".mp4"),
    "audio/webm": (".webm",),
}
"""By which servers recognise a format; the first is added to a name without one."""


@dataclass(frozen=True, slots=True)
class SpokenDocument:
    parsed: ParsedDocument
    by: GeneratedBy


def check_speech(container: Container, name: str, size: int) -> None:
    """``IngestFailed`` if nothing may transcribe the recording ``name``."""
    if not container.manifest.speech.enabled:
        raise IngestFailed(
            f"'{name}' is a recording, and container '{container.id}' has no model of speech. Set speech.enabled: true and "
            "speech.provider: <provider>/<model> in its manifest, then add the recording again"
        )
    if size > MAX_BYTES:
        raise IngestFailed(
            f"'{name}' has {size} bytes; a recording may have {MAX_BYTES}. Split it, or convert it to a smaller format"
        )


async def transcribed(
    ctx: JobContext,
    deps: Deps,
    container: Container,
    doc_id: UUID,
    recording: Path,
    *,
    sha256: str,
    name: str,
    mime: str,
) -> SpokenDocument:
    """The words of a recording as a document. ``IngestFailed`` if nothing is said in it."""
    block = container.manifest.speech
    data = await asyncio.to_thread(recording.read_bytes)
    request = Completion("", [AudioPart(data, _sent_name(name, mime), mime)], None, 1, SECONDS)
    call = Call(
        container_id=container.id,
        purpose=SPEECH,
        block=block,
        prompt_version=PROMPT,
        request=request,
        input_hash=sha256,
        job_id=ctx.job.id,
        doc_id=doc_id,
    )
    answer = await _unless_cancelled(ctx, deps, call)
    transcript = Transcript.model_validate_json(answer.answer.text)
    by = GeneratedBy(
        kind=GeneratedKind.TRANSCRIPT,
        model=answer.model,
        prompt_version=PROMPT,
        created_at=answer.created_at,
    )
    return SpokenDocument(await _document(ctx, transcript, name), by)


async def _unless_cancelled(ctx: JobContext, deps: Deps, call: Call) -> CachedAnswer:
    """The answer; a call that takes an hour ends with its job."""
    task = asyncio.create_task(deps.stack.model_calls.complete(call))
    try:
        while not (await asyncio.wait({task}, timeout=SECONDS_BETWEEN_CHECKS))[0]:
            await ctx.checkpoint()
        return await task
    finally:
        await ended(task)


async def _document(ctx: JobContext, transcript: Transcript, name: str) -> ParsedDocument:
    lines = [
        SpokenLine(one.begin, max(one.begin, one.end), one.speaker or "", words)
        for one in in_order(transcript.segments)
        if (words := _words(one.text))
    ]
    has_times = bool(lines)
    if not has_times and (words := _words(transcript.text)):
        lines = [SpokenLine(0.0, transcript.duration or 0.0, "", words)]
    if not lines:
        raise IngestFailed(
            f"nothing is said in '{name}', or the model of speech recognised nothing"
        )
    parsed = await asyncio.to_thread(spoken.document, lines, name)
    if not has_times:
        await ctx.warn(
            Issue(
                code=IssueCode.INGEST_FAIL,
                message="The model of speech gave no times: the chunks of this recording have no timestamps.",
            )
        )
        parsed = replace(parsed, cues=())
    with suppress(ValueError):
        return replace(parsed, language=language_named(transcript.language or ""))
    return parsed


def _words(text: str) -> str:
    return " ".join(clean(text)[0].split())


def _sent_name(name: str, mime: str) -> str:
    """The name for the server, without a path and with a suffix of its format."""
    plain = PurePosixPath(name).name
    suffixes = SUFFIXES[mime]
    return plain if plain.lower().endswith(suffixes) else plain + suffixes[0]
