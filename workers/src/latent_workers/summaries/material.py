"""What a language model reads of a document: all of its text, or the outline and the beginnings of its sections."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import orjson

from latent_core.db.documents.summary_inputs import SummaryDocument, SummaryText
from latent_core.domain.summary import word_count

MAX_CHARS: Final = 24_000
"""Of the text in a request: about 6,000 tokens."""
MAX_OUTLINE_CHARS: Final = 4_000
MAX_HEADING_CHARS: Final = 120
MIN_SECTIONS: Final = 8
"""A document with fewer is given as the beginnings of its passages."""
MIN_PART_CHARS: Final = 300
"""Of the beginning of a section; of more sections than fit, evenly spaced ones are given."""
GAP: Final = "\n[…]\n"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SummaryMaterial:
    """The text for the model."""

    source: str
    """Path or address."""
    title: str
    text: str
    words: int
    """Of the whole document, or of its first part if it is huge."""

    @property
    def hash(self) -> str:
        """Of everything that the model reads except the prompt."""
        parts = [self.source, self.title, self.text]
        return hashlib.sha256(orjson.dumps(parts)).hexdigest()


def material(document: SummaryDocument, texts: Sequence[SummaryText]) -> SummaryMaterial:
    """From the chunks of the source, in their order."""
    whole = "".join(_joined(texts))
    text = whole if len(whole) <= MAX_CHARS else _shortened(texts)
    return SummaryMaterial(document.source_path, document.title or "", text, word_count(whole))


def _joined(texts: Sequence[SummaryText]) -> Iterator[str]:
    """The texts of chunks, what a chunk repeats of the one before it only once."""
    last: SummaryText | None = None
    for one in texts:
        shared = one.repeated_chars
        if last is not None and not shared:
            overlap = last.offset_end - one.offset_start
            if 0 < overlap < len(one.text) and last.text.endswith(one.text[:overlap]):
                shared = overlap
        if last is not None:
            yield "\n" if shared else "\n\n"
        yield one.text[shared:]
        last = one


def _shortened(texts: Sequence[SummaryText]) -> str:
    sections = _sections(texts)
    outline = _outline([path for path, _ in sections])
    if len(sections) < MIN_SECTIONS:
        sections = [(one.heading_path, one.text[one.repeated_chars :]) for one in texts]
    left = MAX_CHARS - len(outline)
    per_part = MIN_PART_CHARS + MAX_HEADING_CHARS + len(GAP)
    chosen = _evenly(sections, max(1, left // per_part))
    chars = left // len(chosen) - MAX_HEADING_CHARS - len(GAP)
    parts = [f"{_heading(path)}\n{_beginning(text, chars)}" for path, text in chosen]
    return outline + GAP.join(parts)


def _sections(texts: Sequence[SummaryText]) -> list[tuple[tuple[str, ...], str]]:
    """Each heading path where it begins, with the text of its first chunks."""
    found: list[tuple[tuple[str, ...], str]] = []
    for one in texts:
        text = one.text[one.repeated_chars :]
        if found and found[-1][0] == one.heading_path:
            if len(found[-1][1]) < MAX_CHARS:
                found[-1] = (one.heading_path, f"{found[-1][1]}\n{text}")
        else:
            found.append((one.heading_path, text))
    return found


def _outline(paths: Sequence[tuple[str, ...]]) -> str:
    lines = [
        "  " * (len(path) - 1) + path[-1][:MAX_HEADING_CHARS]
        for path in dict.fromkeys(paths)
        if path
    ]
    if not lines:
        return ""
    fitting = _evenly(lines, max(1, MAX_OUTLINE_CHARS // (sum(map(len, lines)) // len(lines) + 1)))
    return "Outline:\n" + "\n".join(fitting)[:MAX_OUTLINE_CHARS] + "\n\nBeginnings of sections:\n"


def _heading(path: Sequence[str]) -> str:
    return " > ".join(path)[-MAX_HEADING_CHARS:]


def _beginning(text: str, chars: int) -> str:
    """The first characters, cut at a space if there is one near the end."""
    if len(text) <= chars:
        return text
    cut = text.rfind(" ", chars * 3 // 4, chars)
    return text[: cut if cut > 0 else chars]


def _evenly(items: Sequence[T], limit: int) -> list[T]:
    count = min(limit, len(items))
    return [items[n * len(items) // count] for n in range(count)]
