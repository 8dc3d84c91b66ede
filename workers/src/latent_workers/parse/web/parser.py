"""A page: its main text as Markdown by trafilatura, with readability as second opinion; nothing that is hidden."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from latent_core.domain.errors import IngestFailed, Issue, IssueCode
from latent_workers.parse.parsed import ParsedDocument
from latent_workers.parse.source import SourceFile
from latent_workers.parse.text import markdown
from latent_workers.parse.text.decode import DecodedText, clean
from latent_workers.parse.web.charsets import decode_page
from latent_workers.parse.web.html_tree import HtmlPage, parse_page
from latent_workers.parse.web.main_text import main_text
from latent_workers.parse.web.metadata import about
from latent_workers.parse.web.sanitize import sanitize


def parse(source: SourceFile) -> ParsedDocument:
    """``Parsed.text`` is the Markdown; offsets and lines are of it."""
    decoded = decode_page(source.read(), source.charset)
    if not decoded.text.strip():
        raise IngestFailed(f"'{source.name}' is empty")
    page = parse_page(decoded.text, source.name)
    metadata = about(page.tree)
    sanitize(page.tree, source.sanitize_rules)
    found = main_text(page.tree)
    text, replaced = clean(found.text)
    if not any(map(str.isalnum, text)):
        raise IngestFailed(
            f"'{source.name}' holds no text that is shown; if it is made by a script, save the page in a browser and upload it"
        )
    replaced += decoded.replaced + page.replaced_characters
    parsed = markdown.of_decoded(DecodedText(text + "\n", decoded.encoding, replaced))
    meta: dict[str, Any] = {**metadata.meta, "encoding": decoded.encoding, "extractor": found.by}
    return replace(
        parsed,
        title=metadata.title or parsed.title,
        language=metadata.language,
        meta=meta,
        warnings=(*parsed.warnings, *_warnings(page)),
    )


def _warnings(page: HtmlPage) -> list[Issue]:
    if not page.hidden_characters:
        return []
    return [
        Issue(
            code=IssueCode.INGEST_FAIL,
            message=f"{page.hidden_characters} invisible characters were taken out; they may have hidden a message",
            details={"hidden_characters": page.hidden_characters},
        )
    ]
