"""Pages that end the renderer cost no other page its image."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from latent_core.domain.errors import IngestFailed, Issue, IssueCode
from latent_workers.render import resume
from latent_workers.render.page import RenderOptions
from latent_workers.render.resume import ALONE_BUDGET, PageDrawing
from latent_workers.render.run import RENDER_BUDGET, Pages, RenderedPage
from latent_workers.sandbox.budget import Budget


@dataclass
class Renderer:
    """Draws a file of so many pages, and ends at some of them."""

    total: int
    crashes: frozenset[int] = frozenset()
    tired_after: int = 1_000_000
    """Pages that one child can draw."""
    passed_over: frozenset[int] = frozenset()
    refuses: bool = False
    calls: list[tuple[int, int | None, Budget]] = field(default_factory=list)

    @asynccontextmanager
    async def render(self, options: RenderOptions, budget: Budget) -> AsyncIterator[Pages]:
        self.calls.append((options.first, options.last, budget))
        drawn = _DrawnPages()
        drawn.items = self._pages(drawn, options)
        yield cast(Pages, drawn)

    async def _pages(
        self, drawn: _DrawnPages, options: RenderOptions
    ) -> AsyncIterator[RenderedPage]:
        if self.refuses:
            raise IngestFailed("'a.pdf' is no PDF")
        numbers = range(options.first, min(options.last or self.total, self.total) + 1)
        for done, number in enumerate(numbers):
            if number in self.crashes or done == self.tired_after:
                raise IngestFailed("the page renderer crashed (signal 11)", reason="crash")
            if number not in self.passed_over:
                yield RenderedPage(number, self.total, b"", "image/webp", 1, 1, None, None, "", 0.0)
        drawn.last = self.total
        missing = sorted(self.passed_over & set(numbers))
        if missing:
            drawn.warnings = [
                Issue(code=IssueCode.INGEST_FAIL, message="-", details={"undrawn_pages": missing})
            ]


class _DrawnPages:
    """What ``Pages`` is to ``PageDrawing``."""

    def __init__(self) -> None:
        self.items: Any = None
        self.last: int | None = None
        self.warnings: list[Issue] = []

    def __aiter__(self) -> Any:
        return self.items


async def drawn(renderer: Renderer, *, by_page: bool = True) -> tuple[list[int], list[Issue]]:
    drawing = PageDrawing(renderer.render, RenderOptions(), by_page=by_page)
    pages = [page.number async for page in drawing.pages()]
    return pages, drawing.warnings


async def test_a_page_at_which_the_renderer_ends_is_named_and_the_others_are_drawn() -> None:
    renderer = Renderer(6, crashes=frozenset({3}))
    pages, (warning,) = await drawn(renderer)
    assert pages == [1, 2, 4, 5, 6]
    assert warning.details == {"undrawn_pages": [3]}
    assert "page 3: the page renderer crashed (signal 11)" in warning.message
    assert renderer.calls == [
        (1, None, RENDER_BUDGET),
        (3, 3, ALONE_BUDGET),
        (4, None, RENDER_BUDGET),
    ]


@pytest.mark.parametrize("bad", [{1}, {6}, {1, 2}, {2, 4, 6}, {1, 6}])
async def test_whichever_pages_are_bad(bad: set[int]) -> None:
    pages, (warning,) = await drawn(Renderer(6, crashes=frozenset(bad)))
    assert pages == sorted({1, 2, 3, 4, 5, 6} - bad)
    assert warning.details == {"undrawn_pages": sorted(bad)}


async def test_a_renderer_that_tires_of_many_pages_blames_none_of_them() -> None:
    assert await drawn(Renderer(7, tired_after=3)) == ([1, 2, 3, 4, 5, 6, 7], [])


async def test_skipped_pages_are_reported_with_the_others() -> None:
    pages, (warning,) = await drawn(
        Renderer(6, crashes=frozenset({4}), passed_over=frozenset({2, 6}))
    )
    assert pages == [1, 3, 5]
    assert warning.details == {"undrawn_pages": [2, 4, 6]}


async def test_a_file_of_which_nothing_can_be_drawn_fails() -> None:
    renderer = Renderer(100, crashes=frozenset(range(1, 101)))
    with pytest.raises(IngestFailed, match="crashed"):
        await drawn(renderer)
    assert len(renderer.calls) <= resume.MAX_CONSECUTIVE_FAILURES


async def test_what_is_given_up_after_many_bad_pages_is_named_too() -> None:
    renderer = Renderer(100, crashes=frozenset(range(3, 101)))
    pages, (warning,) = await drawn(renderer)
    assert pages == [1, 2]
    assert warning.details["undrawn_pages"] == list(range(3, 101))


async def test_a_refused_file_is_not_retried_page_by_page() -> None:
    renderer = Renderer(5, refuses=True)
    with pytest.raises(IngestFailed, match="is no PDF"):
        await drawn(renderer)
    assert len(renderer.calls) == 1


async def test_a_text_is_drawn_as_a_whole_or_not() -> None:
    with pytest.raises(IngestFailed, match="crashed"):
        await drawn(Renderer(5, crashes=frozenset({3})), by_page=False)
