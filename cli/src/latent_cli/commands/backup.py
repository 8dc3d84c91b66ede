"""``latent backup``"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from latent_cli.commands.export import show_file
from latent_cli.commands.import_ import As, Merge, NoWait, Which, follow_import, policy_of
from latent_cli.exits import FOUND
from latent_cli.jobs_output import finish_jobs
from latent_cli.options import Json, Wait, Yes, command_app
from latent_cli.output import amount, answers, emit, moment, safe, size, table
from latent_cli.progress import BackupBars, ProgressBars
from latent_cli.session import ask
from latent_client import AsyncClient
from latent_client.whole_backup import back_up_all
from latent_core.domain.errors import Invalid
from latent_core.wire.transfers import ArchiveAnswer, ArchiveView

app = command_app()

BackupId = Annotated[
    int, typer.Argument(metavar="BACKUP", min=1, help="Number from `latent backup list`.")
]


@app.callback()
def backup() -> None:
    """Create, list, fetch, verify, restore and delete backups."""


@app.command()
def now(
    container: Annotated[str, typer.Argument(metavar="ID", help="The container.")],
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Back up a container and keep the newest backup.keep (manifest) backups."""
    queued = ask(lambda client: client.backup(container))
    finish_jobs([queued.job_id], wait=wait, as_json=as_json)


@app.command(name="list")
def list_(
    container: Annotated[
        str | None, typer.Option("--container", "-c", metavar="ID", help="Only this container.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List backups, newest first."""
    found = ask(lambda client: client.backups(container))
    if as_json:
        emit({"backups": found})
        return
    columns = (
        ">BACKUP",
        "CONTAINER",
        "CREATED",
        ">DOCUMENTS",
        ">CHUNKS",
        ">SIZE",
        ">LACKING",
        "VERIFIED",
    )
    answers().print(table(columns, (_row(one) for one in found)))


@app.command(name="all")
def all_(
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Folder to write.")],
    as_json: Json = False,
) -> None:
    """Back up the whole installation to a folder.

    The folder has every container, with manifest, golden queries and synced folders, the hashes of tokens, roles, saved
    searches and the audit log. In a folder with an older backup only changed containers are written again. Exit 4 if a
    container of another owner is missing.
    """
    with BackupBars() as bars:
        made = ask(lambda client: back_up_all(client, to, bars))
    if as_json:
        emit(asdict(made) | {"folder": str(made.folder)})
    else:
        held = amount(len(made.containers), "container")
        answers().print(
            safe(f"{to}: {held}, {size(made.bytes)}; `latent restore all {to}` restores it")
        )
        for missing in made.missing:
            answers().print(safe(f"missing: {missing}: its owner must export it"))
    if made.missing:
        raise typer.Exit(FOUND)


@app.command()
def verify(backup_id: BackupId, wait: Wait = False, as_json: Json = False) -> None:
    """Verify every hash and count of a backup.

    With --wait, exit 4 if it is damaged.
    """
    queued = ask(lambda client: client.verify_backup(backup_id))
    finish_jobs([queued.job_id], wait=wait, as_json=as_json)


@app.command()
def fetch(
    backup_id: BackupId,
    to: Annotated[Path, typer.Option("--to", help="File to write; replaced if it exists.")],
    as_json: Json = False,
) -> None:
    """Download a backup to a file that `latent import` can read."""
    with ProgressBars() as bars:
        link = ask(lambda client: _fetched(client, bars, backup_id, to))
    if as_json:
        emit({"file": str(to), "archive": link.archive})
    else:
        show_file(to, link)


@app.command()
def restore(
    backup_id: BackupId,
    container: As = None,
    merge: Merge = False,
    policy: Which = None,
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Import a stored backup.

    Exit 4 if the job fails or is cancelled.
    """
    chosen = policy_of(policy, merge=merge)
    answer = ask(
        lambda client: client.restore_backup(
            backup_id, container_id=container, merge=merge, policy=chosen
        )
    )
    follow_import(answer, wait=not no_wait, as_json=as_json)


@app.command()
def delete(
    backup_id: BackupId, yes: Yes = False, wait: Wait = False, as_json: Json = False
) -> None:
    """Delete a backup, even if its container no longer exists."""
    if not yes:
        raise Invalid(f"this deletes backup {backup_id} permanently; add --yes to confirm")
    removed = ask(lambda client: client.delete_backup(backup_id))
    finish_jobs([removed.job_id], wait=wait, as_json=as_json)


async def _fetched(
    client: AsyncClient, bars: ProgressBars, backup_id: int, to: Path
) -> ArchiveAnswer:
    link = await client.backup_link(backup_id)
    await client.download(link, to, lambda done, total: bars.set("bytes", done, total))
    return link


def _row(one: ArchiveView) -> tuple[object, ...]:
    return (
        one.id,
        one.container_id,
        moment(one.created_at),
        one.totals.get("documents", 0),
        one.totals.get("chunks", 0),
        size(one.bytes),
        one.totals.get("lacking_blobs", 0),
        moment(one.verified_at),
    )
