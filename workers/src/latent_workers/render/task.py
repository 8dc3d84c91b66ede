"""Rendering in the sandbox's children: one item per page, then the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

from latent_core.domain.chunk import SourceType
from latent_workers.parse.conversation import parser as conversation
from latent_workers.parse.parsed import SourceFile
from latent_workers.parse.text.decode import decode_filled
from latent_workers.parse.text.lines import Lines
from latent_workers.render import elements, markdown, pdf, raster
from latent_workers.render.page import RenderEnd, RenderOptions
from latent_workers.render.rows import lexer_for, rows
from latent_workers.render.story import Drawn, StoryLayout
from latent_workers.sandbox.frames import TaskOutput


def pdf_pages(arguments: dict[str, Any], files: Sequence[BinaryIO]) -> Iterator[TaskOutput]:
    """``name``, ``options`` and the PDF."""
    options = RenderOptions.model_validate(arguments["options"])
    return _outputs(pdf.pages(files[0], arguments["name"], options))


def picture(arguments: dict[str, Any], files: Sequence[BinaryIO]) -> Iterator[TaskOutput]:
    """``name``, ``options`` and the image."""
    options = RenderOptions.model_validate(arguments["options"])
    return _outputs(raster.pages(files[0], arguments["name"], options))


def page_pdf(arguments: dict[str, Any], files: Sequence[BinaryIO]) -> Iterator[TaskOutput]:
    """``name``, ``number`` and the PDF; yields that page as a PDF."""
    yield TaskOutput({}, raster.page_pdf(files[0], arguments["name"], arguments["number"]))


def story_pages(arguments: dict[str, Any], files: Sequence[BinaryIO]) -> Iterator[TaskOutput]:
    """``name``, ``source_type``, ``options``, the settings of a web page's parser, and the text file."""
    name, options = arguments["name"], RenderOptions.model_validate(arguments["options"])
    source_type = SourceType(arguments["source_type"])
    if source_type is SourceType.WEB:
        text = _main_text(arguments, files[0])
    elif source_type is SourceType.CONVERSATION:
        source = SourceFile(name=name, file=files[0], source_type=source_type, max_pages=1)
        text = conversation.parse(source).text
    else:
        text = decode_filled(files[0].read(), name).text
    return _outputs(StoryLayout(text, name, options).pages(elements_of(text, name, source_type)))


def _main_text(arguments: dict[str, Any], file: BinaryIO) -> str:
    """The Markdown of a web page by line, as in its chunks."""
    # Here, since no other source needs the readers of web pages, which are slow to load.
    from latent_workers.parse.web import parser

    source = SourceFile(
        name=arguments["name"],
        file=file,
        source_type=SourceType.WEB,
        max_pages=1,
        charset=arguments["charset"],
        sanitize_rules=tuple(arguments["sanitize_rules"]),
    )
    return parser.parse(source).text


def elements_of(text: str, name: str, source_type: SourceType) -> Iterator[elements.Element]:
    """The elements of a text of that type."""
    if source_type in (SourceType.MARKDOWN, SourceType.WEB):
        return markdown.elements(text, has_front_matter=source_type is SourceType.MARKDOWN)
    lines = Lines(text)
    source = [(lines.span(n, n)[0], lines.text(n)) for n in range(1, len(lines) + 1)]
    if source_type in (SourceType.TEXT, SourceType.CONVERSATION):
        return elements.prose(source)
    return elements.code(rows(source, lexer_for(name), 1), numbered=True)


def _outputs(pages: Iterable[Drawn | RenderEnd]) -> Iterator[TaskOutput]:
    for page in pages:
        if isinstance(page, RenderEnd):
            yield TaskOutput(page.model_dump())
        else:
            info, pixels = page
            yield TaskOutput(info.model_dump(), pixels)
