"""Exports page images of documents to a folder. Images that exist already are not fetched again."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import orjson
from pydantic import BaseModel

from latent_client.client import AsyncClient
from latent_client.files import sha256_of
from latent_core.domain.document import DocumentView
from latent_core.domain.errors import Forbidden, NotFound, Unauthorized, Unavailable
from latent_core.wire.pages import ListedPage, PagesPage

CONCURRENCY: Final = 8
PAGE_PDF_SECONDS: Final = 300.0
LISTING: Final = "pages.jsonl"
ENDINGS: Final = {"image/webp": "webp", "image/png": "png", "image/jpeg": "jpg"}
"""File endings by MIME type; other types are refused."""


class MissingPages(BaseModel):
    """A document with missing page images."""

    doc_id: UUID
    source_uri: str
    state: str
    """``pending``, ``failed`` or ``none``."""
    cause: str | None = None


class PagesReport(BaseModel):
    """Result of an export."""

    folder: str
    documents: int = 0
    """Documents with pages."""
    pages: int = 0
    written: int = 0
    kept: int = 0
    """Images that already existed."""
    missing: list[MissingPages] = []


OnPages = Callable[[int, int, int], None]
"""Called with the number of finished documents, of all documents, and of pages so far."""


async def export_pages(
    client: AsyncClient,
    container_id: str,
    folder: Path,
    doc_ids: Sequence[UUID] = (),
    on_progress: OnPages | None = None,
    *,
    base_url: str | None = None,
) -> PagesReport:
    """Write ``<doc_id>/pages/<number>.webp`` and ``<doc_id>/pages.jsonl`` for all documents, or for ``doc_ids``.

    ``uri`` of a line is relative to the document's folder, or absolute below ``base_url``, the address of ``folder``.
    The same pages produce the same files. Records of a corpus have no pages.
    """
    return await _PagesExport(client, container_id, folder, on_progress, base_url).run(doc_ids)


class PagePdfFile(BaseModel):
    """A page of a PDF that was written as its own file."""

    file: str
    doc_id: UUID
    page: int
    bytes: int
    pdf_sha256: str | None
    """Of the PDF that the page is from."""
    page_pdf_sha256: str


class ExtractionFile(BaseModel):
    """A page extraction that was written to a file, and the hashes of what it is from."""

    file: str
    doc_id: UUID
    page: int
    bytes: int
    sha256: str
    """Of the file."""
    page_hash: str
    pdf_sha256: str | None
    page_pdf_sha256: str | None
    next_page_pdf_sha256: str | None


async def export_extraction(
    client: AsyncClient, doc_id: UUID, page: int, file: Path
) -> ExtractionFile:
    """Write what a language model said about a page as JSON."""
    found = await client.page_extraction(doc_id, page)
    content = orjson.dumps(
        found.model_dump(mode="json"), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    )
    await asyncio.to_thread(_write, file, content)
    return ExtractionFile(
        file=str(file),
        doc_id=doc_id,
        page=page,
        bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        page_hash=found.page_hash,
        pdf_sha256=found.pdf_sha256,
        page_pdf_sha256=found.page_pdf_sha256,
        next_page_pdf_sha256=found.next_page_pdf_sha256,
    )


async def export_page_pdf(
    client: AsyncClient, doc_id: UUID, page: int, folder: Path, *, file: Path | None = None
) -> PagePdfFile:
    """Write one page of a PDF as ``<doc_id>/pages/<number>.pdf`` below ``folder``, or to ``file``, and verify its
    hash."""
    made = await client.page_pdf(doc_id, page)
    if made.pdf_uri is None and made.job_id is not None:
        await client.wait([made.job_id], timeout_seconds=PAGE_PDF_SECONDS)
        made = await client.page_pdf(doc_id, page)
    if made.pdf_uri is None or made.page_pdf_sha256 is None:
        raise Unavailable(f"page {page} of document {doc_id} is not ready as a PDF: try again")
    content = (await client.fetch(made.pdf_uri)).content
    if hashlib.sha256(content).hexdigest() != made.page_pdf_sha256:
        raise Unavailable(f"the PDF of page {page} does not match its hash: export it again")
    file = file or folder / str(doc_id) / "pages" / f"{page:04d}.pdf"
    await asyncio.to_thread(_write, file, content)
    return PagePdfFile(
        file=str(file),
        doc_id=doc_id,
        page=page,
        bytes=len(content),
        pdf_sha256=made.pdf_sha256,
        page_pdf_sha256=made.page_pdf_sha256,
    )


class _PagesExport:
    """One run."""

    def __init__(
        self,
        client: AsyncClient,
        container_id: str,
        folder: Path,
        on_progress: OnPages | None,
        base_url: str | None,
    ) -> None:
        self._base_url = base_url
        self._client = client
        self._container_id = container_id
        self._folder = folder
        self._on_progress = on_progress
        self._report = PagesReport(folder=str(folder))
        self._slots = asyncio.Semaphore(CONCURRENCY)

    async def run(self, doc_ids: Sequence[UUID]) -> PagesReport:
        documents = [d async for d in self._documents(doc_ids)]
        for done, document in enumerate(documents, start=1):
            await self._document(document)
            if self._on_progress is not None:
                self._on_progress(done, len(documents), self._report.pages)
        return self._report

    async def _documents(self, doc_ids: Sequence[UUID]) -> AsyncIterator[DocumentView]:
        for doc_id in dict.fromkeys(doc_ids):
            yield await self._client.document(self._container_id, doc_id)
        if not doc_ids:
            async for document in self._client.documents(self._container_id):
                if document.parent_id is None and document.chunks:
                    yield document

    async def _document(self, document: DocumentView) -> None:
        target = self._folder / str(document.doc_id)
        lines: list[dict[str, Any]] = []
        lacking: PagesPage | None = None
        try:
            async for page in self._client.pages(document.doc_id):
                there = [one for one in page.pages if one.sha256 is not None]
                await self._images(document.doc_id, target, there)
                lines += [_line(document, one, self._base_url) for one in there]
                lacking = page if page.page_images != "ready" else lacking
        except NotFound:
            return  # deleted meanwhile
        if lines:
            jsonl = b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines)
            await asyncio.to_thread(_write, target / LISTING, jsonl)
            self._report.documents += 1
        if lacking is not None:
            self._report.missing.append(
                MissingPages(
                    doc_id=document.doc_id,
                    source_uri=document.source_uri,
                    state=lacking.page_images,
                    cause=lacking.page_images_cause,
                )
            )

    async def _images(self, doc_id: UUID, target: Path, pages: Iterable[ListedPage]) -> None:
        """Fetch several images at a time. The first error cancels the rest."""
        try:
            async with asyncio.TaskGroup() as group:
                for page in pages:
                    group.create_task(self._image(doc_id, target / _name(page), page))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _image(self, doc_id: UUID, file: Path, page: ListedPage) -> None:
        async with self._slots:
            if await asyncio.to_thread(file.is_file) and await sha256_of(file) == page.sha256:
                self._report.kept += 1
            else:
                content = await self._fetched(doc_id, page)
                await asyncio.to_thread(_write, file, content)
                self._report.written += 1
            self._report.pages += 1

    async def _fetched(self, doc_id: UUID, page: ListedPage) -> bytes:
        """The image. If its link has expired, a new link is requested once."""
        link = page.page_uri
        for _ in range(2):
            if link is None:
                break
            try:
                content = (await self._client.fetch(link)).content
            except (Unauthorized, Forbidden):
                link = (await self._client.page(doc_id, page.page)).page_uri
                continue
            if hashlib.sha256(content).hexdigest() == page.sha256:
                return content
            break
        raise Unavailable(
            f"the image of page {page.page} of document {doc_id} changed during the export; export again"
        )


def _name(page: ListedPage) -> str:
    ending = ENDINGS.get(page.mime or "")
    if ending is None:
        raise Unavailable(f"page {page.page} has an image of unknown type: {page.mime}")
    return f"pages/{page.page:04d}.{ending}"


def _line(document: DocumentView, page: ListedPage, base_url: str | None) -> dict[str, Any]:
    """A line of the listing. ``uri`` names the exported file, since a link would expire and differ in each export."""
    name = _name(page)
    base = "" if base_url is None else f"{base_url.rstrip('/')}/{document.doc_id}/"
    return {
        "doc_id": str(document.doc_id),
        "page": page.page,
        "uri": f"{base}{name}",
        "sha256": page.sha256,
        "bytes": page.bytes,
        "width": page.width,
        "height": page.height,
        "source_pdf": document.source_uri if document.source_type == "pdf" else None,
        "source_file": document.source_uri,
    }


def _write(file: Path, content: bytes) -> None:
    """Write atomically: an interrupted export leaves no incomplete file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f"{file.name}.part")
    draft.write_bytes(content)
    os.replace(draft, file)
