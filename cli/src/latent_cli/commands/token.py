"""``latent token``"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import typer

from latent_cli.options import Json, command_app
from latent_cli.output import amount, answers, emit, moment, notes, safe, table
from latent_cli.session import ask
from latent_client import AsyncClient
from latent_core.domain.errors import Invalid
from latent_core.domain.token import ChangeKind, Scope, TokenCalls, TokenChange, TokenView

app = command_app()

SPAN: Final = re.compile(r"([0-9]{1,6})([hdwy])")
HOURS: Final = {"h": 1, "d": 24, "w": 7 * 24, "y": 365 * 24}
MAX_YEARS: Final = 100
COLUMNS: Final = (
    ">ID",
    "PRINCIPAL",
    "NAME",
    "SCOPES",
    "CONTAINERS",
    "STATE",
    "EXPIRES",
    "LAST USED",
)
TokenNumber = Annotated[
    int, typer.Argument(metavar="ID", help="Number from `latent token list`.", min=1)
]


@app.callback()
def token() -> None:
    """Create, list and revoke tokens, and see what they did."""


@app.command()
def create(
    principal: Annotated[
        str, typer.Argument(metavar="PRINCIPAL", help="Name as in manifests, such as agent:claude.")
    ],
    name: Annotated[
        str, typer.Option("--name", help="Purpose; two valid tokens may share a name.")
    ] = "default",
    scopes: Annotated[
        list[Scope] | None,
        typer.Option(
            "--scope", help="read, write, delete, create or admin; default read; repeatable."
        ),
    ] = None,
    containers: Annotated[
        list[str] | None,
        typer.Option(
            "--container",
            "-c",
            metavar="ID",
            help="Only this container, which needs no role then; default: what the principal's roles allow; repeatable.",
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option("--expires", help="Lifetime, such as 12h, 30d, 6w or 1y; default unlimited."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Create a token and print it once. The token itself is not stored."""
    until = None if expires is None else expiry(expires, datetime.now(UTC))
    created = ask(
        lambda client: client.create_token(
            principal,
            name=name,
            scopes=scopes or [Scope.READ],
            containers=containers or None,
            expires_at=until,
        )
    )
    if as_json:
        emit(created)
        return
    answers().print(created.secret)
    new_token = created.token
    for_what = ", ".join(new_token.scopes)
    where = (
        "all containers of its roles"
        if new_token.containers is None
        else ", ".join(new_token.containers)
    )
    validity = f"until {moment(new_token.expires_at)}" if new_token.expires_at else "no expiry"
    notes().print(
        safe(
            f"token {new_token.id} of {new_token.principal} ('{new_token.name}'): {for_what}; {where}; "
            f"{validity}. It cannot be shown again."
        )
    )


@app.command("list")
def list_tokens(
    principal: Annotated[
        str | None, typer.Option("--principal", help="Only this principal.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Include expired and revoked tokens.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List principal, scopes, expiry and last use of each token, newest first. The tokens themselves are not stored."""
    found = ask(lambda client: _all(client, principal, everything))
    if as_json:
        emit({"tokens": found})
        return
    answers().print(table(COLUMNS, (_row(one) for one in found)))


@app.command()
def show(
    token_id: TokenNumber,
    days: Annotated[
        int, typer.Option("--days", min=1, max=90, help="Count the calls of so many days.")
    ] = 30,
    as_json: Json = False,
) -> None:
    """Show a token, and how often it called each tool and route."""

    async def work(client: AsyncClient) -> tuple[TokenView, list[TokenCalls]]:
        return await client.token(token_id), await client.token_calls(token_id, days=days)

    found, calls = ask(work)
    if as_json:
        emit({"token": found, "calls": calls})
        return
    answers().print(table(COLUMNS, [_row(found)]))
    totals: dict[tuple[str, str], list[int]] = {}
    for one in calls:
        total = totals.setdefault((one.api.value, one.operation), [0, 0])
        total[0] += one.calls
        total[1] += one.failures
    if not totals:
        notes().print(f"No calls in the last {amount(days, 'day')}.")
        return
    often = sorted(totals.items(), key=lambda item: (-item[1][0], item[0]))
    rows = ((*operation, *numbers) for operation, numbers in often)
    answers().print()
    answers().print(table(("API", "OPERATION", ">CALLS", ">FAILED"), rows))


@app.command()
def changes(
    token_id: TokenNumber,
    kind: Annotated[
        ChangeKind, typer.Option("--kind", help="written, superseded or deleted.")
    ] = ChangeKind.WRITTEN,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many.")] = 50,
    as_json: Json = False,
) -> None:
    """List documents that a token wrote, superseded or deleted, newest first, as they are now.

    `latent documents restore` restores a deleted one.
    """

    async def work(client: AsyncClient) -> list[TokenChange]:
        found: list[TokenChange] = []
        async for change in client.token_changes(token_id, kind):
            found.append(change)
            if len(found) == limit:
                break
        return found

    found = ask(work)
    if as_json:
        emit({"changes": found})
        return
    columns = ("WHEN", "CONTAINER", "DOCUMENT", "NOW", "RESTORABLE UNTIL", "ID")
    answers().print(table(columns, (_change_row(one) for one in found)))


@app.command()
def revoke(
    token_id: TokenNumber,
    as_json: Json = False,
) -> None:
    """Revoke a token. Its next request is refused."""
    revoked = ask(lambda client: client.revoke_token(token_id))
    if as_json:
        emit(revoked)
        return
    answers().print(
        safe(f"token {revoked.id} of {revoked.principal} ('{revoked.name}') is revoked")
    )


def expiry(span: str, now: datetime) -> datetime:
    """The moment after ``span`` (``12h``, ``30d``, ``6w``, ``1y``)."""
    parts = SPAN.fullmatch(span.strip().lower())
    hours = int(parts[1]) * HOURS[parts[2]] if parts else 0
    if not 0 < hours <= MAX_YEARS * HOURS["y"]:
        raise Invalid(
            f"--expires '{span}' is not a valid lifetime; use a value such as 12h, 30d, 6w or 1y"
        )
    return now + timedelta(hours=hours)


async def _all(client: AsyncClient, principal: str | None, everything: bool) -> list[TokenView]:
    return [one async for one in client.tokens(principal=principal, all=everything)]


def _row(token: TokenView) -> tuple[object, ...]:
    return (
        token.id,
        token.principal,
        token.name,
        ", ".join(token.scopes),
        "all" if token.containers is None else ", ".join(token.containers),
        token.state.value,
        moment(token.expires_at),
        moment(token.last_used_at),
    )


def _change_row(change: TokenChange) -> tuple[object, ...]:
    return (
        moment(change.at),
        change.container_id,
        change.title or change.source_uri,
        change.state.value,
        moment(change.restorable_until),
        change.doc_id,
    )
