"""Words become lines and paragraphs; what is no text but the engine's guess at a picture is left out."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from latent_workers.ocr.reading import OcrText
from latent_workers.parse.text.decode import clean

MIN_CONFIDENCE: Final = 0.4
"""Of a whole paragraph: below, engines read the shapes of a photograph."""


@dataclass(frozen=True, slots=True)
class OcrWord:
    """A word, or a run of words, with the paragraph and the line it stands in; in reading order."""

    text: str
    confidence: float
    """0 to 1; NaN or beyond counts as 0."""
    paragraph: Hashable
    line: Hashable


def reading_of(words: Iterable[OcrWord]) -> OcrText:
    paragraphs: list[str] = []
    weight = total = 0.0
    replaced = 0
    for _, group in groupby(words, key=lambda word: word.paragraph):
        members = list(group)
        letters = sum(len(word.text) for word in members)
        sure = sum(_share(word.confidence) * len(word.text) for word in members)
        text, bad = clean(_joined(members))
        if sure < MIN_CONFIDENCE * letters or not any(map(str.isalnum, text)):
            continue
        paragraphs.append(text)
        weight, total, replaced = weight + sure, total + letters, replaced + bad
    confidence = weight / total if total else 0.0
    return OcrText(paragraphs=tuple(paragraphs), confidence=round(confidence, 3), replaced=replaced)


def _joined(words: list[OcrWord]) -> str:
    lines = groupby(words, key=lambda word: word.line)
    return "\n".join(" ".join(word.text for word in line) for _, line in lines)


def _share(confidence: float) -> float:
    return min(confidence, 1.0) if confidence > 0.0 else 0.0
