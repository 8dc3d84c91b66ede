"""``Parsed`` of structured data, and of what should be structured and is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from latent_core.domain.chunk import BlockType
from latent_core.domain.errors import Issue, IssueCode
from latent_workers.parse import text as plain_text
from latent_workers.parse.decode import Decoded
from latent_workers.parse.lines import Lines
from latent_workers.parse.parsed import Parsed
from latent_workers.parse.structure import Broken, Node, blocks


def of_documents(
    decoded: Decoded, name: str, documents: Sequence[Node], warnings: tuple[Issue, ...] = ()
) -> Parsed:
    """``meta["documents"]`` is their number: it tells structured data from text."""
    return Parsed(
        text=decoded.text,
        title=name,
        blocks=tuple(blocks(decoded.text, documents)),
        meta={"encoding": decoded.encoding, "documents": len(documents)},
        warnings=warnings,
        replaced_characters=decoded.replaced,
    )


def as_text(decoded: Decoded, name: str, language: str, broken: Broken) -> Parsed:
    """Paragraphs, and a warning that says why."""
    said = told(broken, decoded.text)
    issue = doubt(f"'{name}' was read as text, not as {language}: {said}")
    return replace(plain_text.of_decoded(decoded, BlockType.CODE), title=name, warnings=(issue,))


def check_size(text: str, most: int) -> None:
    """``Broken`` when ``text`` is too long to be taken apart in good time."""
    if len(text) > most:
        raise Broken(f"it has more than {most:,} characters; split the file")


def told(broken: Broken, text: str) -> str:
    """The problem with its line."""
    if broken.offset is None:
        return broken.problem
    at = min(max(broken.offset, 0), max(0, len(text) - 1))
    return f"{broken.problem} (line {Lines(text).at(at)})"


def doubt(message: str) -> Issue:
    return Issue(code=IssueCode.INGEST_FAIL, message=message)
