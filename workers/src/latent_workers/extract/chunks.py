"""Chunks of page extractions: what rows say is what is found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from latent_core.db.containers import Container
from latent_core.db.documents import page_extractions
from latent_core.db.documents.page_extractions import PageExtractionRow
from latent_core.domain.extraction import PageExtraction
from latent_core.domain.generated import GeneratedBy, GeneratedKind
from latent_core.queue.context import JobContext
from latent_workers.deps import Deps
from latent_workers.ingest.generated import GeneratedText, append_generated

KINDS = (GeneratedKind.PAGE, GeneratedKind.VISUAL)


async def append_chunks(
    ctx: JobContext,
    deps: Deps,
    container: Container,
    doc_id: UUID,
    generation: int,
    pages: Sequence[int],
) -> bool:
    """Make the chunks of ``pages`` those of their rows; a page that failed has none. Texts that are there stay, so this
    also completes what an interrupted attempt left. False if the generation is not live any more."""
    async with deps.stack.db.reading() as conn:
        rows = await page_extractions.of_document(conn, doc_id, pages)
    if not rows:
        return True
    for kind in KINDS:
        for maker, made in _by_maker(rows).items():
            by = GeneratedBy(
                kind=kind,
                model=maker.model,
                prompt_version=maker.prompt_version,
                created_at=max(row.created_at for row in made.values()),
            )
            texts = [*_texts(kind, made)]
            if not await append_generated(
                ctx, deps, container, doc_id, generation, kind, sorted(made), texts, by=by
            ):
                return False
    return True


@dataclass(frozen=True, slots=True)
class _Maker:
    model: str
    prompt_version: str


def _by_maker(
    rows: Mapping[int, PageExtractionRow],
) -> dict[_Maker, dict[int, PageExtractionRow]]:
    """Rows by who wrote them: a batch that ended early has some of the model before."""
    found: dict[_Maker, dict[int, PageExtractionRow]] = {}
    for page, row in rows.items():
        found.setdefault(_Maker(row.model, row.prompt_version), {})[page] = row
    return found


def _texts(kind: GeneratedKind, rows: Mapping[int, PageExtractionRow]) -> Iterator[GeneratedText]:
    for page, row in rows.items():
        if row.extraction is None:
            continue
        extraction = PageExtraction.model_validate(dict(row.extraction))
        for text in _of_page(kind, extraction):
            if text.strip():
                yield GeneratedText(text, page=page)


def _of_page(kind: GeneratedKind, extraction: PageExtraction) -> Iterator[str]:
    if kind is GeneratedKind.PAGE:
        yield extraction.full_text
        return
    for visual in extraction.visuals:
        if visual.description.strip():
            yield f"{visual.type}: {visual.description}"
