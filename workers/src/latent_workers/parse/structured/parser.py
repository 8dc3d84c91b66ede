"""``ParsedDocument`` of structured data, and of malformed files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from latent_core.domain.chunk import BlockType
from latent_core.domain.errors import Issue, IssueCode
from latent_workers.parse.parsed import ParsedDocument
from latent_workers.parse.structured.tree import MalformedFile, Node, blocks
from latent_workers.parse.text import parser as plain_text
from latent_workers.parse.text.decode import DecodedText
from latent_workers.parse.text.lines import Lines


def of_documents(
    decoded: DecodedText, name: str, documents: Sequence[Node], warnings: tuple[Issue, ...] = ()
) -> ParsedDocument:
    """``meta["documents"]`` is their number, which marks structured data."""
    return ParsedDocument(
        text=decoded.text,
        title=name,
        blocks=tuple(blocks(decoded.text, documents)),
        meta={"encoding": decoded.encoding, "documents": len(documents)},
        warnings=warnings,
        replaced_characters=decoded.replaced,
    )


def as_text(
    decoded: DecodedText, name: str, language: str, broken: MalformedFile
) -> ParsedDocument:
    """Paragraphs, and a warning with the reason."""
    reason = describe_error(broken, decoded.text)
    issue = doubt(f"'{name}' was read as text, not as {language}: {reason}")
    return replace(plain_text.of_decoded(decoded, BlockType.CODE), title=name, warnings=(issue,))


def check_size(text: str, max_chars: int) -> None:
    """``MalformedFile`` if ``text`` is too long to be split in reasonable time."""
    if len(text) > max_chars:
        raise MalformedFile(f"it has more than {max_chars:,} characters: split the file")


def describe_error(broken: MalformedFile, text: str) -> str:
    """The problem with its line."""
    if broken.offset is None:
        return broken.problem
    at = min(max(broken.offset, 0), max(0, len(text) - 1))
    return f"{broken.problem} (line {Lines(text).at(at)})"


def doubt(message: str) -> Issue:
    return Issue(code=IssueCode.INGEST_FAIL, message=message)
