"""``latent audit``"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated

import typer

from latent_cli.options import Json, command_app
from latent_cli.output import answers, emit, moment, table
from latent_cli.session import ask
from latent_core.wire.access import AuditLine

app = command_app()


@app.command()
def audit(
    container: Annotated[
        str | None, typer.Option("--container", "-c", metavar="ID", help="Only this container.")
    ] = None,
    principal: Annotated[
        str | None, typer.Option("--principal", help="Only this principal.")
    ] = None,
    action: Annotated[
        str | None,
        typer.Option(
            "--action", help="Only actions with this prefix, such as document. or token.create."
        ),
    ] = None,
    since: Annotated[
        datetime | None, typer.Option("--since", help="Not before this time (UTC).")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option("--until", help="Before this time (UTC).")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of lines.")] = 50,
    as_json: Json = False,
) -> None:
    """Print who changed what, newest first."""
    found = ask(
        lambda client: _some(
            client.audit(
                container_id=container,
                principal=principal,
                action=action,
                since=since,
                until=until,
            ),
            limit,
        )
    )
    if as_json:
        emit({"audit": found})
        return
    columns = ("AT", "PRINCIPAL", "ACTION", "CONTAINER", "OBJECT", "REQUEST")
    answers().print(table(columns, (_row(line) for line in found)))


async def _some(lines: AsyncIterator[AuditLine], limit: int) -> list[AuditLine]:
    found: list[AuditLine] = []
    async for line in lines:
        found.append(line)
        if len(found) == limit:
            break
    return found


def _row(line: AuditLine) -> tuple[object, ...]:
    return (
        moment(line.at),
        line.principal,
        line.action,
        line.container_id,
        line.object,
        line.request_id,
    )
