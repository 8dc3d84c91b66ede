"""What a fetched page is called: its name tells the parser, so it must not contradict the server."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final

from latent_core.domain.chunk import SourceType
from latent_workers.parse.extensions import EXTENSIONS, MIME_TYPES

_SAYS_NOTHING: Final = frozenset(
    {
        "",
        "text/plain",
        "application/octet-stream",
        "binary/octet-stream",
        "application/x-download",
        "application/force-download",
        "unknown/unknown",
    }
)
"""Types that servers give to what they do not know; then the name decides."""
_SUFFIXES: Final = {
    SourceType.WEB: ".html",
    SourceType.PDF: ".pdf",
    SourceType.MARKDOWN: ".md",
    SourceType.YAML: ".yaml",
    SourceType.JSON: ".json",
}
_HTML: Final = re.compile(
    rb"\A(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]{0,200}\?>\s*)?(?:<!--.{0,500}?-->\s*)?<(?:!doctype\s+html|html)\b",
    re.IGNORECASE | re.DOTALL,
)
HEAD_BYTES: Final = 1024
"""How much of a page ``named`` looks at."""


def plain_type(content_type: str) -> str:
    """Without parameters, in small letters."""
    return content_type.partition(";")[0].strip().lower()


def named(filename: str, content_type: str, head: bytes) -> str:
    """``filename``, with the suffix of what the server says it sent, or of what it plainly is."""
    kind = _kind(filename, plain_type(content_type), head)
    suffix = _SUFFIXES.get(kind) if kind is not None else None
    if suffix is None or _by_name(filename) is kind:
        return filename
    return filename + suffix


def _kind(filename: str, plain: str, head: bytes) -> SourceType | None:
    if plain not in _SAYS_NOTHING:
        return MIME_TYPES.get(plain)
    if plain != "text/plain" and _by_name(filename) is None and _HTML.match(head):
        return SourceType.WEB
    return None


def _by_name(filename: str) -> SourceType | None:
    return EXTENSIONS.get(PurePosixPath(filename.lower()).suffix.removeprefix("."))
