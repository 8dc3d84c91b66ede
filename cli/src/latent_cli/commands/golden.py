"""``latent golden``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latent_cli.options import Json, Yes, command_app
from latent_cli.output import amount, answers, emit, safe, table
from latent_cli.session import ask
from latent_client import AsyncClient
from latent_core.domain.errors import Invalid
from latent_core.domain.golden import GoldenQuery, GoldenSet
from latent_core.eval.datasets import read_golden, write_golden
from latent_core.wire.golden import GoldenQueryView, GoldenSetAnswer

app = command_app()

Container = Annotated[str, typer.Argument(metavar="CONTAINER")]


@app.callback()
def golden() -> None:
    """List, add, remove, import and export the golden queries of a container."""


@app.command("list")
def list_queries(container: Container, as_json: Json = False) -> None:
    """List the golden queries of a container with what they expect."""
    found = ask(lambda client: client.golden_list(container))
    if as_json:
        emit(found)
        return
    answers().print(table(("ID", "QUERY", "EXPECTS"), (_row(query) for query in found.queries)))


@app.command()
def add(
    container: Container,
    query: Annotated[str, typer.Argument(metavar="QUERY")],
    docs: Annotated[
        list[str] | None,
        typer.Option("--doc", help="Expected document: its id, URI or external id. Repeatable."),
    ] = None,
    keywords: Annotated[
        list[str] | None,
        typer.Option("--keyword", help="Must be in the texts of the first ten hits. Repeatable."),
    ] = None,
    expect: Annotated[
        list[str] | None,
        typer.Option(
            "--expect", help="Must be in a title or text of the first ten hits. Repeatable."
        ),
    ] = None,
    query_id: Annotated[
        str, typer.Option("--id", help="Name of the query; default: a number.")
    ] = "",
    merge: Annotated[
        bool, typer.Option("--merge", help="Add to the query with the same text, if there is one.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Add a golden query. It must expect something."""
    new = _query(query_id, query, docs, keywords, expect)
    answer = ask(lambda client: client.add_golden(container, new, merge=merge))
    if as_json:
        emit(answer)
        return
    done = "added" if answer.created else "changed"
    answers().print(safe(f"golden query {answer.query.id} is {done}"))


@app.command()
def remove(
    container: Container,
    query_id: Annotated[str, typer.Argument(metavar="ID", help="From `latent golden list`.")],
    as_json: Json = False,
) -> None:
    """Remove a golden query."""
    answer = ask(lambda client: client.remove_golden(container, query_id))
    if as_json:
        emit(answer)
        return
    left = amount(answer.total, "golden query").replace("querys", "queries")
    answers().print(safe(f"golden query {query_id} is removed; {left} left"))


@app.command("import")
def import_queries(
    container: Container,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON, or YAML by its ending.")],
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Replace the golden queries of a container by those of a file.

    If the container has some, --yes confirms that they are replaced.
    """
    new = read_golden(file)
    answer = ask(lambda client: _import(client, container, new, confirmed=yes))
    if as_json:
        emit(answer)
        return
    answers().print(safe(f"{container} has {answer.total} golden queries"))


@app.command()
def export(
    container: Container,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON, or YAML by its ending.")],
    as_json: Json = False,
) -> None:
    """Write the golden queries of a container to a file."""
    found = ask(lambda client: client.golden_list(container))
    if not found.queries:
        raise Invalid(f"container '{container}' has no golden queries")
    queries = [
        GoldenQuery.model_validate(query.model_dump(exclude={"etag"})) for query in found.queries
    ]
    write_golden(file, GoldenSet(queries=queries, thresholds=found.thresholds))
    if as_json:
        emit({"file": str(file), "queries": len(queries)})
        return
    answers().print(safe(f"{len(queries)} golden queries are in {file}"))


async def _import(
    client: AsyncClient, container: str, new: GoldenSet, *, confirmed: bool
) -> GoldenSetAnswer:
    found = await client.golden_list(container)
    if found.queries and not confirmed:
        raise Invalid(
            f"this replaces the {found.total} golden queries of '{container}'; add --yes to confirm"
        )
    return await client.replace_golden(container, new, if_match=found.etag)


def _query(
    query_id: str,
    query: str,
    docs: list[str] | None,
    keywords: list[str] | None,
    expect: list[str] | None,
) -> GoldenQuery:
    if not (docs or keywords or expect):
        raise Invalid("the query expects nothing: give --doc, --keyword or --expect")
    return GoldenQuery(
        id=query_id,
        query=query,
        expect_docs=docs or [],
        expect_keywords=keywords or [],
        expect=expect or [],
    )


def _row(query: GoldenQueryView) -> tuple[object, ...]:
    expected = [*query.expect_docs, *(f'"{s}"' for s in [*query.expect_keywords, *query.expect])]
    return query.id, query.query, ", ".join(expected)
