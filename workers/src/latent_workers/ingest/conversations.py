"""Transcripts and exports of assistants: stored as masked conversations instead of the file as it was sent.

The file may hold secrets, and mostly consists of the output of tools. Its conversations in the stored form become the
document's original: one conversation as such, those of an export as the lines of a corpus. The bytes of the file are
garbage from then on (docs/adr/0028-secrets.md).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Final

from latent_core.blobs.writer import store_file
from latent_core.db.connection import Connection
from latent_core.db.containers import Container
from latent_core.domain.conversation import CONVERSATION_MIME
from latent_core.domain.errors import IngestFailed, Issue, IssueCode
from latent_core.domain.ids import Sha256
from latent_core.domain.manifest.model import Transcripts
from latent_core.ingest.accept import CORPUS_MIME, IngestPayload
from latent_core.ingest.delete import LEASES_TO_WAIT, enqueue_collection
from latent_core.ingest.masking import mask_conversation
from latent_core.queue.context import JobContext
from latent_core.queue.lease import amend
from latent_workers.deps import Deps
from latent_workers.ingest.original import Original
from latent_workers.parse.conversation.messages import (
    FoundConversation,
    TranscriptOptions,
    UnreadPart,
)
from latent_workers.parse.conversation.recognise import (
    HEAD_BYTES,
    ConversationFormat,
    recognise,
)
from latent_workers.parse.registry import plain_mime
from latent_workers.parse.run import read_conversations
from latent_workers.parse.structured.jsonl import conversation_line

MAX_REPORTED: Final = 20
"""Unread parts with a warning of their own; one more warning counts the others."""


def conversation_format(path: Path, payload: IngestPayload) -> ConversationFormat | None:
    """The format of a file that must be stored as conversations; None for others, and once it is done. Blocking."""
    if payload.url is not None or payload.source_sha256 is not None:
        return None
    if plain_mime(payload.mime) == CONVERSATION_MIME:
        return ConversationFormat.STORED
    with path.open("rb") as file:
        return recognise(payload.filename, file.read(HEAD_BYTES))


def is_conversation(payload: IngestPayload) -> bool:
    """Whether the stored bytes are one conversation, whatever the file is called."""
    return plain_mime(payload.mime) == CONVERSATION_MIME


def is_export(payload: IngestPayload) -> bool:
    """Whether the stored bytes are the conversations of an export, one per line."""
    return payload.source_sha256 is not None and payload.mime == CORPUS_MIME


async def as_conversations(
    ctx: JobContext, deps: Deps, container: Container, payload: IngestPayload, original: Original
) -> tuple[IngestPayload, Original]:
    """A file that holds conversations in the stored form, with its payload; any other file as it is.

    ``IngestFailed`` says why the conversations cannot be read.
    """
    written_as = await asyncio.to_thread(conversation_format, original.path, payload)
    if written_as is None:
        return payload, original
    draft = await _written(ctx, deps, container, payload, original, written_as)
    if draft.sha256 == original.sha256:
        await asyncio.to_thread(draft.path.unlink, missing_ok=True)
        return payload, original
    try:
        await ctx.checkpoint()
        store = await deps.stack.blobs_of(ctx.job.container_id)
        await store_file(deps.stack.db, store, draft.path, draft.sha256)
    finally:
        await asyncio.to_thread(draft.path.unlink, missing_ok=True)
    changed = payload.model_copy(
        update={
            "sha256": draft.sha256,
            "source_sha256": original.sha256,
            "masked": payload.masked + draft.masked,
            "mime": CORPUS_MIME if written_as.is_export else CONVERSATION_MIME,
            "accepted_at": original.fetched_at,
            "modified_at": original.modified_at,
            "mtime_ns": original.mtime_ns,
        }
    )

    async def write(conn: Connection) -> None:
        # Until the document is published, the job is all that keeps the bytes from being garbage.
        await amend(conn, ctx.job, changed.model_dump(mode="json"))
        await enqueue_collection(
            conn,
            principal=ctx.job.principal,
            delay_seconds=LEASES_TO_WAIT * deps.settings.lease_seconds,
        )

    await ctx.transact(write)
    deps.stack.metrics.masked.labels("conversation").inc(draft.masked)
    path = await store.local_copy(draft.sha256)
    return changed, replace(original, path=path, sha256=draft.sha256)


@dataclass(frozen=True, slots=True)
class _Draft:
    """The stored form of a file, not stored yet."""

    path: Path
    sha256: Sha256
    masked: int


async def _written(
    ctx: JobContext,
    deps: Deps,
    container: Container,
    payload: IngestPayload,
    original: Original,
    written_as: ConversationFormat,
) -> _Draft:
    unread: list[UnreadPart] = []
    found = masked = 0
    with _temporary_file(deps.stack.tmp) as file:
        path = Path(file.name)
        async with read_conversations(
            deps.sandbox,
            original.path,
            name=payload.filename,
            written_as=written_as,
            options=options_of(container.manifest.ingest.transcripts),
        ) as outcomes:
            async for outcome in _checkpointed(ctx, outcomes):
                if isinstance(outcome, UnreadPart):
                    unread.append(outcome)
                    continue
                found += 1
                masked += await asyncio.to_thread(_write, file, outcome, written_as)
        if not found:
            raise IngestFailed(_nothing_found(payload.filename, unread))
        sha256 = await asyncio.to_thread(_hash, file, path)
    await _warn(ctx, written_as, unread)
    return _Draft(path, sha256, masked)


@contextmanager
def _temporary_file(folder: Path) -> Iterator[IO[bytes]]:
    """A new file, removed if the block fails."""
    with NamedTemporaryFile(dir=folder, prefix="conversations-", delete=False) as file:
        try:
            yield file
        except BaseException:
            Path(file.name).unlink()
            raise


def options_of(transcripts: Transcripts) -> TranscriptOptions:
    return TranscriptOptions(tools=transcripts.tools, reasoning=transcripts.reasoning)


async def _checkpointed(
    ctx: JobContext, outcomes: AsyncIterator[FoundConversation | UnreadPart]
) -> AsyncIterator[FoundConversation | UnreadPart]:
    async for outcome in outcomes:
        await ctx.checkpoint()
        yield outcome


def _write(file: IO[bytes], one: FoundConversation, written_as: ConversationFormat) -> int:
    """Writes a masked conversation; the number of secrets in it."""
    conversation, counts = mask_conversation(one.conversation)
    masked = sum(counts.values())
    if written_as.is_export:
        meta = {"masked": masked} if masked else {}
        stored = conversation.model_dump(mode="json", exclude_none=True)
        file.write(conversation_line(one.id, stored, **meta))
    else:
        file.write(conversation.encode())
    return masked


def _hash(file: IO[bytes], path: Path) -> Sha256:
    file.flush()
    with path.open("rb") as written:
        return Sha256(hashlib.file_digest(written, "sha256").hexdigest())


def _nothing_found(name: str, unread: Sequence[UnreadPart]) -> str:
    reason = f": {unread[0].message}" if unread else ""
    return f"'{name}' has no conversation that can be read{reason}"


async def _warn(
    ctx: JobContext, written_as: ConversationFormat, unread: Sequence[UnreadPart]
) -> None:
    lines = (ConversationFormat.CLAUDE_CODE, ConversationFormat.CODEX, ConversationFormat.RECORDS)
    unit = "line" if written_as in lines else "conversation"
    for part in unread[:MAX_REPORTED]:
        await ctx.warn(
            Issue(
                code=IssueCode.INGEST_FAIL,
                message=f"{unit} {part.number} {part.message}",
                details={unit: part.number},
            )
        )
    if len(unread) > MAX_REPORTED:
        more = len(unread) - MAX_REPORTED
        await ctx.warn(
            Issue(code=IssueCode.INGEST_FAIL, message=f"{more} more {unit}s could not be read")
        )
