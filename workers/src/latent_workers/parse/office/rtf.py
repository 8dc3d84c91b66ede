"""RTF documents, by striprtf; rows of tables become tables, outline levels headings."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Final

from striprtf.striprtf import rtf_to_text

from latent_core.domain.errors import IngestFailed
from latent_workers.parse.office.writing import OfficeText
from latent_workers.parse.text.compose import MarkdownText

_MAX_BYTES: Final = 32 * 1024 * 1024
_PICTURE: Final = re.compile(rb"(?:[0-9a-fA-F]{64,}[\r\n]*)+")
_FOOTNOTE: Final = re.compile(r"\\footnote(?![a-z])")
"""striprtf leaves footnotes out; as plain text they follow the words that they belong to."""
_BINARY: Final = re.compile(r"\\bin(?![a-z0-9-])")
"""Without the length that the format demands, at which striprtf fails."""
_STRAY: Final = re.compile(r"\\\\|(?P<begins>\{\s*)?\\\*")
"""What marks a group as one that may be ignored, but inside of a group, where it means nothing (StarOffice wrote it)."""
_MARK: Final = "\x02"
"""Before the level of a heading, in the text that striprtf gives."""
_PARAGRAPH: Final = re.compile(
    r"\\pard(?![a-z])(?P<controls>(?:\s*\\(?!par(?![a-z]))[a-z]+-?\d* ?|[\r\n{])*)"
)
_OUTLINE: Final = re.compile(r"\\outlinelevel(\d)")
_STYLE: Final = re.compile(r"\\s(\d+)(?![a-z])")
_NAMED: Final = re.compile(r"\{\\s(\d+)(?![a-z])[^{}]*?\bheading ([1-9]);\}", re.IGNORECASE)
_TITLE: Final = re.compile(r"\{\\title ([^{}\\]{1,500})\}")


def read(data: bytes, name: str) -> OfficeText:
    # Pictures are lines of digits, often most of the file.
    source = _PICTURE.sub(b"", data).decode("latin-1")
    if len(source) > _MAX_BYTES:
        raise IngestFailed(
            f"'{name}' has more than {_MAX_BYTES:,} bytes besides its pictures: save it as .docx",
            reason="size",
        )
    title = _TITLE.search(source)
    source = _STRAY.sub(lambda m: "" if m[0] == r"\*" else m[0], source)
    source = _BINARY.sub("", _FOOTNOTE.sub(r"\\plain", source))
    try:
        plain: str = rtf_to_text(  # type: ignore[no-untyped-call]  # striprtf has no types
            _with_marks(source), encoding="cp1252", errors="replace"
        )
    except (ValueError, LookupError, IndexError, RecursionError) as exc:
        raise IngestFailed(
            f"'{name}' is damaged ({str(exc)[:200]}): open it and save it as .docx",
            reason="damaged",
        ) from exc
    text = MarkdownText(name)
    for is_row, lines in groupby(plain.split("\n"), key=lambda line: line.rstrip().endswith("|")):
        if is_row:
            text.grid([_cells(line) for line in lines])
        else:
            for line in lines:
                _line(text, line)
    return OfficeText(text.text(), title=title[1].strip() if title else None)


def _with_marks(source: str) -> str:
    """A mark with the level before the words of each heading: striprtf leaves out what a paragraph is."""
    levels = {number: int(level) for number, level in _NAMED.findall(source)}

    def marked(match: re.Match[str]) -> str:
        controls = match["controls"]
        level = 0
        if found := _OUTLINE.search(controls):
            level = int(found[1]) + 1
        elif found := _STYLE.search(controls):
            level = levels.get(found[1], 0)
        return f"{match[0]}\\'02{level} " if 0 < level < 10 else match[0]

    return _PARAGRAPH.sub(marked, source)


def _line(text: MarkdownText, line: str) -> None:
    before, mark, words = line.partition(_MARK)
    if mark and words[:1].isdigit():
        text.heading(int(words[0]), before + words[1:])
    else:
        text.paragraph(line)


def _cells(line: str) -> list[str]:
    return [
        " ".join(re.sub(f"{_MARK}\\d", "", words).split())
        for words in line.rstrip()[:-1].split("|")
    ]
