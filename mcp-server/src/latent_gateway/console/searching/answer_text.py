"""The text of a model's answer as HTML: paragraphs, lists, code, emphasis and citations; everything else is text.

The gateway has made the text safe already (``latent_core.ask.sanitise``); here all of it is escaped again, and the only
links are those that this module makes for known citations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from markupsafe import Markup, escape

FENCE: Final = re.compile(r"(`{3,}|~{3,})(.*)")
HEADING: Final = re.compile(r"#{1,6}\s+(.*)")
ITEM: Final = re.compile(r"\s{0,8}(?:[-*+]|(\d{1,3})[.)])\s+(.*)")
INLINE: Final = re.compile(
    r"(`+)(.+?)\1(?!`)|\*\*(.+?)\*\*|\[(\d{1,4})\]|\\([\\`*_{}\[\]()#+.!~<>-])"
)


def formatted(text: str, links: Mapping[int, str]) -> Markup:
    """``links``: the address of each citation by its number."""
    return Markup("\n").join(_blocks(text.split("\n"), links))


def _blocks(lines: list[str], links: Mapping[int, str]) -> Iterator[Markup]:
    at = 0
    while at < len(lines):
        line = lines[at]
        fence = FENCE.fullmatch(line.strip())
        if fence:
            end = next(
                (n for n in range(at + 1, len(lines)) if lines[n].strip() == fence[1]), len(lines)
            )
            code = "\n".join(lines[at + 1 : end])
            yield Markup('<pre tabindex="0"><code>%s</code></pre>') % code
            at = end + 1
        elif ITEM.fullmatch(line):
            end = _while(lines, at, lambda one: ITEM.fullmatch(one) is not None)
            yield _list(lines[at:end], links)
            at = end
        elif heading := HEADING.fullmatch(line.strip()):
            yield Markup("<h3>%s</h3>") % _inline(heading[1], links)
            at += 1
        elif line.strip():
            end = _while(lines, at, _is_prose)
            yield Markup("<p>%s</p>") % _inline("\n".join(lines[at:end]), links)
            at = end
        else:
            at += 1


def _while(lines: list[str], at: int, holds: Callable[[str], bool]) -> int:
    """The end of the run that begins at ``at``, which is at least one line."""
    return next((n for n in range(at + 1, len(lines)) if not holds(lines[n])), len(lines))


def _is_prose(line: str) -> bool:
    bare = line.strip()
    return bool(bare) and not (
        FENCE.fullmatch(bare) or HEADING.fullmatch(bare) or ITEM.fullmatch(line)
    )


def _list(lines: list[str], links: Mapping[int, str]) -> Markup:
    found = [one for line in lines if (one := ITEM.fullmatch(line)) is not None]
    tag = "ol" if found[0][1] else "ul"
    items = Markup("").join(Markup("<li>%s</li>") % _inline(one[2], links) for one in found)
    return Markup(f"<{tag}>%s</{tag}>") % items


def _inline(text: str, links: Mapping[int, str]) -> Markup:
    parts: list[Markup] = []
    at = 0
    for found in INLINE.finditer(text):
        parts += [escape(text[at : found.start()]), _span(found, links)]
        at = found.end()
    return Markup("").join([*parts, escape(text[at:])])


def _span(found: re.Match[str], links: Mapping[int, str]) -> Markup:
    _, code, strong, number, character = found.groups()
    if code is not None:
        return Markup("<code>%s</code>") % code
    if strong is not None:
        return Markup("<strong>%s</strong>") % _inline(strong, links)
    if number is not None:
        address = links.get(int(number))
        if address is None:
            return escape(found[0])
        return Markup(
            '<a class="cite" href="%s" data-swap="#panel" aria-label="Source %s">%s</a>'
        ) % (address, number, number)
    return escape(character)
