"""Hits and diagnostics of a search, as styled lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from latent_cli.output import amount, safe
from latent_cli.place_output import place_of
from latent_cli.styled import Line
from latent_core.domain.table import header_above
from latent_core.wire.search import AlsoInDocument, Diagnostics, Facet, Hit, Neighbour, Reason

OTHERS_SHOWN = 3
MARK = "bold yellow"
PAGE_IMAGES = {
    "pending": "its image is still being rendered",
    "failed": "its image could not be rendered",
}


def hit_lines(rank: int, hit: Hit, *, several: bool, links: bool = False) -> Iterator[Line]:
    """A hit, and an empty line. ``links`` makes its title a hyperlink to the image of its page, for five minutes."""
    where = f"{hit.container_id}: " if several else ""
    place = ", ".join(part for part in (hit.source_path, place_of(hit.place)) if part)
    style = "dim" if hit.weak else "bold"
    if links and hit.page_uri and hit.page_uri.startswith(("http://", "https://")):
        style += f" link {safe(hit.page_uri)}"
    yield [(f"{rank}. ", ""), (safe(hit.title), style), (f"  {rating(hit)}", "")]
    yield _dim(where + place)
    if hit.generated is not None:
        yield _dim(f"generated: {hit.generated.kind.value} by {hit.generated.model}")
    yield from _neighbours(hit.before)
    yield from marked(hit)
    yield from _neighbours(hit.after)
    yield _dim(f"why: {'; '.join(map(reason, hit.why))}")
    if hit.page_uri:
        yield _dim(f"open: latent open {hit.doc_id}/{hit.provenance.page or 1}")
    elif hit.page_image in PAGE_IMAGES:
        cause = f": {hit.page_image_cause}" if hit.page_image_cause else ""
        yield _dim(f"page: {PAGE_IMAGES[hit.page_image]}{cause}")
    if hit.also_in_document:
        yield _dim(f"also: {others(hit.also_in_document)}")
    if hit.duplicates:
        repeated = ", ".join(one.source_uri.removeprefix("file:///") for one in hit.duplicates)
        yield _dim(f"nearly the same: {repeated}")
    yield []


def _dim(text: str) -> Line:
    return [(f"   {safe(text)}", "dim")]


def rating(hit: Hit) -> str:
    """How relevant the hit is; its score where that is unknown."""
    if hit.relevance is None:
        return f"score {hit.score:.4f}"
    return f"{hit.relevance:.0%} relevant{' (weak)' if hit.weak else ''}"


def _neighbours(found: list[Neighbour]) -> Iterable[Line]:
    return (_dim(f"| {' '.join(one.text.split())}") for one in found)


def others(found: list[AlsoInDocument]) -> str:
    """Other matches in the document: the best places and the number of further ones."""
    shown = "; ".join(f"{place_of(o.place)} ({o.score:.3f})" for o in found[:OTHERS_SHOWN])
    more = len(found) - OTHERS_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def marked(hit: Hit) -> list[Line]:
    """The indented lines of the snippet with matches in bold."""
    lines: list[Line] = [[("   ", "")]]

    def add(text: str, style: str = "") -> None:
        for number, line in enumerate(safe(text, lines=True).split("\n")):
            if number:
                lines.append([("   ", "")])
            if line:
                lines[-1].append((line, style))

    add(header_above(hit.text, hit.block_type, hit.snippet))
    position = 0
    for start, end in hit.highlights:
        add(hit.snippet[position:start])
        add(hit.snippet[start:end], MARK)
        position = end
    add(hit.snippet[position:].rstrip("\n"))
    return lines


def reason(why: Reason) -> str:
    held = why.term or why.regex or why.path
    words = f" by {held}" if held else ""
    if why.lines:
        words += f", lines {', '.join(map(str, why.lines))}"
    return f"{why.channel} rank {why.rank} ({why.score:.3f}){words}"


def facet_line(field: str, facet: Facet) -> str:
    """The counts of a field in one line, the most frequent values first."""
    counts = [f"{one.value} {one.count}" for one in facet.values]
    counts += [f"{amount(facet.other_values, 'other value')} {facet.other_count}"] * bool(
        facet.other_values
    )
    counts += [f"without it {facet.missing}"] * bool(facet.missing)
    return f"{field} of {amount(facet.documents, 'document')}: {', '.join(counts)}"


def diagnostics_lines(found: Diagnostics) -> Iterator[str]:
    yield from found.plan
    timings = ", ".join(f"{stage} {ms:.1f} ms" for stage, ms in found.timings_ms.items())
    yield f"stages: {timings}"
    for status in found.container_status:
        state = "exhausted" if status.exhausted else "more to come"
        yield (
            f"{status.container_id}: {amount(status.candidates, 'candidate')}, {status.stale} stale, "
            f"{amount(status.rounds, 'round')}, {state if status.ok else status.issue or 'failed'}"
        )
    for container_id, terms in found.terms.items():
        yield f"{container_id}: searched for {' '.join(terms)}"
