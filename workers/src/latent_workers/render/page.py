"""A rendered page, and the options of rendering."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from latent_core.domain.errors import Issue

ImageFormat = Literal["webp", "png"]
MIME = {"webp": "image/webp", "png": "image/png"}


class RenderOptions(BaseModel):
    """From the manifest: ``pdf.render_dpi``, ``pdf.image_format``, ``pdf.max_pages``,
    ``image.thumbnail_max_edge``, a quality of 1 to 100."""

    model_config = ConfigDict(frozen=True)

    dpi: int = Field(default=150, ge=36, le=600)
    image_format: ImageFormat = "webp"
    quality: int = Field(default=80, ge=1, le=100)
    """Of WebP; PNG and pages drawn from text are lossless."""
    max_pages: int = Field(default=1000, ge=1)
    max_edge: int = Field(default=2048, ge=1)
    """Pixels of the longest edge, of images only."""
    first: int = Field(default=1, ge=1)
    """First page of a PDF …"""
    last: int | None = Field(default=None, ge=1)
    """… and last page, if it is not the end of the document."""


class PageInfo(BaseModel):
    """Data of a page image, in pixels; source lines from 1, for rendered text only."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int = Field(ge=1)
    total: int | None = None
    """Number of pages to draw; of text, an estimate until the last page."""
    width: int = Field(ge=1)
    height: int = Field(ge=1)
    line_start: int | None = Field(default=None, ge=1)
    line_end: int | None = Field(default=None, ge=1)
    text: str = ""
    visual: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of the page that is pictures; 0 for rendered text."""


class RenderEnd(BaseModel):
    """The last item of a render task."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pages: int
    last: int | None = None
    """Number of the last PDF page to draw."""
    warnings: list[Issue]
