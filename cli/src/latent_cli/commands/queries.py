"""``latent queries``"""

from __future__ import annotations

from typing import Annotated

import typer

from latent_cli.options import Json, Yes, command_app
from latent_cli.output import answers, emit, moment, safe, table
from latent_cli.session import ask
from latent_core.domain.errors import Invalid
from latent_core.wire.queries import LoggedQuery, QueryKind

app = command_app()


@app.command("queries")
def queries(
    container: Annotated[str, typer.Argument(metavar="CONTAINER")],
    without_hits: Annotated[
        bool, typer.Option("--without-hits", help="Only those whose last answer had no hit.")
    ] = False,
    weak: Annotated[
        bool, typer.Option("--weak", help="Only those whose last answer had weak hits only.")
    ] = False,
    days: Annotated[int, typer.Option("--days", min=1, max=365, help="How far back.")] = 30,
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, help="Number of lines.")] = 50,
    clear: Annotated[bool, typer.Option("--clear", help="Delete the log.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """List what was searched for in a container, most frequent first.

    Nothing is logged unless the manifest says so (query_log: {keep_days: 30}). The log does not say who searched.
    """
    if clear:
        _clear(container, confirmed=yes, as_json=as_json)
        return
    if without_hits and weak:
        raise Invalid("--without-hits and --weak exclude each other; give only one")
    kind = QueryKind.WEAK if weak else QueryKind.FREQUENT
    if without_hits:
        kind = QueryKind.WITHOUT_HITS
    found = ask(lambda client: client.logged_queries(container, kind, days=days, limit=limit))
    if as_json:
        emit(found)
        return
    if found.keep_days is None:
        answers().print(
            safe(
                f"the queries of {container} are not logged; query_log: {{keep_days: 30}} in its manifest does that"
            )
        )
        return
    columns = ("QUERY", ">TIMES", ">HITS", ">RELEVANCE", "LAST", "GOLDEN")
    answers().print(table(columns, (_row(line) for line in found.queries)))


def _clear(container: str, *, confirmed: bool, as_json: bool) -> None:
    if not confirmed:
        raise Invalid(f"this deletes the log of queries of '{container}'; add --yes to confirm")
    deleted = ask(lambda client: client.clear_logged_queries(container))
    if as_json:
        emit({"deleted": deleted})
        return
    answers().print(safe(f"the log of {container} is empty; {deleted} entries deleted"))


def _row(line: LoggedQuery) -> tuple[object, ...]:
    relevance = "" if line.relevance is None else f"{line.relevance:.2f}"
    golden = "yes" if line.golden else ""
    return line.query, line.times, line.all_hits, relevance, moment(line.last_at), golden
