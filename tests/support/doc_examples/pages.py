"""Markdown pages as code blocks, spans in backticks and links, each with its line."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support import REPOSITORY

FENCE: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```",
    re.MULTILINE | re.DOTALL,
)
SPAN: Final = re.compile(r"`([^`]+)`")
LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING: Final = re.compile(r"^#+ +(.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Example:
    """A code block, a span or a link."""

    page: str
    line: int
    language: str
    text: str

    def problem(self, message: str, line: int = 0) -> str:
        return f"{self.page}:{self.line + line}: {message}"


@dataclass(frozen=True)
class Page:
    path: Path
    text: str

    @property
    def name(self) -> str:
        inside = self.path.is_relative_to(REPOSITORY)
        return str(self.path.relative_to(REPOSITORY)) if inside else self.path.name

    def blocks(self) -> Iterator[Example]:
        for match in FENCE.finditer(self.text):
            text = textwrap.dedent(match["text"])
            yield self._example(match.start("text"), match["language"].strip(), text)

    def spans(self) -> Iterator[Example]:
        prose = self._prose()
        for match in SPAN.finditer(prose):
            yield self._example(match.start(), "span", " ".join(match[1].split()))

    def links(self) -> Iterator[Example]:
        for match in LINK.finditer(SPAN.sub(_blank, self._prose())):
            yield self._example(match.start(), "link", match[1])

    def anchors(self) -> set[str]:
        return {_anchor(title) for title in HEADING.findall(self._prose())}

    def _prose(self) -> str:
        """The text with its code blocks blanked, so that positions stay."""
        return FENCE.sub(_blank, self.text)

    def _example(self, start: int, language: str, text: str) -> Example:
        return Example(self.name, self.text.count("\n", 0, start) + 1, language, text)


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def _anchor(title: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")


def read_page(path: Path) -> Page:
    return Page(path, path.read_text(encoding="utf-8"))


def all_pages() -> list[Page]:
    """Pages for users. Decision records and the changelog describe what was true when they were written."""
    found = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")]
    found += [REPOSITORY / "benchmarks" / "README.md"]
    history = REPOSITORY / "docs" / "adr"
    return [
        read_page(path)
        for path in sorted(found)
        if path.name != "CHANGELOG.md" and history not in path.parents
    ]
