"""Create the handbook of the sample container as a PDF: several pages, tables and a figure.

    python scripts/make_sample_pdf.py FOLDER OUT.pdf

The same texts always produce the same bytes.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

pymupdf: Any = importlib.import_module("pymupdf")  # untyped

PAGE = pymupdf.paper_rect("a4")
FRAME = pymupdf.Rect(56, 56, PAGE.width - 56, PAGE.height - 64)
CSS = """
body { font-family: serif; font-size: 10.5pt; }
h1 { font-family: sans-serif; font-size: 17pt; }
h2 { font-family: sans-serif; font-size: 12.5pt; }
p.caption { font-size: 9pt; }
table { border: 1px solid #555; border-collapse: collapse; }
th { background-color: #e4e4e4; text-align: left; }
th, td { border: 1px solid #999; padding: 3px; font-size: 9pt; }
code, pre { font-family: monospace; font-size: 8.5pt; }
"""
FIGURE = """
<img src="figure.png" width="420">
<p class="caption"><b>Figure 1.</b> Two flashes, then darkness: the character <code>Fl(2) W 20s</code> over two turns.</p>
"""
CHAPTERS = (
    "index",
    "lens",
    "rotation",
    "lamps",
    "fog-signal",
    "keepers",
    "conservation",
    "emergencies",
)


def main(folder: Path, out: Path) -> None:
    sources = [folder / f"{name}.md" for name in CHAPTERS]
    markdown = MarkdownIt("commonmark").enable("table")
    html = [markdown.render(source.read_text(encoding="utf-8")) for source in sources]
    html[2] += FIGURE
    out.write_bytes(typeset(html, figure()))


def typeset(chapters: Iterable[str], image: bytes) -> bytes:
    """Each chapter starts on a new page. Pages are numbered."""
    archive = pymupdf.Archive()
    archive.add((image, "figure.png"))
    document = pymupdf.open()
    for html in chapters:
        story = pymupdf.Story(html, user_css=CSS, archive=archive)
        with story.write_with_links(lambda *_: (PAGE, FRAME, pymupdf.Identity)) as chapter:
            document.insert_pdf(chapter)
    for number, page in enumerate(document, start=1):
        page.insert_text((PAGE.width / 2 - 4, PAGE.height - 36), str(number), fontsize=9)
    document.set_metadata({"title": "Skerry Point Lighthouse Museum: handbook"})
    document.subset_fonts()
    data: bytes = document.tobytes(garbage=3, deflate=True, no_new_id=True)
    return data


def figure() -> bytes:
    """A chart of the light over forty seconds, as PNG."""
    with pymupdf.open() as drawing:
        page = drawing.new_page(width=520, height=150)
        page.draw_line((30, 120), (500, 120))
        for second in range(0, 41, 5):
            x = 40 + second * 11
            page.draw_line((x, 120), (x, 125))
            page.insert_text((x - 5, 138), f"{second} s", fontsize=8)
        for tilt in (0, 20):
            for flash in (0, 3):
                x = 40 + (tilt + flash) * 11
                page.draw_polyline([(x, 120), (x + 6, 30), (x + 12, 120)], fill=(1, 0.85, 0.3))
        page.insert_text((30, 20), "light of Skerry Point", fontsize=10)
        png: bytes = page.get_pixmap(dpi=110).tobytes("png")
    return png


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
