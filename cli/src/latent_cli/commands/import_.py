"""``latent import``"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from latent_cli.exits import FOUND
from latent_cli.jobs_output import WAIT_SECONDS, continuing, interruptible, show_failed
from latent_cli.options import Json, command_app
from latent_cli.output import amount, answers, emit, safe
from latent_cli.progress import JobsBar
from latent_cli.session import ask
from latent_core.domain.errors import Invalid
from latent_core.domain.job import JobState
from latent_core.wire.transfers import ImportAnswer

app = command_app()


class ImportPolicyChoice(StrEnum):
    SKIP = "skip"
    REPLACE = "replace"
    NEWEST = "newest"


As = Annotated[
    str | None,
    typer.Option("--as", metavar="ID", help="New container id; default: the id in the file."),
]
Merge = Annotated[bool, typer.Option("--merge", help="Merge into an existing container.")]
Which = Annotated[
    ImportPolicyChoice | None,
    typer.Option("--policy", help="For existing documents with --merge; default skip."),
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait for the job.")]


@app.command(name="import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File from `latent export`.")],
    container: As = None,
    merge: Merge = False,
    policy: Which = None,
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Import a container from a file.

    The whole file is verified first. A new container becomes visible when its import is complete. Vectors in
    the file are reused if the embedder is the same. Exit 4 if the job fails or is cancelled.
    """
    chosen = policy_of(policy, merge=merge)
    if not file.is_file():
        raise Invalid(f"{file} is not a file; give a file from `latent export`")
    with JobsBar() as bar:
        answer = ask(
            lambda client: client.import_archive(
                file,
                container_id=container,
                merge=merge,
                policy=chosen,
                on_progress=lambda done, total: bar.set("bytes sent", done, total, file.name),
            )
        )
    follow_import(answer, wait=not no_wait, as_json=as_json)


def policy_of(policy: ImportPolicyChoice | None, *, merge: bool) -> str | None:
    """The policy for the client. Raises ``Invalid`` without ``merge``."""
    if policy is not None and not merge:
        raise Invalid("--policy applies only with --merge; add --merge or remove --policy")
    return None if policy is None else policy.value


def follow_import(answer: ImportAnswer, *, wait: bool, as_json: bool) -> None:
    """Print the queued job of an import, or wait for it."""
    if not wait:
        if as_json:
            emit(
                {
                    "job_id": str(answer.job_id),
                    "container_id": answer.container_id,
                    "status": "queued",
                }
            )
        else:
            answers().print(
                f"queued: job {answer.job_id}; `latent jobs watch {answer.job_id}` follows it"
            )
        return
    with interruptible(lambda: continuing([answer.job_id])), JobsBar() as bar:
        jobs = ask(lambda c: c.wait([answer.job_id], bar.show, timeout_seconds=WAIT_SECONDS))
    (job,) = jobs
    if as_json:
        emit({"job": job})
    else:
        show_failed(answers(), jobs)
        if job.state is JobState.DONE:
            job_result = job.result or {}
            overtaken = job_result.get("overtaken", 0)
            answers().print(
                safe(
                    f"{answer.container_id}: {amount(job_result.get('documents', 0), 'document')}, "
                    f"{amount(job_result.get('chunks', 0), 'chunk')}, {job_result.get('embedded', 0)} embedded again, "
                    f"{job_result.get('skipped', 0)} skipped"
                    + (f", {overtaken} replaced by newer changes" if overtaken else "")
                )
            )
    if job.state is not JobState.DONE:
        raise typer.Exit(FOUND)  # also if cancelled: the container does not exist
