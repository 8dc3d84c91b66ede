"""The pages of a question that the model reads as PDF or image, because their text does not say what they show."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from latent_core.ask.prompt import NumberedSource
from latent_core.db.documents import pages
from latent_core.domain.chunk import SourceType
from latent_core.domain.errors import Issue, IssueCode, LatentError, NotFound, TimedOut, TooLarge
from latent_core.domain.ids import Sha256
from latent_core.models.llm.port import ImagePart, LanguageModel, PdfPart
from latent_core.wire.search import Hit
from latent_gateway.api.page_pdfs import made_page, page_link, requested_page
from latent_gateway.auth import access
from latent_gateway.auth.principal import Principal
from latent_gateway.context import BlobLinks, Gateway

PDF_SECONDS: Final = 15.0
"""For the jobs that make the PDFs of a question, all together."""
MAX_PAGES: Final = 6
"""Pages of one question that go as files; the pages after them are not counted."""
MAX_BYTES: Final = 20 * 1024 * 1024
"""Of all files of one question."""


@dataclass(frozen=True, slots=True)
class PageFile:
    part: PdfPart | ImagePart
    pdf_uri: str | None = None


@dataclass
class PageFiles:
    """Reads the files of one question's pages, as its caller may."""

    shared: Gateway
    caller: Principal
    links: BlobLinks
    model: LanguageModel
    issues: list[Issue] = field(default_factory=list)
    """Of pages that go as text although a picture says more."""

    async def attached(
        self, sources: Sequence[NumberedSource], hits: Sequence[Hit]
    ) -> list[NumberedSource]:
        """The sources, with files where the hits say ``read_as: image``."""
        found = list(sources)
        pictured = [n for n, hit in enumerate(hits) if is_pictured(hit)]
        if pictured and not (self.model.reads_pdf or self.model.reads_images):
            cause = f"'{self.model.name}' reads texts only"
            self.issues += [_as_text(found[n], cause) for n in pictured]
            return found
        cause = f"at most {MAX_PAGES} pages of a question go as files"
        self.issues += [_as_text(found[n], cause) for n in pictured[MAX_PAGES:]]
        until = asyncio.get_running_loop().time() + PDF_SECONDS
        chosen = pictured[:MAX_PAGES]
        pairs = await asyncio.gather(*(self._pair(found[n], hits[n], until) for n in chosen))
        bytes_left = MAX_BYTES
        for n, (page, following) in zip(chosen, pairs, strict=True):
            size = sum(len(file.part.data) for file in (page, following) if file is not None)
            if page is not None and size > bytes_left:
                cause = f"the files of a question have at most {MAX_BYTES} bytes together"
                self.issues.append(_as_text(found[n], cause))
            elif page is not None:
                bytes_left -= size
                found[n] = _with(found[n], page, following)
        return found

    async def _pair(
        self, source: NumberedSource, hit: Hit, until: float
    ) -> tuple[PageFile | None, PageFile | None]:
        """The page, and the page after it if that was consulted to describe it."""
        number = hit.provenance.page or 0
        try:
            page = await self._file(hit, number, until)
        except LatentError as exc:
            self.issues.append(_as_text(source, exc.message))
            return None, None
        if hit.next_page_pdf_uri is None:
            return page, None
        try:
            return page, await self._file(hit, number + 1, until)
        except LatentError:
            return page, None  # it only completes sentences of the page

    async def _file(self, hit: Hit, number: int, until: float) -> PageFile:
        if self.model.reads_pdf and hit.source_type == SourceType.PDF.value:
            return await self._pdf(hit, number, until)
        if not self.model.reads_images:
            raise NotFound(f"'{self.model.name}' reads no images")
        return await self._image(hit, number)

    async def _pdf(self, hit: Hit, number: int, until: float) -> PageFile:
        source, job_id = await requested_page(self.shared, self.caller, hit.doc_id, number)
        if job_id is not None:
            seconds = max(0.0, until - asyncio.get_running_loop().time())
            source = await made_page(self.shared, hit.doc_id, source, job_id, seconds)
        if source.made is None:
            raise TimedOut(f"its PDF was not made within {PDF_SECONDS:g} s")
        data = await self._read(source.bucket, source.made.sha256)
        return PageFile(PdfPart(data, f"page-{number}.pdf"), page_link(self.links, source))

    async def _image(self, hit: Hit, number: int) -> PageFile:
        async with self.shared.stack.db.reading() as conn:
            await access.readable_one(conn, self.caller, hit.container_id)
            row = await pages.one(conn, hit.doc_id, number)
        if row is None or row["image_sha256"] is None or row["mime"] is None:
            raise NotFound("the page has no image")
        return PageFile(
            ImagePart(await self._read(row["bucket"], row["image_sha256"]), row["mime"])
        )

    async def _read(self, bucket: str, sha256: str) -> bytes:
        store = self.shared.stack.blobs.of(bucket)
        size = await store.size(Sha256(sha256))
        if size is not None and size > MAX_BYTES:
            raise TooLarge(f"its file has {size} bytes; at most {MAX_BYTES} go to a language model")
        return await store.get(Sha256(sha256))


def is_pictured(hit: Hit) -> bool:
    """Whether the page of a hit says more than its text."""
    return hit.read_as == "image" and hit.provenance.page is not None


def _with(source: NumberedSource, page: PageFile, following: PageFile | None) -> NumberedSource:
    is_pdf = isinstance(page.part, PdfPart)
    about = source.about.model_copy(
        update={
            "read_as": "pdf" if is_pdf else "image",
            "page_pdf_uri": page.pdf_uri or source.about.page_pdf_uri,
            "next_page": None if following is None else (source.about.page or 0) + 1,
        }
    )
    return replace(
        source, about=about, page=page.part, next_page=following.part if following else None
    )


def _as_text(source: NumberedSource, cause: str) -> Issue:
    about = source.about
    message = f"The model got page {about.page} of '{about.title}' [{about.n}] as text: {cause}."
    details = {"n": about.n, "doc_id": str(about.doc_id), "page": about.page}
    return Issue(code=IssueCode.UNAVAILABLE, message=message, details=details)
