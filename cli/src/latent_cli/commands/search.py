"""``latent search``"""

from __future__ import annotations

from typing import Annotated, Any

import orjson
import typer
from pydantic import ValidationError

from latent_cli.hits_output import diagnostics_lines, facet_line, hit_lines
from latent_cli.options import Json, command_app, search_mode
from latent_cli.output import can_link, emit, print_note, safe
from latent_cli.session import ask_by, search_client
from latent_cli.styled import print_lines
from latent_core.domain.errors import Invalid
from latent_core.domain.retrieval import OFFERED_MODES, SearchMode
from latent_core.wire.search import SearchRequest

app = command_app()


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
            help="Count the matching documents by container, source_type, language, max_age or meta.NAME; repeatable.",
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
    generated: Annotated[
        bool,
        typer.Option(help="Also find what a language model wrote about the documents."),
    ] = True,
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
    if not generated:
        fields["generated"] = False
    exact = {"min_score": min_score, "mark_weak": mark_weak}
    fields |= {name: value for name, value in exact.items() if value is not None}
    if not any((query.strip(), like, must_terms, regexes, path_like)):
        raise Invalid("no query: give words, or one of --like, --must, --regex and --path")
    request = _request(fields)
    answer = ask_by(search_client, lambda client: client.search(request))
    if as_json:
        emit(answer)
        return
    several, links = len(containers or ()) != 1, can_link()
    for rank, hit in enumerate(answer.hits, start=1):
        print_lines(hit_lines(rank, hit, several=several, links=links))
    remarks = [facet_line(field, facet) for field, facet in answer.facets.items()]
    if answer.diagnostics is not None:
        remarks += diagnostics_lines(answer.diagnostics)
    print_lines([(safe(remark), "dim")] for remark in remarks)
    for issue in answer.issues:
        print_note(f"{issue.code.value}: {issue.message}")


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
