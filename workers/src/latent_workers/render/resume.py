"""Continues after a page that crashes the renderer, so that one bad page does not affect others.

MuPDF reports most bad pages, and the renderer skips them. A page at which it crashes, or that exceeds its time or
memory, ends the child: another child tries that page alone, and then continues with the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Final

from latent_core.domain.errors import IngestFailed, Issue, IssueCode
from latent_workers.parse.pdf.parser import listed
from latent_workers.render.page import RenderOptions
from latent_workers.render.run import RENDER_BUDGET, Pages, RenderedPage
from latent_workers.sandbox.budget import Budget

ALONE_BUDGET: Final = replace(RENDER_BUDGET, cpu_seconds=60, wall_seconds=120.0)
"""For a single page that has ended a renderer."""
MAX_ENDED: Final = 20
"""Crashes that one document may cost …"""
MAX_CONSECUTIVE_FAILURES: Final = 6
"""… and crashes without a drawn page in between."""
PAGE_SHARE: Final = frozenset(
    {"crash", "killed", "memory", "cpu", "wall", "output", "error", "nonsense"}
)
"""Ends of a renderer that a page may have caused. A refusal concerns the whole file."""
NAMED: Final = 5
"""Pages that warnings name with their causes."""

Render = Callable[[RenderOptions, Budget], AbstractAsyncContextManager[Pages]]


class PageDrawing:
    """The pages of one file. ``warnings`` are complete once the last page has come."""

    def __init__(self, render: Render, options: RenderOptions, *, by_page: bool) -> None:
        """``by_page``: pages can be requested by number, as those of a PDF."""
        self.warnings: list[Issue] = []
        self._render = render
        self._options = options
        self._by_page = by_page
        self._drawn: set[int] = set()
        self._causes: dict[int, str] = {}
        self._begun = self._next = 1
        self._alone = False
        self._over = False
        self._ended = self._in_a_row = 0
        self._lost_seconds = 0.0
        self._last: int | None = None

    async def pages(self) -> AsyncGenerator[RenderedPage]:
        """``IngestFailed`` if no page can be drawn."""
        clock = asyncio.get_running_loop().time
        while not self._over:
            since, self._begun = clock(), self._next
            try:
                async with self._render(*self._next_part()) as drawn:
                    async for page in drawn:
                        self._next, self._last, self._in_a_row = page.number + 1, page.total, 0
                        self._drawn.add(page.number)
                        yield page
                        since = clock()  # what pages took that were drawn is not lost
                    self._end_well(drawn)
            except IngestFailed as error:
                self._lost_seconds += clock() - since
                self._end_badly(error)
        self._tell()

    def _next_part(self) -> tuple[RenderOptions, Budget]:
        if not self._by_page:
            return self._options, RENDER_BUDGET
        last = self._next if self._alone else None
        part = self._options.model_copy(update={"first": self._next, "last": last})
        return part, ALONE_BUDGET if self._alone else RENDER_BUDGET

    def _end_well(self, drawn: Pages) -> None:
        page_warnings = [one for one in drawn.warnings if "undrawn_pages" not in one.details]
        self.warnings += [one for one in page_warnings if one not in self.warnings]
        self._last = drawn.last
        if self._alone:
            self._go_on_after(self._begun)
        else:
            self._over = True

    def _end_badly(self, error: IngestFailed) -> None:
        if not self._by_page or error.details.get("reason") not in PAGE_SHARE:
            raise error
        self._ended += 1
        self._in_a_row += 1
        if self._next > self._begun:  # the pages before may be to blame
            self._alone = True
            return
        self._causes[self._next] = error.message
        self._go_on_after(self._next)
        enough = self._ended >= MAX_ENDED or self._in_a_row >= MAX_CONSECUTIVE_FAILURES
        self._over |= enough or self._lost_seconds >= RENDER_BUDGET.wall_seconds
        if self._over and not self._drawn:
            raise error

    def _go_on_after(self, page: int) -> None:
        self._alone, self._next = False, page + 1
        self._over = self._last is not None and self._next > self._last

    def _tell(self) -> None:
        page_numbers = range(1, (self._last or 0) + 1) if self._by_page else ()
        undrawn = [page for page in page_numbers if page not in self._drawn]
        if not undrawn:
            return
        causes = [f"page {page}: {why}" for page, why in sorted(self._causes.items())]
        why = f" ({'; '.join(causes[:NAMED])})" if causes else ""
        self.warnings.append(
            Issue(
                code=IssueCode.INGEST_FAIL,
                message=f"Pages that could not be drawn: {listed(undrawn)}{why}.",
                details={"undrawn_pages": undrawn},
            )
        )
