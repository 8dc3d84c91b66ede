"""Reads what a language model gets of a page, and makes its single-page PDF if there is none yet."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final
from uuid import UUID

from latent_core.blobs.port import BlobStore
from latent_core.blobs.writer import store
from latent_core.db.connection import Connection
from latent_core.db.documents import page_inputs, pages
from latent_core.db.documents.page_inputs import PagedDocument, PageInput
from latent_core.db.documents.pages import PagePdfFile
from latent_core.domain.errors import IngestFailed
from latent_core.domain.ids import Sha256
from latent_core.ingest.processing import PDF
from latent_core.models.llm.port import LanguageModel
from latent_core.queue.context import JobContext
from latent_core.queue.finish import hold
from latent_workers.deps import Deps
from latent_workers.extract.request import PageFile, PageRequest, PageSide
from latent_workers.render.run import page_pdf as taken_out

IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})


class GenerationReplaced(Exception):
    """The generation is not live any more: a newer one has its own job."""


@dataclass(frozen=True, slots=True)
class PreparedPage:
    """A request, and the hashes of the files in it."""

    request: PageRequest
    next_page: int | None
    pdf_sha256: str | None
    """Of the original, if it is a PDF."""
    page_pdf_sha256: str | None
    next_page_pdf_sha256: str | None


class PageReader:
    """Reads pages of one document for one model."""

    def __init__(
        self,
        ctx: JobContext,
        deps: Deps,
        doc_id: UUID,
        document: PagedDocument,
        blobs: BlobStore,
        model: LanguageModel,
    ) -> None:
        self._ctx, self._deps, self._doc_id = ctx, deps, doc_id
        self._document, self._blobs = document, blobs
        self._is_pdf = document.mime == PDF and document.sha256 is not None
        self._sends_pdf = self._is_pdf and model.reads_pdf
        self._sends_images = model.reads_images and not self._sends_pdf
        self._original: Path | None = None
        self._made: dict[int, str] = {}
        self._lock = asyncio.Lock()

    @property
    def needs_images(self) -> bool:
        return self._sends_images

    async def prepared(self, number: int) -> PreparedPage:
        """``IngestFailed`` if a file of the page cannot be made; ``GenerationReplaced``."""
        async with self._deps.stack.db.reading() as conn:
            found = await page_inputs.pages(
                conn, self._doc_id, self._document.generation, [number, number + 1]
            )
        if number not in found:
            raise GenerationReplaced
        pdfs = {page: await self._pdf(one) for page, one in found.items()} if self._is_pdf else {}
        following = found.get(number + 1)
        return PreparedPage(
            PageRequest(
                await self._side(found[number], pdfs),
                await self._side(following, pdfs) if following is not None else None,
            ),
            next_page=following.page if following is not None else None,
            pdf_sha256=self._document.sha256 if self._is_pdf else None,
            page_pdf_sha256=pdfs.get(number),
            next_page_pdf_sha256=pdfs.get(number + 1),
        )

    async def _side(self, page: PageInput, pdfs: Mapping[int, str]) -> PageSide:
        return PageSide(page.text.strip(), await self._file(page, pdfs))

    async def _file(self, page: PageInput, pdfs: Mapping[int, str]) -> PageFile | None:
        if self._sends_pdf:
            sha256 = pdfs[page.page]
            return PageFile("pdf", sha256, PDF, await self._blobs.get(Sha256(sha256)))
        if (
            not self._sends_images
            or page.image_sha256 is None
            or page.image_mime not in IMAGE_TYPES
        ):
            return None
        data = await self._blobs.get(Sha256(page.image_sha256))
        return PageFile("image", page.image_sha256, page.image_mime, data)

    async def _pdf(self, page: PageInput) -> str:
        """Its hash. Two requests need it: the one for the page, and the one for the page before."""
        if page.pdf_sha256 is not None:
            return page.pdf_sha256
        async with self._lock:
            if page.page not in self._made:
                self._made[page.page] = await self._make(page)
        return self._made[page.page]

    async def _make(self, page: PageInput) -> str:
        if self._original is None:
            self._original = await self._blobs.local_copy(Sha256(self._document.sha256 or ""))
        name = self._document.filename or "document.pdf"
        try:
            data = await taken_out(
                self._deps.renderers, self._original, name=name, number=page.page
            )
        except IngestFailed as exc:
            if exc.details.get("reason") != "encrypted":
                raise
            raise EncryptedPdf(name) from exc
        await self._ctx.checkpoint()
        sha256 = await store(self._deps.stack.db, self._blobs, data)
        await self._note(page.page, PagePdfFile(sha256, PDF, _filename(name, page.page)))
        return sha256

    async def _note(self, page: int, made: PagePdfFile) -> None:
        """Refer to the bytes; they are garbage if the generation is no longer live."""

        async def write(conn: Connection) -> bool:
            await hold(conn, self._ctx.job)
            live = await pages.is_live(conn, self._doc_id, self._document.generation)
            if live:
                await pages.note_pdf(conn, self._doc_id, self._document.generation, page, made)
            return live

        if not await self._ctx.transact(write):
            raise GenerationReplaced


class EncryptedPdf(IngestFailed):
    """The original is encrypted and its password is not kept: no page of it can be made."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"'{name}' is stored encrypted and its password is not kept: its pages cannot be extracted. Store it without "
            "a password, then add it again",
            reason="encrypted",
        )


def _filename(name: str, page: int) -> str:
    return f"{PurePosixPath(name).stem}-{page:04d}.pdf"
