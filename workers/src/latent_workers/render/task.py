"""Rendering in the sandbox's children: one item per page, then the end."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Final

from latent_core.domain.chunk import SourceType
from latent_workers.parse.conversation import parser as conversation
from latent_workers.parse.parsed import ParsedDocument, SourceFile
from latent_workers.parse.registry import parser_of
from latent_workers.parse.text.decode import decode_filled
from latent_workers.parse.text.lines import Lines
from latent_workers.render import elements, markdown, pdf, raster
from latent_workers.render.page import RenderEnd, RenderOptions
from latent_workers.render.rows import lexer_for, rows
from latent_workers.render.story import Drawn, StoryLayout
from latent_workers.sandbox.frames import TaskOutput

READ_AS_MARKDOWN: Final = frozenset(
    {
        SourceType.WEB,
        SourceType.DOCUMENT,
        SourceType.SHEET,
        SourceType.SLIDES,
        SourceType.MAIL,
        SourceType.NOTEBOOK,
        SourceType.SUBTITLES,
    }
)
"""Sources that become Markdown when they are parsed, and are drawn as it."""


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
    if source_type in READ_AS_MARKDOWN:
        text = _parsed_text(arguments, files[0], source_type)
    elif source_type is SourceType.CONVERSATION:
        source = SourceFile(name=name, file=files[0], source_type=source_type, max_pages=1)
        text = conversation.parse(source).text
    else:
        text = decode_filled(files[0].read(), name).text
    return _outputs(StoryLayout(text, name, options).pages(elements_of(text, name, source_type)))


def _parsed_text(arguments: dict[str, Any], file: BinaryIO, source_type: SourceType) -> str:
    """The Markdown that the parser makes of the file, by line, as in its chunks."""
    # Here, since no other source needs these parsers, some of which are slow to load.
    parser = importlib.import_module(parser_of(source_type).module)
    source = SourceFile(
        name=arguments["name"],
        file=file,
        source_type=source_type,
        max_pages=1,
        charset=arguments["charset"],
        sanitize_rules=tuple(arguments["sanitize_rules"]),
    )
    parsed: ParsedDocument = parser.parse(source)
    return parsed.text


def elements_of(text: str, name: str, source_type: SourceType) -> Iterator[elements.Element]:
    """The elements of a text of that type."""
    if source_type is SourceType.MARKDOWN or source_type in READ_AS_MARKDOWN:
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
