"""``latent search``"""

from __future__ import annotations

from typing import Annotated, Any

import orjson
import typer
from pydantic import ValidationError
from rich.console import Console
from rich.style import Style
from rich.text import Text

from latent_cli.options import Json, command_app, search_mode
from latent_cli.output import amount, answers, can_link, emit, notes, safe
from latent_cli.place_output import place_of
from latent_cli.session import ask_by, search_client
from latent_core.domain.errors import Invalid
from latent_core.domain.manifest.model import OFFERED_MODES, SearchMode
from latent_core.domain.table import header_above
from latent_core.wire.search import (
    AlsoInDocument,
    Diagnostics,
    Facet,
    Hit,
    Neighbour,
    Reason,
    SearchRequest,
)

app = command_app()

OTHERS_SHOWN = 3
PAGE_IMAGES = {
    "pending": "its image is still being rendered",
    "failed": "its image could not be rendered",
}


@app.command()
def search(
    query: Annotated[
        str,
        typer.Argument(
            metavar="[QUERY]", help='Words to search; use "quotes" for an exact phrase.'
        ),
    ] = "",
    *,
    containers: Annotated[
        list[str] | None,
        typer.Option(
            "--container",
            "-c",
            metavar="ID",
            help="Container to search; repeatable. Default: all that the token may read.",
        ),
    ] = None,
    mode: Annotated[
        SearchMode | None,
        typer.Option(
            "--mode",
            parser=search_mode,
            metavar="|".join(OFFERED_MODES),
            help="Search mode; default: the mode of each container.",
        ),
    ] = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", help="Maximum number of hits.")] = 10,
    must_terms: Annotated[
        list[str] | None,
        typer.Option(
            "--must", metavar="TERM", help="Require this exact text in every hit; repeatable."
        ),
    ] = None,
    regexes: Annotated[
        list[str] | None,
        typer.Option(
            "--regex",
            metavar="RE2",
            help="Require a match of one of these in every hit; repeatable.",
        ),
    ] = None,
    path_like: Annotated[
        str | None, typer.Option("--path", metavar="GLOB", help="Glob or part of the path.")
    ] = None,
    ignore_case: Annotated[
        bool, typer.Option("--ignore-case", "-i", help="Ignore case in --must and --regex.")
    ] = False,
    filters: Annotated[
        str | None, typer.Option("--filter", metavar="JSON", help="Filter as in docs/api.md.")
    ] = None,
    as_you_type: Annotated[
        bool,
        typer.Option("--as-you-type", help="Match the last word as the beginning of a word, too."),
    ] = False,
    like: Annotated[
        str | None,
        typer.Option(
            "--like", metavar="DOC", help="Find texts like this document; its id, or `chunk:ID`."
        ),
    ] = None,
    facets: Annotated[
        list[str] | None,
        typer.Option(
            "--facet",
            metavar="FIELD",
            help="Count the matching documents by source_type, language or meta.NAME; repeatable.",
        ),
    ] = None,
    min_score: Annotated[
        float | None,
        typer.Option("--min-score", min=0.0, max=1.0, help="Lowest relevance of a hit, 0 to 1."),
    ] = None,
    mark_weak: Annotated[
        bool | None,
        typer.Option(
            "--mark-weak/--no-mark-weak",
            help="Mark hits with a relevance below 50 %; default: as each container's manifest says.",
        ),
    ] = None,
    neighbours: Annotated[
        int,
        typer.Option(
            "--neighbours", "-n", help="Number of chunks to show before and after each hit."
        ),
    ] = 0,
    dedup: Annotated[bool, typer.Option(help="Show one hit per document.")] = True,
    explain: Annotated[bool, typer.Option("--explain", help="Explain the search plan.")] = False,
    diagnostics: Annotated[
        bool, typer.Option("--diagnostics", help="Show timings and candidates of each container.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Find passages in one or several containers."""
    fields: dict[str, Any] = {
        "query": query,
        "top_k": top_k,
        "dedup": dedup,
    }
    more = {
        "containers": containers,
        "must_terms": must_terms,
        "regexes": regexes,
        "path_like": path_like,
        "ignore_case": ignore_case,
        "filters": _object(filters) if filters else None,
        "as_you_type": as_you_type,
        "like": _reference(like) if like else None,
        "facets": facets,
        "neighbours": neighbours,
        "mode": mode,
        "explain": explain,
        "diagnostics": diagnostics,
    }
    fields |= {name: value for name, value in more.items() if value}
    exact = {"min_score": min_score, "mark_weak": mark_weak}
    fields |= {name: value for name, value in exact.items() if value is not None}
    request = _request(fields)
    answer = ask_by(search_client, lambda client: client.search(request))
    if as_json:
        emit(answer)
        return
    console = answers()
    several, links = len(containers or ()) != 1, can_link()
    for rank, hit in enumerate(answer.hits, start=1):
        show_hit(console, rank, hit, several=several, links=links)
    for field, facet in answer.facets.items():
        console.print(Text(safe(facet_line(field, facet)), style="dim"))
    if answer.diagnostics is not None:
        show_diagnostics(console, answer.diagnostics)
    for issue in answer.issues:
        notes().print(safe(f"{issue.code.value}: {issue.message}"))


def _reference(named: str) -> dict[str, str]:
    chunk_id = named.removeprefix("chunk:")
    return {"doc_id": named} if chunk_id == named else {"chunk_id": chunk_id}


def _object(text: str) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as exc:
        raise Invalid(f"--filter is not valid JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise Invalid('--filter must be an object, such as {"source_type": "pdf"}')
    return value


def _request(fields: dict[str, Any]) -> SearchRequest:
    try:
        return SearchRequest.model_validate(fields)
    except ValidationError as exc:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in exc.errors())
        raise Invalid(problems) from exc


def show_hit(console: Console, rank: int, hit: Hit, *, several: bool, links: bool = False) -> None:
    where = f"{hit.container_id}: " if several else ""
    place = ", ".join(part for part in (hit.source_path, place_of(hit.place)) if part)
    style = "dim" if hit.weak else "bold"
    title = Text(safe(hit.title), style)
    if links and hit.page_uri and hit.page_uri.startswith(("http://", "https://")):
        title.stylize(Style(link=safe(hit.page_uri)))  # to the image of the page, for five minutes
    console.print(Text.assemble(f"{rank}. ", title, f"  {rating(hit)}"))
    console.print(Text(f"   {safe(where + place)}", style="dim"))
    _print_neighbours(console, hit.before)
    console.print(marked(hit))
    _print_neighbours(console, hit.after)
    console.print(Text(f"   why: {safe('; '.join(map(reason, hit.why)))}", style="dim"))
    if hit.page_uri:
        opened = f"   open: latent open {hit.doc_id}/{hit.provenance.page or 1}"
        console.print(Text(opened, style="dim"))
    elif hit.page_image in PAGE_IMAGES:
        page_text = PAGE_IMAGES[hit.page_image] + (
            f": {hit.page_image_cause}" if hit.page_image_cause else ""
        )
        console.print(Text(f"   page: {safe(page_text)}", style="dim"))
    if hit.also_in_document:
        console.print(Text(f"   also: {safe(others(hit.also_in_document))}", style="dim"))
    if hit.duplicates:
        repeated = ", ".join(one.source_uri.removeprefix("file:///") for one in hit.duplicates)
        console.print(Text(f"   nearly the same: {safe(repeated)}", style="dim"))
    console.print()


def rating(hit: Hit) -> str:
    """How relevant the hit is; its score where that is unknown."""
    if hit.relevance is None:
        return f"score {hit.score:.4f}"
    return f"{hit.relevance:.0%} relevant{' (weak)' if hit.weak else ''}"


def _print_neighbours(console: Console, found: list[Neighbour]) -> None:
    for one in found:
        console.print(Text(f"   | {safe(' '.join(one.text.split()))}", style="dim"))


def others(found: list[AlsoInDocument]) -> str:
    """Other matches in the document: the best places and the number of further ones."""
    shown = "; ".join(f"{place_of(o.place)} ({o.score:.3f})" for o in found[:OTHERS_SHOWN])
    more = len(found) - OTHERS_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def marked(hit: Hit) -> Text:
    """The indented snippet with matches in bold."""
    text = Text(safe(hit.snippet, lines=True))
    header = Text(safe(header_above(hit.text, hit.block_type, hit.snippet), lines=True))
    for start, end in hit.highlights:
        text.stylize("bold yellow", start, end)
    shown = Text()
    for line in (header + text).split("\n", allow_blank=False):
        shown.append("   ").append_text(line).append("\n")
    shown.right_crop(1)
    return shown


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


def show_diagnostics(console: Console, found: Diagnostics) -> None:
    for step in found.plan:
        console.print(Text(safe(step), style="dim"))
    timings = ", ".join(f"{stage} {ms:.1f} ms" for stage, ms in found.timings_ms.items())
    console.print(Text(f"stages: {timings}", style="dim"))
    for status in found.container_status:
        state = "exhausted" if status.exhausted else "more to come"
        line = (
            f"{status.container_id}: {amount(status.candidates, 'candidate')}, {status.stale} stale, "
            f"{amount(status.rounds, 'round')}, {state if status.ok else status.issue or 'failed'}"
        )
        console.print(Text(safe(line), style="dim"))
    for container_id, terms in found.terms.items():
        console.print(Text(safe(f"{container_id}: searched for {' '.join(terms)}"), style="dim"))
