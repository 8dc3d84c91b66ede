"""The scanned pages of one document: read one by one and inserted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from latent_core.domain.chunk import SourceType
from latent_core.domain.errors import IngestFailed, Issue, IssueCode
from latent_workers.ocr.engine import NoEngine, OcrEngine
from latent_workers.ocr.merge import merged
from latent_workers.ocr.reader import PageReader
from latent_workers.ocr.words import OcrText
from latent_workers.parse.parsed import OcrRead, ParsedDocument

CONSECUTIVE_FAILURES: Final = 3
"""After this many consecutive pages that exceed the engine's limits or crash it, the rest is skipped."""
_MAX_LISTED: Final = 20
_MAX_REASONS: Final = 5
_WITHOUT_TEXT: Final = "pages_without_text"

Tell = Callable[[int, int], Awaitable[None]]
"""Called between pages with the numbers of finished and of all pages; raises if the job must stop."""


@dataclass(frozen=True, slots=True)
class Scan:
    """A file with scanned pages."""

    file: Path
    name: str
    source_type: SourceType

    def of(self, pages: Sequence[int]) -> str:
        """The pages in words, for use inside a sentence."""
        if self.source_type is SourceType.IMAGE:
            return "the picture"
        return f"page{'s' if len(pages) > 1 else ''} {_listed(pages)}"


@dataclass(slots=True)
class Outcome:
    """The outcome of each page."""

    readings: dict[int, OcrText] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    untried: Sequence[int] = ()


async def read_scans(
    reader: PageReader, scan: Scan, parsed: ParsedDocument, tell: Tell
) -> ParsedDocument:
    """``parsed`` with the text of its scanned pages, and warnings that name unread pages."""
    pages = parsed.scanned_pages
    if not pages:
        return parsed
    engine = await reader.engine()
    if isinstance(engine, NoEngine):
        return _warned(parsed, [_unread(scan, pages, engine.why)])
    outcome = await _read(reader, engine, scan, pages, tell)
    whole, replaced = merged(parsed, outcome.readings)
    words = {page: outcome.readings[page].words for page in replaced}
    complete = not outcome.failures and not outcome.untried
    read = replace(whole, ocr=OcrRead(engine.label, replaced, complete, words))
    return _warned(_warn_of_blank_pages(read, outcome), _warnings(scan, outcome))


async def _read(
    reader: PageReader, engine: OcrEngine, scan: Scan, pages: Sequence[int], tell: Tell
) -> Outcome:
    outcome, step, bad = Outcome(), reader.at_a_time(engine), 0
    for start in range(0, len(pages), step):
        await tell(start, len(pages))
        some = pages[start : start + step]
        for page, result in zip(some, await _together(reader, engine, scan, some), strict=True):
            if isinstance(result, OcrText):
                outcome.readings[page], bad = result, 0
            else:
                outcome.failures[page] = result.message
                bad += "reason" in result.details  # a page that cannot be drawn cost nothing
        if bad >= CONSECUTIVE_FAILURES:
            outcome.untried = pages[start + step :]
            break
    await tell(len(pages), len(pages))
    return outcome


async def _together(
    reader: PageReader, engine: OcrEngine, scan: Scan, pages: Sequence[int]
) -> list[OcrText | IngestFailed]:
    async def one(page: int) -> OcrText | IngestFailed:
        try:
            return await reader.read(
                engine, scan.file, name=scan.name, source_type=scan.source_type, page=page
            )
        except IngestFailed as error:
            return error

    return list(await asyncio.gather(*map(one, pages)))


def _warn_of_blank_pages(parsed: ParsedDocument, outcome: Outcome) -> ParsedDocument:
    """The parser reported pages without text. Some have text now; the rest was read twice without a result."""
    read = set(outcome.readings)
    kept, blank = [], [page for page, reading in outcome.readings.items() if not reading.paragraphs]
    for warning in parsed.warnings:
        pages = warning.details.get(_WITHOUT_TEXT)
        if not isinstance(pages, list):
            kept.append(warning)
        else:
            blank += [page for page in pages if page not in read]
    if blank and len(parsed.pages) > 1:
        kept.append(
            _issue(
                f"Pages without text: {_listed(sorted(set(blank)))}.",
                pages_without_text=sorted(set(blank)),
            )
        )
    return replace(parsed, warnings=tuple(kept))


def _warnings(scan: Scan, outcome: Outcome) -> Iterator[Issue]:
    by_reason: dict[str, list[int]] = {}
    for page, reason in outcome.failures.items():
        by_reason.setdefault(reason, []).append(page)
    for reason, pages in list(by_reason.items())[:_MAX_REASONS]:
        yield _unread(scan, pages, reason)
    if left := [page for pages in list(by_reason.values())[_MAX_REASONS:] for page in pages]:
        yield _unread(scan, sorted(left), "for various reasons")
    if outcome.untried:
        yield _unread(
            scan, outcome.untried, f"skipped after {CONSECUTIVE_FAILURES} consecutive failures"
        )


def _unread(scan: Scan, pages: Sequence[int], why: str) -> Issue:
    return _issue(f"The text of {scan.of(pages)} was not read: {why}.", unread_pages=list(pages))


def _warned(parsed: ParsedDocument, warnings: Iterator[Issue] | Sequence[Issue]) -> ParsedDocument:
    return replace(parsed, warnings=(*parsed.warnings, *warnings))


def _issue(message: str, **details: Any) -> Issue:
    return Issue(code=IssueCode.INGEST_FAIL, message=message, details=details)


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_MAX_LISTED]))
    left = len(numbers) - _MAX_LISTED
    return f"{shown} and {left} more" if left > 0 else shown
