"""A page: its main text as Markdown by trafilatura, with readability as second opinion; nothing that is hidden."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from latent_core.domain.errors import IngestFailed, Issue, IssueCode
from latent_workers.parse import markdown
from latent_workers.parse.charsets import decode_page
from latent_workers.parse.decode import Decoded, clean
from latent_workers.parse.html_tree import Page, parse_page
from latent_workers.parse.main_text import main_text
from latent_workers.parse.parsed import Parsed
from latent_workers.parse.sanitize import sanitize
from latent_workers.parse.source import Source
from latent_workers.parse.web_meta import about


def parse(source: Source) -> Parsed:
    """``Parsed.text`` is the Markdown; offsets and lines are of it."""
    decoded = decode_page(source.read(), source.charset)
    if not decoded.text.strip():
        raise IngestFailed(f"'{source.name}' is empty")
    page = parse_page(decoded.text, source.name)
    told = about(page.tree)
    sanitize(page.tree, source.sanitize_rules)
    found = main_text(page.tree)
    text, replaced = clean(found.text)
    if not any(map(str.isalnum, text)):
        raise IngestFailed(
            f"'{source.name}' holds no text that is shown; if it is made by a script, save the page in a browser and upload it"
        )
    replaced += decoded.replaced + page.replaced_characters
    parsed = markdown.of_decoded(Decoded(text + "\n", decoded.encoding, replaced))
    meta: dict[str, Any] = {**told.meta, "encoding": decoded.encoding, "extractor": found.by}
    return replace(
        parsed,
        title=told.title or parsed.title,
        language=told.language,
        meta=meta,
        warnings=(*parsed.warnings, *_warnings(page)),
    )


def _warnings(page: Page) -> list[Issue]:
    if not page.hidden_characters:
        return []
    return [
        Issue(
            code=IssueCode.INGEST_FAIL,
            message=f"{page.hidden_characters} invisible characters were taken out; they may have hidden a message",
            details={"hidden_characters": page.hidden_characters},
        )
    ]
