"""OCR in the parent process: finds the engine, manages its children, requests one page at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from latent_core.domain.chunk import SourceType
from latent_core.domain.errors import IngestFailed
from latent_workers.ocr.engine import Choice, Kind, NoEngine, OcrEngine, find
from latent_workers.ocr.words import OcrText
from latent_workers.sandbox.budget import MIB, Budget, Profile
from latent_workers.sandbox.pool import Sandbox

BUDGETS: Final[Mapping[Kind, Budget]] = {
    "tesseract": Budget(
        cpu_seconds=90, wall_seconds=180, memory_bytes=1536 * MIB, output_bytes=8 * MIB
    ),
    # Its threads spend CPU side by side, and the first page of a child also loads the models.
    "rapidocr": Budget(
        cpu_seconds=240, wall_seconds=300, memory_bytes=1536 * MIB, output_bytes=8 * MIB
    ),
}
"""Of one page."""
CHILDREN: Final[Mapping[Kind, int]] = {"tesseract": 2, "rapidocr": 1}
"""Concurrent pages: one per core, but rapidocr needs a gigabyte and has its own threads."""
PROFILES: Final[Mapping[Kind, Profile]] = {
    # OCR gives way to searches: it takes seconds a page, and nobody waits for one page of it.
    "tesseract": Profile(programs=True, niceness=5),
    "rapidocr": Profile(niceness=5, keep_resident_bytes=1280 * MIB),
}


def _sandbox(engine: OcrEngine) -> Sandbox:
    profile = replace(PROFILES[engine.kind], reads=engine.places)
    return Sandbox(children=CHILDREN[engine.kind], profile=profile, tasks_per_child=100)


class PageReader:
    """Belongs to one event loop; use it with ``async with``.

    ``languages`` (``eng+deu``) are for Tesseract; default: the installed ones. ``budget`` is per page.
    """

    def __init__(
        self,
        choice: Choice,
        languages: str | None = None,
        *,
        budget: Budget | None = None,
        sandbox: Callable[[OcrEngine], Sandbox] = _sandbox,
    ) -> None:
        self._choice = choice
        self._languages = languages
        self._budget = budget
        self._make_sandbox = sandbox
        self._engine: OcrEngine | None = None
        self._sandboxes: dict[Kind, Sandbox] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for sandbox in self._sandboxes.values():
            await sandbox.close()

    async def engine(self) -> OcrEngine | NoEngine:
        """The engine. Without one, every call looks again, since one may be installed later."""
        if self._engine is not None:
            return self._engine
        found = await find(self._choice, self._languages)
        if isinstance(found, OcrEngine):
            self._engine = found
        return found

    def at_a_time(self, engine: OcrEngine) -> int:
        return CHILDREN[engine.kind]

    async def read(
        self, engine: OcrEngine, file: Path, *, name: str, source_type: SourceType, page: int
    ) -> OcrText:
        """Read one page. ``IngestFailed`` says why it cannot be read."""
        label = f"OCR ({engine.label})"
        arguments = {
            "engine": asdict(engine),
            "name": name,
            "source_type": source_type.value,
            "page": page,
        }
        if engine.kind not in self._sandboxes:
            self._sandboxes[engine.kind] = self._make_sandbox(engine)
        sandbox = self._sandboxes[engine.kind]
        budget = self._budget or BUDGETS[engine.kind]
        item = await sandbox.run("ocr_page", arguments, files=[file], budget=budget, label=label)
        try:
            return OcrText.model_validate_json(item.value)
        except ValueError as exc:
            raise IngestFailed(f"{label} gave an inconsistent answer") from exc
