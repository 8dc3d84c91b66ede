"""A hit as a citation, and its search as a call: texts to copy."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from latent_core.wire.search import Hit

TOOL: Final = "containers_search"
TOKEN: Final = "$LATENT_TOKEN"
YEAR: Final = re.compile(r"\b(1[5-9]\d\d|20\d\d)\b")
AUTHORS: Final = re.compile(r"\s*;\s*|\s+and\s+|\s*&\s*")
PAPERS: Final = frozenset({"pdf", "document"})
TEX: Final[Mapping[str, str]] = {
    "\\": r"\textbackslash{}",
    **{one: f"\\{one}" for one in "{}&%$#_"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
MARKDOWN: Final = re.compile(r"([\\`*_\[\]<>])")
LOCAL: Final = ("file://", "note://", "chat://")
"""Addresses that only this installation knows."""


@dataclass(frozen=True, slots=True)
class Citation:
    plain: str
    markdown: str
    bibtex: str | None
    """None unless it is a paper: a PDF or another document with pages, with an author."""


@dataclass(frozen=True, slots=True)
class SearchCalls:
    """The same search for programs."""

    mcp: str
    curl: str
    python: str


def citation(hit: Hit, page_address: str) -> Citation:
    """``page_address``: of the hit's page in this console, for links to what has no address of its own."""
    title, authors, year = _one_line(hit.title), _authors(hit), _year(hit)
    where = [_one_line(hit.place.heading_path)] if hit.place.heading_path else []
    where += [hit.cite_as] if hit.cite_as else []
    address = page_address if hit.source_uri.startswith(LOCAL) else hit.source_uri
    who = f"{', '.join(authors)}. " if authors else ""
    when = f" ({year})" if year else ""
    tail = "".join(f", {one}" for one in where)
    return Citation(
        plain=f"{who}{title}{when}{tail}. {_source(hit)}",
        markdown=f"{_escaped(who)}[{_escaped(title)}](<{_address(address)}>){when}{_escaped(tail)}",
        bibtex=_bibtex(hit, title, authors, year) if _is_paper(hit, authors) else None,
    )


def _is_paper(hit: Hit, authors: list[str]) -> bool:
    return hit.source_type in PAPERS and bool(authors)


def _source(hit: Hit) -> str:
    return hit.source_path if hit.source_uri.startswith("file://") else hit.source_uri


def _authors(hit: Hit) -> list[str]:
    """From the meta that parsers and authors write."""
    given = hit.meta.get("authors") or hit.meta.get("author") or []
    names = given if isinstance(given, list) else AUTHORS.split(str(given))
    return [_one_line(str(name)) for name in names if str(name).strip()][:20]


def _year(hit: Hit) -> str | None:
    for name in ("year", "date", "created"):
        found = YEAR.search(str(hit.meta.get(name, "")))
        if found:
            return found[0]
    return None


def _bibtex(hit: Hit, title: str, authors: list[str], year: str | None) -> str:
    """An entry of type ``misc``: which journal or book it is from, no meta says."""
    fields = {
        "author": " and ".join(map(_tex, authors)),
        "title": f"{{{_tex(title)}}}",
        "year": year or "",
        "note": _tex(hit.cite_as) if hit.cite_as else "",
        "howpublished": "" if hit.source_uri.startswith(LOCAL) else f"\\url{{{hit.source_uri}}}",
    }
    name, comma, _ = authors[0].partition(",")
    family = re.sub(r"[^a-z]", "", (name if comma else name.split()[-1]).lower()) or "anon"
    word = next(iter(re.findall(r"[a-z]{4,}", title.lower())), "")
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
    return "\n".join([f"@misc{{{family}{year or ''}{word},", *lines, "}"])


def _tex(text: str) -> str:
    return "".join(TEX.get(one, one) for one in text)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _escaped(text: str) -> str:
    return MARKDOWN.sub(r"\\\1", text)


def _address(address: str) -> str:
    return address.replace("<", "%3C").replace(">", "%3E").replace("\n", "%0A").replace(" ", "%20")


def calls(request: Mapping[str, Any], base_url: str) -> SearchCalls:
    """``request``: as ``SearchForm.kept``; ``base_url``: of the gateway, without a slash at the end."""
    body = json.dumps(request, ensure_ascii=False, indent=2)
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": TOOL, "arguments": dict(request)},
    }
    return SearchCalls(
        mcp=json.dumps(call, ensure_ascii=False, indent=2),
        curl=(
            f"curl -s {shlex.quote(f'{base_url}/v1/containers/search')} \\\n"
            f'  -H "Authorization: Bearer {TOKEN}" \\\n'
            f"  -H 'Content-Type: application/json' \\\n"
            f"  -d {shlex.quote(body)}"
        ),
        python=_python(request, base_url),
    )


def _python(request: Mapping[str, Any], base_url: str) -> str:
    arguments = "".join(f"    {name}={value!r},\n" for name, value in request.items())
    return (
        "import os\n\n"
        "from latent_client import SyncClient\n"
        "from latent_core.wire.search import SearchRequest\n\n"
        f'client = SyncClient({base_url!r}, os.environ["LATENT_TOKEN"])\n'
        f"request = SearchRequest(\n{arguments})\n"
        "for hit in client.search(request).hits:\n"
        "    print(hit.title, hit.cite_as, hit.snippet)\n"
        "client.close()\n"
    )
