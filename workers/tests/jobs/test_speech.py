"""Recordings are found by what is said in them, if the manifest names a model of speech."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from latent_core.db.connection import Database
from latent_core.domain.generated import GeneratedBy, GeneratedKind
from latent_core.domain.job import JobKind
from latent_core.domain.manifest.language_models import ModelBlock
from latent_core.domain.manifest.model import Manifest
from tests.support.harness.model_harness import open_with_model
from tests.support.harness.worker_harness import (
    CONTAINER,
    DIMS,
    WorkerHarness,
)
from tests.support.queue import sql
from tests.support.servers.llm_dialects import Transcriptions
from tests.support.servers.llm_server import MODEL, LanguageModelServer, Lie

WAV: Final = b"RIFF\x26\x00\x00\x00WAVEfmt " + bytes(64)
SPOKEN: Final = "The lighthouse keeper counted ships. Seven passed before noon."
CHUNKS: Final = """
SELECT c.text, c.generated, c.position, c.source_type, c.provenance, c.meta, d.language, d.mime
FROM chunks c JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE d.deleted_at IS NULL ORDER BY c.position
"""
JOBS: Final = "SELECT kind, state, cause FROM jobs ORDER BY id"


@asynccontextmanager
async def opened(
    database: Database, folder: Path, server: LanguageModelServer, speech: ModelBlock
) -> AsyncIterator[WorkerHarness]:
    manifest = Manifest(
        id=CONTAINER, name="Notes", embedder="openai/test", dims=DIMS, speech=speech
    )
    async with open_with_model(database, folder, server, manifest, name="ears") as harness:
        yield harness


EARS: Final = ModelBlock(enabled=True, provider=f"ears/{MODEL}")


async def rows(harness: WorkerHarness) -> list[dict[str, Any]]:
    return list(await sql(harness.stack.db, CHUNKS))


async def test_a_recording_becomes_chunks_with_times_that_name_the_model(
    database: Database, tmp_path: Path
) -> None:
    async with (
        LanguageModelServer(script=[SPOKEN]) as server,
        opened(database, tmp_path, server, EARS) as harness,
    ):
        await harness.add("talk.wav", WAV, mime="audio/wav")
        assert await harness.work() == []
        (row,) = await rows(harness)
        report = await harness.examine()
        jobs = await sql(harness.stack.db, JOBS)
    assert "counted ships" in row["text"]
    assert (row["generated"], row["source_type"], row["mime"]) == (
        "transcript",
        "audio",
        "audio/wav",
    )
    assert row["meta"]["timestamps"] == [0.0, 9.0]
    assert row["language"] == "english"
    by = GeneratedBy.of(row["provenance"])
    assert by is not None
    assert (by.kind, by.model) == (GeneratedKind.TRANSCRIPT, f"ears/{MODEL}")
    assert report.clean
    assert JobKind.RENDER.value not in {job["kind"] for job in jobs}


async def test_a_model_without_times_gives_chunks_without_timestamps_and_says_so(
    database: Database, tmp_path: Path
) -> None:
    async with (
        LanguageModelServer(script=[SPOKEN], speech=Transcriptions(formats=("json",))) as server,
        opened(database, tmp_path, server, EARS) as harness,
    ):
        await harness.add("talk.mp3", b"ID3\x04\x00" + bytes(64), mime="audio/mpeg")
        assert await harness.work() == []
        (row,) = await rows(harness)
        (job,) = await sql(harness.stack.db, "SELECT warnings FROM jobs WHERE kind = 'ingest'")
    assert "timestamps" not in row["meta"]
    assert "no times" in job["warnings"][0]["message"]


async def test_a_recording_without_a_model_of_speech_is_refused_by_the_key_that_is_missing(
    database: Database, tmp_path: Path
) -> None:
    async with (
        LanguageModelServer() as server,
        opened(database, tmp_path, server, ModelBlock()) as harness,
    ):
        await harness.add("talk.wav", WAV, mime="audio/wav")
        (trouble,) = await harness.work()
        assert await rows(harness) == []
    assert "speech.provider" in str(trouble)
    assert server.seen == []


async def test_a_recording_without_speech_fails_by_name(database: Database, tmp_path: Path) -> None:
    async with (
        LanguageModelServer(script=[" "]) as server,
        opened(database, tmp_path, server, EARS) as harness,
    ):
        await harness.add("rain.wav", WAV, mime="audio/wav")
        (trouble,) = await harness.work()
        assert await rows(harness) == []
    assert "nothing is said in 'rain.wav'" in str(trouble)


@pytest.mark.parametrize("lie", [Lie.TRUNCATED, Lie.WRONG_CONTENT_TYPE, Lie.UNREADABLE_REQUEST])
async def test_a_lying_model_of_speech_leaves_no_document_and_a_named_cause(
    database: Database, tmp_path: Path, lie: Lie
) -> None:
    async with (
        LanguageModelServer(answer=lambda _: SPOKEN, rules=[("", lie)]) as server,
        opened(database, tmp_path, server, EARS) as harness,
    ):
        await harness.add("talk.wav", WAV, mime="audio/wav")
        (trouble,) = await harness.work()
        assert await rows(harness) == []
    assert f"ears/{MODEL}" in str(trouble)


async def test_a_crash_after_the_transcript_repeats_no_call(
    database: Database, tmp_path: Path
) -> None:
    async with (
        LanguageModelServer(answer=lambda _: SPOKEN) as server,
        opened(database, tmp_path, server, EARS) as harness,
    ):
        harness.embedder.failure = RuntimeError("the worker dies")
        await harness.add("talk.wav", WAV, mime="audio/wav")
        job = await harness.claim(JobKind.INGEST)
        assert job is not None
        with pytest.raises(RuntimeError):
            await harness.run(job)
        harness.embedder.failure = None
        await sql(harness.stack.db, "UPDATE jobs SET state = 'queued', run_at = now()")
        assert await harness.work() == []
        assert len(await rows(harness)) == 1
    assert len(server.seen) == 1


async def test_another_model_of_speech_transcribes_again_and_the_same_one_does_not(
    database: Database, tmp_path: Path
) -> None:
    change = """
    UPDATE containers SET etag = 'e2', manifest = jsonb_set(manifest, '{speech,provider}', '"ears/model-b"')
    """
    async with (
        LanguageModelServer(answer=lambda seen: f"{seen.model} heard ships.") as server,
        opened(database, tmp_path, server, EARS) as harness,
    ):
        for _ in range(2):
            await harness.add("talk.wav", WAV, mime="audio/wav")
            assert await harness.work() == []
        assert [seen.model for seen in server.seen] == [MODEL]
        await sql(harness.stack.db, change)
        await harness.add("talk.wav", WAV, mime="audio/wav")
        assert await harness.work() == []
        (row,) = await rows(harness)
    assert row["text"].strip() == "model-b heard ships."
