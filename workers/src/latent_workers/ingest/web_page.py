"""A page as a job fetches it: requested only if it may have changed, and stored by its hash first."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from latent_core.blobs.writer import store_file
from latent_core.domain.errors import IngestFailed
from latent_core.domain.ids import Sha256
from latent_core.domain.web_address import WebAddress
from latent_core.ingest.accept import IngestPayload, Validators
from latent_core.queue.context import JobContext
from latent_core.queue.lease import amend
from latent_workers.deps import Deps
from latent_workers.fetch.browser import rendered
from latent_workers.fetch.guard import AddressGuard
from latent_workers.fetch.responses import HEAD_BYTES, moment_of, named, plain_type
from latent_workers.fetch.web import Download, WebFetcher

_HTML: Final = frozenset({"text/html", "application/xhtml+xml"})


def awaits_fetch(payload: IngestPayload) -> bool:
    return payload.url is not None and payload.sha256 is None


def as_known(payload: IngestPayload, sha256: str, validators: Validators) -> IngestPayload:
    """``payload`` if the server has nothing newer than ``validators``."""
    return payload.model_copy(
        update={
            "sha256": sha256,
            "validators": validators,
            "mime": validators.mime,
            "filename": validators.filename,
            "accepted_at": datetime.now(UTC),
        }
    )


async def fetch_page(
    ctx: JobContext,
    deps: Deps,
    payload: IngestPayload,
    known: IngestPayload | None = None,
    *,
    javascript: bool = False,
) -> IngestPayload:
    """``payload`` with its bytes stored; ``known`` if the server says that nothing has changed.

    ``javascript``: an HTML page is stored after its scripts have run. Raises the errors of ``WebFetcher.get`` and
    ``rendered``.
    """
    if payload.url is None:
        return payload
    fetcher = web_fetcher(deps)
    address = WebAddress.parse(payload.url)
    download = await fetcher.get(address, known.validators if known else None, ctx.checkpoint)
    if download is None and known is not None:
        return known
    if download is None:
        raise RuntimeError(
            "the server reports an unchanged page, but the request had no validators"
        )
    try:
        if javascript and plain_type(download.content_type) in _HTML:
            download = await _rendered(deps, fetcher, download)
        return await _stored(ctx, deps, payload, download)
    finally:
        await asyncio.to_thread(download.path.unlink, missing_ok=True)


async def _rendered(deps: Deps, fetcher: WebFetcher, download: Download) -> Download:
    """The content of ``download`` after its scripts have run, in the same file."""
    executable = deps.settings.browser_path
    if executable is None:
        raise IngestFailed(
            "the container wants its pages rendered by a browser (web.javascript), and this worker has none: set "
            "LLC_BROWSER_PATH to a Chromium, or web.javascript to false"
        )
    seconds = deps.settings.fetch_seconds
    content = (await rendered(executable, fetcher, download, seconds=seconds)).encode("utf-8")
    await asyncio.to_thread(download.path.write_bytes, content)
    return replace(
        download,
        sha256=Sha256(hashlib.sha256(content).hexdigest()),
        bytes=len(content),
        content_type="text/html; charset=utf-8",
        etag=None,
        last_modified=None,
    )


def web_fetcher(deps: Deps) -> WebFetcher:
    settings = deps.settings
    return WebFetcher(
        AddressGuard(deps.resolve, settings.fetch_allow),
        deps.stack.tmp,
        limit=settings.max_upload_bytes,
        seconds=settings.fetch_seconds,
    )


async def _stored(
    ctx: JobContext, deps: Deps, payload: IngestPayload, download: Download
) -> IngestPayload:
    head = await asyncio.to_thread(_head, download.path)
    filename = named(payload.filename, download.content_type, head)
    mime = download.content_type or payload.mime
    fetched = payload.model_copy(
        update={
            "sha256": download.sha256,
            "mime": mime,
            "filename": filename,
            "accepted_at": datetime.now(UTC),
            "modified_at": payload.modified_at or moment_of(download.last_modified),
            "validators": Validators(
                etag=download.etag,
                last_modified=download.last_modified,
                final_url=str(download.url),
                mime=mime,
                filename=filename,
            ),
        }
    )
    await ctx.checkpoint()
    store = await deps.stack.blobs_of(ctx.job.container_id)
    await store_file(deps.stack.db, store, download.path, download.sha256)
    # Until the document is published, the job is all that keeps the bytes from being garbage.
    await ctx.transact(lambda conn: amend(conn, ctx.job, fetched.model_dump(mode="json")))
    return fetched


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD_BYTES)
