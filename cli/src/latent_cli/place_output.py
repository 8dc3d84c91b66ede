"""Where a chunk stands, in words."""

from __future__ import annotations

from latent_core.wire.search import PlaceView


def place_of(place: PlaceView) -> str:
    """Its headings or key path, its pages and its lines."""
    parts = [place.heading_path, place.key_path or ""]
    if place.page is not None:
        parts.append(_span("page", "pages", place.page, place.page_end))
    if place.line_start is not None:
        parts.append(_span("line", "lines", place.line_start, place.line_end))
    return ", ".join(part for part in parts if part)


def _span(one: str, many: str, first: int, last: int | None) -> str:
    return f"{one} {first}" if last in (None, first) else f"{many} {first}-{last}"
