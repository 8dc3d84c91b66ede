"""What a stand-in for a language model says about pages: a true description of the page's text, in the form."""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from latent_workers.parse.pdf import mupdf
from tests.support.servers.llm_dialects import SeenRequest

pymupdf: Any = mupdf.load()

TEXT: Final = re.compile(r"<(text-of-the-page(?:-after)?)-(\w+)>\n(.*?)\n</\1-\2>", re.S)


def book(*texts: str) -> bytes:
    """A PDF with one of the texts on each page."""
    document = pymupdf.open()
    for text in texts:
        document.new_page(width=300, height=400).insert_text((20, 100), text)
    return bytes(document.tobytes())


def sides(seen: SeenRequest) -> list[str]:
    """The texts of the page, and of the page after it."""
    return [text for _, _, text in TEXT.findall(seen.text)]


def described(seen: SeenRequest, importance: int = 4) -> str:
    text = sides(seen)[0]
    chart = {"type": "chart", "description": f"Plot of {text.split()[0]}.", "relevance": 4}
    return orjson.dumps(
        {
            "summary": text[:100],
            "sections": [{"heading": "", "text": text}],
            "full_text": f"Described: {text}",
            "visuals": [chart],
            "visual_importance": importance,
        }
    ).decode()
