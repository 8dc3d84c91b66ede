"""Rendering, as the sandbox's children do it: one item a page, then the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

from latent_core.domain.chunk import SourceType
from latent_workers.parse.decode import decode_filled
from latent_workers.parse.lines import Lines
from latent_workers.render import elements, markdown, pdf
from latent_workers.render.page import End, RenderOptions
from latent_workers.render.rows import lexer_for, rows
from latent_workers.render.story import Drawn, Layout
from latent_workers.sandbox.frames import Output

_PROSE = (SourceType.TEXT, SourceType.WEB)


def pdf_pages(arguments: dict[str, Any], files: Sequence[BinaryIO]) -> Iterator[Output]:
    """``name``, ``options`` and the PDF."""
    options = RenderOptions.model_validate(arguments["options"])
    return _outputs(pdf.pages(files[0], arguments["name"], options))


def story_pages(arguments: dict[str, Any], files: Sequence[BinaryIO]) -> Iterator[Output]:
    """``name``, ``source_type``, ``options`` and the text file."""
    name, options = arguments["name"], RenderOptions.model_validate(arguments["options"])
    text = decode_filled(files[0].read(), name).text
    found = elements_of(text, name, SourceType(arguments["source_type"]))
    return _outputs(Layout(text, name, options).pages(found))


def elements_of(text: str, name: str, source_type: SourceType) -> Iterator[elements.Element]:
    """What to lay out for a text of that type."""
    if source_type is SourceType.MARKDOWN:
        return markdown.elements(text)
    lines = Lines(text)
    source = [(lines.span(n, n)[0], lines.text(n)) for n in range(1, len(lines) + 1)]
    if source_type in _PROSE:
        return elements.prose(source)
    return elements.code(rows(source, lexer_for(name), 1), numbered=True)


def _outputs(pages: Iterable[Drawn | End]) -> Iterator[Output]:
    for page in pages:
        if isinstance(page, End):
            yield Output(page.model_dump())
        else:
            info, image = page
            yield Output(info.model_dump(), image)
