"""Transcripts and exports through the worker: what becomes a document, and what is stored of the file."""

from __future__ import annotations

import hashlib
import random
import string
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest

from latent_core.db import uploads
from latent_core.db.connection import Database
from latent_core.db.documents.documents import SourceInfo
from latent_core.db.spaces import refresh_sources
from latent_core.domain.conversation import CONVERSATION_MIME, read_conversation
from latent_core.domain.ids import Sha256
from latent_core.domain.job import JobKind
from latent_core.domain.manifest.model import Manifest
from latent_core.ingest.accept import CORPUS_MIME, accept, from_original
from latent_workers.jobs import corpus
from tests.support import transcripts
from tests.support.harness.transfers import delete, export, take_in
from tests.support.harness.worker_harness import CONTAINER, WorkerHarness, open_harness
from tests.support.queue import sql

DOCUMENTS = """
SELECT uri, external_id, title, mime, source_type, sha256, meta, live_chunks, parent_id IS NOT NULL AS of_file
FROM documents WHERE live_generation IS NOT NULL AND deleted_at IS NULL ORDER BY uri
"""
WARNINGS = (
    "SELECT w ->> 'message' AS message FROM jobs, jsonb_array_elements(warnings) w ORDER BY 1"
)


@pytest.fixture
async def harness(database: Database, tmp_path: Path) -> AsyncIterator[WorkerHarness]:
    async with open_harness(database, tmp_path) as opened:
        yield opened


def _secret() -> str:
    return "ghp_" + "".join(random.choices(string.ascii_letters + string.digits, k=36))


async def _documents(harness: WorkerHarness) -> list[dict[str, Any]]:
    return await sql(harness.stack.db, DOCUMENTS)


async def _blobs(harness: WorkerHarness) -> bytes:
    """Everything that the blob store holds."""
    store = harness.stack.blobs.own
    paths = [await store.local_copy(Sha256(sha256)) for sha256 in await harness.stored()]
    return b"\n".join(path.read_bytes() for path in paths)


async def test_a_transcript_is_one_conversation(harness: WorkerHarness) -> None:
    await harness.add("a.jsonl", transcripts.claude_code(), kind=JobKind.CORPUS)
    assert await harness.work() == []
    (document,) = await _documents(harness)
    assert (document["source_type"], document["mime"]) == ("conversation", CONVERSATION_MIME)
    assert document["title"] == "A dark lamp"
    assert document["meta"]["session"] == "5e55-10"
    (text,) = await harness.texts()
    assert "user (2026-03-01 10:00):\nWhy is the lamp dark?" in text
    assert "drip" not in text


async def test_the_manifest_may_ask_for_tools_and_reasoning(harness: WorkerHarness) -> None:
    await _set_manifest(harness, ingest={"transcripts": {"tools": True, "reasoning": True}})
    await harness.add("a.jsonl", transcripts.codex(), kind=JobKind.CORPUS)
    assert await harness.work() == []
    (text,) = await harness.texts()
    assert "reasoning (2026-03-01 10:00):\nFirst the wick." in text
    assert 'shell: {"command": ["trim"]}' in text


async def _set_manifest(harness: WorkerHarness, **keys: Any) -> None:
    (row,) = await sql(harness.stack.db, "SELECT manifest FROM containers")
    manifest = Manifest.model_validate({**row["manifest"], **keys}).model_dump(mode="json")
    await sql(
        harness.stack.db,
        "UPDATE containers SET manifest = %(manifest)s::jsonb, etag = 'changed'",
        manifest=orjson.dumps(manifest).decode(),
    )


async def test_an_export_gives_a_document_for_each_conversation(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "RECORDS_PER_BATCH", 1)
    await harness.add("conversations.json", transcripts.chatgpt(), mime="application/json")
    assert await harness.work() == []
    file, first, second = await _documents(harness)
    assert (file["live_chunks"], file["of_file"]) == (0, False)
    assert [(one["external_id"], one["title"]) for one in (first, second)] == [
        ("c-1", "Oil for lamps"),
        ("c-2", "Hello"),
    ]
    assert {one["source_type"] for one in (first, second)} == {"conversation"}
    assert {one["mime"] for one in (first, second)} == {CONVERSATION_MIME}
    assert first["meta"]["session"] == "c-1"


async def test_an_export_added_again_embeds_only_what_is_new(harness: WorkerHarness) -> None:
    await harness.add("conversations.json", transcripts.chatgpt(), mime="application/json")
    assert await harness.work() == []
    embedded = harness.embedder.texts
    changed = orjson.loads(transcripts.chatgpt(answer="Colza oil, cold pressed."))[:1]
    await harness.add("conversations.json", orjson.dumps(changed), mime="application/json")
    assert await harness.work() == []
    assert harness.embedder.texts == embedded + 1
    _, only = await _documents(harness)
    assert only["external_id"] == "c-1"
    assert "cold pressed" in " ".join(await harness.texts())


async def test_ordinary_records_stay_a_corpus_of_texts(harness: WorkerHarness) -> None:
    await harness.add_corpus({"r1": "user: is it lit?", "r2": "assistant: not yet"})
    assert await harness.work() == []
    documents = await _documents(harness)
    assert [one["source_type"] for one in documents] == ["json", "text", "text"]


async def test_a_secret_is_in_no_store_after_the_file_was_ingested(harness: WorkerHarness) -> None:
    secret = _secret()
    data = transcripts.claude_code(more=f"Use {secret} for the lamp.")
    await harness.add("a.jsonl", data, kind=JobKind.CORPUS)
    async with harness.stack.db.transaction() as conn:
        await uploads.insert(
            conn,
            container_id=CONTAINER,
            sha256=hashlib.sha256(data).hexdigest(),
            filename="a.jsonl",
            mime=CORPUS_MIME,
            size=len(data),
            principal="local:you",
        )
    assert await harness.work() == []
    (document,) = await _documents(harness)
    assert document["meta"]["masked"] == 1
    assert "Use [masked: github-pat] for the lamp." in " ".join(await harness.texts())
    await harness.settle()
    assert secret.encode() not in await _blobs(harness)
    assert b"[masked: github-pat]" in await _blobs(harness)
    counted = harness.stack.metrics.masked.labels("conversation")._value.get()
    assert counted == 1
    report = await harness.examine()
    assert report.clean, report


async def test_secrets_of_an_export_are_masked_and_counted_by_conversation(
    harness: WorkerHarness,
) -> None:
    secret = _secret()
    data = transcripts.chatgpt(answer=f"{secret}, and again {secret}")
    await harness.add("conversations.json", data, mime="application/json")
    assert await harness.work() == []
    _, first, second = await _documents(harness)
    assert (first["meta"].get("masked"), second["meta"].get("masked")) == (2, None)
    await harness.settle()
    assert secret.encode() not in await _blobs(harness)


async def test_a_file_below_an_ingest_root_is_stored_masked_as_well(harness: WorkerHarness) -> None:
    secret = _secret()
    (harness.inbox / "a.jsonl").write_bytes(transcripts.claude_code(more=secret))
    await harness.add("a.jsonl", None, kind=JobKind.CORPUS)
    assert await harness.work() == []
    await harness.settle()
    assert secret.encode() not in await _blobs(harness)


async def test_a_listing_knows_the_file_by_its_own_hash(harness: WorkerHarness) -> None:
    data = transcripts.claude_code()
    await harness.add("a.jsonl", data, kind=JobKind.CORPUS)
    (before,) = await sql(harness.stack.db, "SELECT payload ->> 'sha256' AS sha256 FROM jobs")
    assert await harness.work() == []
    (document,) = await _documents(harness)
    assert document["sha256"] == before["sha256"]
    embedded = harness.embedder.texts
    await harness.add("a.jsonl", data, kind=JobKind.CORPUS)
    assert await harness.work() == []
    assert harness.embedder.texts == embedded


async def test_a_continued_transcript_replaces_the_former_one(harness: WorkerHarness) -> None:
    await harness.add("a.jsonl", transcripts.claude_code(), kind=JobKind.CORPUS)
    assert await harness.work() == []
    await harness.add(
        "a.jsonl", transcripts.claude_code(more="Dry it and trim it."), kind=JobKind.CORPUS
    )
    assert await harness.work() == []
    assert "Dry it and trim it." in " ".join(await harness.texts())
    await harness.settle()
    report = await harness.examine()
    assert report.clean, report


async def test_malformed_lines_are_warnings_and_the_rest_is_ingested(
    harness: WorkerHarness,
) -> None:
    data = transcripts.claude_code() + b'{"type": \n' * 30
    await harness.add("a.jsonl", data, kind=JobKind.CORPUS)
    assert await harness.work() == []
    warnings = [row["message"] for row in await sql(harness.stack.db, WARNINGS)]
    assert any(message.startswith("line 14 is not valid JSON") for message in warnings)
    assert "10 more lines could not be read" in warnings
    assert len(await _documents(harness)) == 1


async def test_a_file_without_a_conversation_fails_with_the_reason(harness: WorkerHarness) -> None:
    meta = orjson.dumps({"type": "session_meta", "payload": {"id": "s"}}) + b"\n"
    await harness.add("a.jsonl", meta, kind=JobKind.CORPUS)
    (trouble,) = await harness.work()
    assert "has no messages of people or models" in str(trouble)
    assert await _documents(harness) == []


async def test_the_stored_form_is_a_document_of_its_own(harness: WorkerHarness) -> None:
    secret = _secret()
    conversation = read_conversation(
        {"title": "Lamps", "messages": [{"name": "Ada", "content": f"Take {secret}"}]}
    )
    await harness.add("lamps", conversation.encode(), mime=CONVERSATION_MIME)
    await harness.add(
        "oil",
        read_conversation({"messages": [{"content": "Oil?"}]}).encode(),
        mime=CONVERSATION_MIME,
    )
    assert await harness.work() == []
    lamps, oil = await _documents(harness)
    assert (lamps["title"], lamps["meta"]["masked"]) == ("Lamps", 1)
    assert oil["title"] == "oil"
    assert await harness.texts() == [
        "Ada:\nTake [masked: github-pat]",
        "user:\nOil?",
    ]


async def test_the_documents_are_made_again_from_what_is_stored(harness: WorkerHarness) -> None:
    await harness.add("a.jsonl", transcripts.claude_code(), kind=JobKind.CORPUS)
    await harness.add("conversations.json", transcripts.claude(), mime="application/json")
    assert await harness.work() == []
    before, texts = await _documents(harness), await harness.texts()
    await _reparse(harness)
    assert await harness.work() == []
    assert await _documents(harness) == before
    assert sorted(await harness.texts()) == sorted(texts)


async def _reparse(harness: WorkerHarness) -> None:
    """As a refresh that parses the originals again."""
    db = harness.stack.db
    async with db.transaction() as conn:
        rows = await refresh_sources.originals(conn, CONTAINER, after=UUID(int=0), limit=10)
        assert len(rows) == 2
        for row in rows:
            kind = JobKind.CORPUS if row["mime"] == CORPUS_MIME else JobKind.INGEST
            source = SourceInfo(CONTAINER, row["uri"], row["mime"])
            payload = from_original(row, "recipe")
            await accept(conn, source, payload, kind=kind, principal="local:you")


async def test_conversations_survive_export_and_import(harness: WorkerHarness) -> None:
    secret = _secret()
    await harness.add("a.jsonl", transcripts.claude_code(more=secret), kind=JobKind.CORPUS)
    await harness.add("conversations.json", transcripts.chatgpt(), mime="application/json")
    assert await harness.work() == []
    before, texts = await _documents(harness), await harness.texts()
    data = await export(harness)
    assert secret.encode() not in data
    await delete(harness, CONTAINER)
    await take_in(harness, data, CONTAINER)
    await harness.settle()
    assert await _documents(harness) == before
    assert sorted(await harness.texts()) == sorted(texts)
    await _reparse(harness)
    assert await harness.work() == []
    assert sorted(await harness.texts()) == sorted(texts)
    report = await harness.examine()
    assert report.clean, report
