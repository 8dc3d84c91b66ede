"""What the parts of an ingest take on this machine: measured on samples, as the worker would do them."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final, Generic, TypeVar

from latent_client import AsyncClient
from latent_core.bm25.analyser import analyse, term_vector
from latent_core.bm25.exact import signature
from latent_core.bm25.language import DEFAULT, detect_language
from latent_core.domain.chunk import SourceType
from latent_core.domain.errors import LatentError
from latent_core.domain.manifest.model import Manifest
from latent_workers.chunk.counting import WordCounter
from latent_workers.ocr.engine import OcrEngine
from latent_workers.ocr.reader import PageReader
from latent_workers.render.page import RenderOptions
from latent_workers.render.run import render
from latent_workers.sandbox.pool import Sandbox

T = TypeVar("T")

OCR_PAGES: Final = 3
DRAWN_FILES: Final = 3
"""Files of each type whose pages are drawn."""
DRAWN_PAGES: Final = 4
"""Of each PDF of the sample."""
ROUND_TRIPS: Final = 7
EXCHANGES_PER_DOCUMENT: Final = 40
"""Small requests to the gateway that take as long as what a document costs whatever its size: its upload, its jobs,
their commits, and what is handed to parsers and the vector store. Fitted on folders of 25 and 113 files."""
JOBS_AT_A_TIME: Final = 4


class Reservoir(Generic[T]):
    """A uniform random sample of what is added, in constant memory."""

    def __init__(self, size: int, seed: int = 0) -> None:
        self.items: list[T] = []
        self.seen = 0
        self._size = size
        self._random = random.Random(seed)

    def add(self, item: T) -> None:
        self.seen += 1
        if len(self.items) < self._size:
            self.items.append(item)
        elif (place := self._random.randrange(self.seen)) < self._size:
            self.items[place] = item


@dataclass(frozen=True, slots=True)
class PagedFile:
    """A file that has pages, or gets some when it is drawn."""

    path: Path
    source_type: SourceType
    units: int
    """Its pages if it is a PDF, 1 if it is an image, otherwise its bytes."""


@dataclass(frozen=True, slots=True)
class ScannedPage:
    path: Path
    source_type: SourceType
    page: int


@dataclass(slots=True)
class WorkSamples:
    """Samples of the files of a dry run, and how much there is of each kind."""

    texts: Reservoir[str] = field(default_factory=lambda: Reservoir(24))
    scans: Reservoir[ScannedPage] = field(default_factory=lambda: Reservoir(OCR_PAGES))
    drawn: dict[SourceType, Reservoir[PagedFile]] = field(
        default_factory=lambda: defaultdict(lambda: Reservoir(DRAWN_FILES))
    )
    units: dict[SourceType, int] = field(default_factory=lambda: defaultdict(int))

    def add_file(self, file: PagedFile, scanned: Sequence[int]) -> None:
        self.drawn[file.source_type].add(file)
        self.units[file.source_type] += file.units
        for page in scanned:
            self.scans.add(ScannedPage(file.path, file.source_type, page))


@dataclass(frozen=True, slots=True)
class OcrTimes:
    """OCR of all scanned pages. Without an engine, no page is read."""

    seconds: float = 0.0
    tokens: int = 0
    note: str = ""


async def ocr_times(reader: PageReader, samples: WorkSamples, counter: WordCounter) -> OcrTimes:
    if not samples.scans.items:
        return OcrTimes()
    engine = await reader.engine()
    if not isinstance(engine, OcrEngine):
        return OcrTimes(note=f"scanned pages are not read: {engine.why}")
    spent, tokens = [], 0
    for scan in samples.scans.items:
        begun = time.monotonic()
        try:
            text = await reader.read(
                engine,
                scan.path,
                name=scan.path.name,
                source_type=scan.source_type,
                page=scan.page,
            )
            tokens += sum(counter.count(list(text.paragraphs)))
        except LatentError:
            pass  # an unreadable page takes its time, too
        spent.append(time.monotonic() - begun)
    # The first page also loads the models, once.
    each = sum(spent[1:]) / len(spent[1:]) if len(spent) > 1 else spent[0]
    start = max(0.0, spent[0] - each)
    pages, parallel = samples.scans.seen, reader.at_a_time(engine)
    return OcrTimes(
        seconds=start + pages * each / min(parallel, pages),
        tokens=round(pages * tokens / len(spent)),
        note=f"OCR: {each:.1f} s a page by {engine.label}, measured on {len(spent)} of {pages} pages",
    )


async def drawing_seconds(sandbox: Sandbox, manifest: Manifest, samples: WorkSamples) -> float:
    """To draw all pages, by one renderer as in the worker."""
    options = RenderOptions(
        dpi=manifest.pdf.render_dpi,
        image_format=manifest.pdf.image_format,
        quality=manifest.image.compress_quality,
        max_pages=manifest.pdf.max_pages,
        max_edge=manifest.image.thumbnail_max_edge,
    )
    total = 0.0
    for source_type, files in samples.drawn.items():
        seconds, units = 0.0, 0
        for file in files.items:
            begun = time.monotonic()
            pages = await _draw(sandbox, file, options)
            seconds += time.monotonic() - begun
            units += pages if source_type is SourceType.PDF else file.units
        total += samples.units[source_type] * seconds / max(units, 1)
    return total


async def _draw(sandbox: Sandbox, file: PagedFile, options: RenderOptions) -> int:
    """Pages drawn; 0 for a file that cannot be drawn."""
    if file.source_type is SourceType.PDF:
        options = options.model_copy(update={"last": DRAWN_PAGES})
    elif file.source_type is SourceType.IMAGE:
        options = options.model_copy(update={"image_format": "webp"})
    count = 0
    try:
        async with render(
            sandbox,
            file.path,
            name=file.path.name,
            source_type=file.source_type,
            options=options,
        ) as pages:
            async for _ in pages:
                count += 1
    except LatentError:
        return count
    return count


@dataclass(frozen=True, slots=True)
class IndexTimes:
    """Seconds of processor time."""

    chunk: float = 0.0
    """Its terms and its signature."""
    document: float = 0.0
    """Its language."""


async def index_times(texts: Sequence[str]) -> IndexTimes:
    if not texts:
        return IndexTimes()

    def index() -> float:
        begun = time.monotonic()
        for text in texts:
            term_vector(analyse(text, DEFAULT))
            signature(text)
        return time.monotonic() - begun

    def detect() -> float:
        begun = time.monotonic()
        for text in texts:
            detect_language(text)
        return time.monotonic() - begun

    def measure() -> IndexTimes:
        index()  # fills caches
        detect_language(texts[0])  # loads the model
        return IndexTimes(index() / len(texts), detect() / len(texts))

    return await asyncio.to_thread(measure)


async def exchange_seconds(client: AsyncClient, container_id: str) -> float:
    """Median time of a small request to the gateway, which reads its database."""
    spent = []
    for _ in range(ROUND_TRIPS):
        begun = time.monotonic()
        await client.describe(container_id)
        spent.append(time.monotonic() - begun)
    return median(spent)
