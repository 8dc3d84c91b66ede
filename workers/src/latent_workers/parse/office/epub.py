"""EPUB books: the chapters in their reading order, each read as a page."""

from __future__ import annotations

import posixpath
from typing import Any, Final
from urllib.parse import unquote

from lxml.etree import _Element as Element

from latent_core.domain.errors import IngestFailed
from latent_workers.parse.office.package import Package, child, children, local
from latent_workers.parse.office.writing import OfficeText
from latent_workers.parse.text.compose import MAX_CHARS
from latent_workers.parse.text.decode import decode

_CONTAINER: Final = "META-INF/container.xml"
_ENCRYPTION: Final = "META-INF/encryption.xml"
_PAGES: Final = frozenset({"application/xhtml+xml", "text/html", ""})


def read(package: Package, name: str) -> OfficeText:
    rootfile = next(
        (one for one in package.xml(_CONTAINER).iter() if local(one) == "rootfile"), None
    )
    main = "" if rootfile is None else rootfile.get("full-path", "")
    root = package.xml(main)
    folder = posixpath.dirname(main)
    spine = _spine(root, folder)
    if _encrypted(package).intersection(map(str.lower, spine)):
        raise IngestFailed(
            f"'{name}' is protected against copying: it cannot be read", reason="encrypted"
        )
    parts: list[str] = []
    for part in spine:
        if part in package:
            parts.append(_chapter(package, part, name))
        if sum(map(len, parts)) > MAX_CHARS:
            raise IngestFailed(
                f"'{name}' has more than {MAX_CHARS:,} characters: split it", reason="size"
            )
    meta = _meta(root)
    return OfficeText(
        "\n\n".join(filter(None, parts)),
        title=meta.pop("title", None),
        language=meta.pop("language", None),
        meta=meta,
    )


def _encrypted(package: Package) -> set[str]:
    """The parts that are encrypted, whatever shop protects them. Fonts often are in books that anybody may read."""
    if _ENCRYPTION not in package:
        return set()
    listed = (
        one.get("URI", "")
        for one in package.xml(_ENCRYPTION).iter()
        if local(one) == "CipherReference"
    )
    return {posixpath.normpath(unquote(part)).lower() for part in listed}


def _spine(root: Element, folder: str) -> list[str]:
    """The parts of the book in reading order."""
    pages = {
        one.get("id"): posixpath.normpath(posixpath.join(folder, unquote(one.get("href", ""))))
        for one in children(child(root, "manifest"), "item")
        if one.get("media-type", "") in _PAGES
    }
    order = [one.get("idref") for one in children(child(root, "spine"), "itemref")]
    return [pages[one] for one in order if one in pages]


def _chapter(package: Package, part: str, name: str) -> str:
    # The readers of web pages are slow to load: here, only for a book.
    from latent_workers.parse.web.markdown import markdown_of
    from latent_workers.parse.web.parser import parse_page

    text = decode(package.read(part)).text
    if not text.strip():
        return ""
    body = parse_page(text, name).tree.find("body")
    return "" if body is None else markdown_of(body)


def _meta(root: Element) -> dict[str, Any]:
    named = {"title": "title", "creator": "author", "date": "date", "language": "language"}
    meta: dict[str, Any] = {}
    listed = child(root, "metadata")
    for one in () if listed is None else listed:
        key, words = named.get(local(one)), " ".join((one.text or "").split())
        if key and words and key not in meta:
            meta[key] = words
    if "language" in meta:
        meta["language"] = meta["language"].partition("-")[0].lower()
    return meta
