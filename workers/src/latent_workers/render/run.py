"""Rendering for jobs: in the sandbox, with one page in memory at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from latent_core.domain.chunk import SourceType
from latent_core.domain.errors import IngestFailed, Issue
from latent_workers.render.page import MIME, ImageFormat, PageInfo, RenderEnd, RenderOptions
from latent_workers.sandbox.budget import MIB, Budget
from latent_workers.sandbox.frames import FrameItem
from latent_workers.sandbox.pool import Sandbox

RENDER_BUDGET: Final = Budget(cpu_seconds=900, wall_seconds=1800, output_bytes=2048 * MIB)
PAGE_PDF_BUDGET: Final = Budget(cpu_seconds=60, wall_seconds=120, output_bytes=256 * MIB)
_LABEL: Final = "the page renderer"
_TASKS: Final = {SourceType.PDF: "pdf_pages", SourceType.IMAGE: "picture"}
_MAGIC: Final[dict[ImageFormat, tuple[int, bytes]]] = {"webp": (8, b"WEBP"), "png": (1, b"PNG")}


@dataclass(frozen=True, slots=True)
class RenderedPage:
    """One page image; pixels; lines of the source, from 1, for rendered text."""

    number: int
    total: int | None
    """Number of pages to draw, if known."""
    image: bytes
    mime: str
    width: int
    height: int
    line_start: int | None
    line_end: int | None
    text: str
    visual: float
    """0 to 1: the share of pictures."""


@dataclass(slots=True)
class Pages:
    """Pages in drawing order. ``warnings`` are complete after the last page."""

    _items: AsyncIterator[FrameItem]
    _format: ImageFormat
    warnings: list[Issue] = field(default_factory=list)
    last: int | None = None
    """Number of the last PDF page to draw, after all pages."""

    async def __aiter__(self) -> AsyncIterator[RenderedPage]:
        async for item in self._items:
            try:
                page = self._page(item)
            except ValidationError as exc:
                raise IngestFailed(f"{_LABEL} gave an inconsistent answer") from exc
            if page is not None:
                yield page

    def _page(self, item: FrameItem) -> RenderedPage | None:
        if not item.attachment:
            end = RenderEnd.model_validate_json(item.value)
            self.warnings += end.warnings
            self.last = end.last
            return None
        info = PageInfo.model_validate_json(item.value)
        at, magic = _MAGIC[self._format]
        if not item.attachment.startswith(magic, at):
            raise IngestFailed(f"{_LABEL} gave an image that is not {self._format}")
        return RenderedPage(
            number=info.number,
            total=info.total,
            image=item.attachment,
            mime=MIME[self._format],
            width=info.width,
            height=info.height,
            line_start=info.line_start,
            line_end=info.line_end,
            text=info.text,
            visual=info.visual,
        )


@asynccontextmanager
async def render(
    sandbox: Sandbox,
    file: Path | int,
    *,
    name: str,
    source_type: SourceType,
    options: RenderOptions,
    charset: str | None = None,
    sanitize_rules: Sequence[str] = (),
    budget: Budget = RENDER_BUDGET,
) -> AsyncIterator[Pages]:
    """Draw the pages of a file (a path, or an open descriptor that stays the caller's)::

        async with render(sandbox, path, name=…, source_type=…, options=…) as pages:
            async for page in pages:
                …

    ``charset`` and ``sanitize_rules`` are those by which a web page was read. ``IngestFailed`` while
    iterating says why it cannot go on.
    """
    task = _TASKS.get(source_type, "story_pages")
    arguments = {
        "name": name,
        "source_type": source_type,
        "options": options.model_dump(),
        "charset": charset,
        "sanitize_rules": list(sanitize_rules),
    }
    async with sandbox.stream(task, arguments, files=[file], budget=budget, label=_LABEL) as items:
        yield Pages(items, options.image_format)


async def page_pdf(
    sandbox: Sandbox,
    file: Path | int,
    *,
    name: str,
    number: int,
    budget: Budget = PAGE_PDF_BUDGET,
) -> bytes:
    """Page ``number`` of a PDF, from 1, as a PDF. ``IngestFailed`` says why it cannot be extracted."""
    arguments = {"name": name, "number": number}
    item = await sandbox.run("page_pdf", arguments, files=[file], budget=budget, label=_LABEL)
    if not item.attachment.startswith(b"%PDF-"):
        raise IngestFailed(f"{_LABEL} gave a page that is not a PDF")
    return item.attachment
