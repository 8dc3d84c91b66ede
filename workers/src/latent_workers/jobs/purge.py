"""Purge: remove superseded generations and deleted documents from the stores, and report what was removed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from latent_core.db.connection import Connection
from latent_core.db.doctor import deletion_proofs
from latent_core.db.documents import generated_chunks
from latent_core.db.transfer import archives
from latent_core.domain.errors import Issue, IssueCode
from latent_core.domain.job import JobState
from latent_core.ingest.delete import (
    LEASES_TO_WAIT,
    PurgePayload,
    delete_records,
    enqueue_collection,
)
from latent_core.ingest.purge import PurgeResult, count_points, purge_points, purge_rows
from latent_core.queue.context import JobContext
from latent_core.queue.finish import finish, hold
from latent_core.queue.lease import amend
from latent_core.queue.requeue import requeue_with
from latent_core.runtime.failpoint import failpoint
from latent_workers.deps import Deps
from latent_workers.jobs.compact import enqueue_forgetting

ADDED_UP: Final = ("points", *(field for field in asdict(PurgeResult())))
LONGEST_WAIT_SECONDS: Final = 30.0
MAX_NAMED: Final = 100


async def purge(ctx: JobContext, deps: Deps) -> None:
    """Removed records first, then points, then rows; unreferenced blobs are checked later.

    The purge of a deletion ends after those of its records, so that its report is complete.
    """
    payload = PurgePayload.model_validate(ctx.job.payload)
    stack, container_id, lease = deps.stack, ctx.job.container_id, deps.settings.lease_seconds
    if await _waits_for_writer(ctx, deps, payload):
        return
    await delete_records(
        stack.db,
        container_id,
        payload.records,
        principal=ctx.job.principal,
        lease_seconds=lease,
        of=ctx.job.id,
        checkpoint=ctx.checkpoint,
    )
    if payload.forget and payload.records and await _waits_for_records(ctx, deps, payload):
        return
    resumed = payload.points is not None
    payload = await _counted(ctx, deps, payload)
    failpoint("purge.before_points")
    points = await purge_points(stack.db, stack.vectors, container_id, payload, ctx.checkpoint)
    failpoint("purge.after_points")
    if resumed:
        points = max(points, payload.points or 0)

    async def write(conn: Connection) -> None:
        await hold(conn, ctx.job)
        purged = await purge_rows(conn, payload)
        proof: dict[str, Any] = {
            "points": points,
            **asdict(purged),
            "attempt": ctx.job.attempts,
        }
        if (
            purged.blob_refs or payload.only
        ):  # what never became live has references of its own nowhere
            proof["collection_job"] = await enqueue_collection(
                conn, principal=ctx.job.principal, delay_seconds=LEASES_TO_WAIT * lease
            )
        warnings = await _complete_proof(conn, ctx, payload, proof)
        if payload.forget:
            proof["compaction_job"] = await enqueue_forgetting(
                conn,
                container_id,
                principal=ctx.job.principal,
                delay_seconds=LEASES_TO_WAIT * lease,
            )
        await finish(conn, ctx.job, warnings=warnings, result=proof)
        failpoint("purge.before_commit")

    await ctx.transact(write)
    failpoint("purge.after_commit")


async def _waits_for_writer(ctx: JobContext, deps: Deps, payload: PurgePayload) -> bool:
    """Requeue the job, with all its attempts, while the job that writes its points may still do so."""
    if payload.job is None:
        return False
    wait = LEASES_TO_WAIT * deps.settings.lease_seconds
    async with deps.stack.db.transaction() as conn:
        if not await generated_chunks.may_be_written_by(conn, payload.job, wait):
            return False

    async def write(conn: Connection) -> None:
        await requeue_with(conn, ctx.job, payload.model_dump(mode="json"), delay_seconds=wait)

    await ctx.transact(write)
    return True


async def _waits_for_records(ctx: JobContext, deps: Deps, payload: PurgePayload) -> bool:
    """Requeue the job, with all its attempts, while purges of its records are open."""
    async with deps.stack.db.transaction() as conn:
        found = await deletion_proofs.of_records(conn, ctx.job.container_id, ctx.job.id)
    if not any(one["state"] in (JobState.QUEUED, JobState.RUNNING) for one in found):
        return False
    later = payload.model_copy(update={"looks": payload.looks + 1})
    delay = min(2.0 ** min(payload.looks, 10), LONGEST_WAIT_SECONDS)

    async def write(conn: Connection) -> None:
        await requeue_with(conn, ctx.job, later.model_dump(mode="json"), delay_seconds=delay)

    await ctx.transact(write)
    return True


async def _counted(ctx: JobContext, deps: Deps, payload: PurgePayload) -> PurgePayload:
    """Counts the points of a deletion beforehand, because an attempt after a crash could not."""
    if not payload.forget or payload.points is not None:
        return payload
    stack = deps.stack
    points = await count_points(stack.db, stack.vectors, ctx.job.container_id, payload)
    counted = payload.model_copy(update={"points": points})

    async def write(conn: Connection) -> None:
        await hold(conn, ctx.job)
        await amend(conn, ctx.job, counted.model_dump(mode="json"))

    await ctx.transact(write)
    return counted


async def _complete_proof(
    conn: Connection, ctx: JobContext, payload: PurgePayload, proof: dict[str, Any]
) -> list[Issue]:
    """Adds to the proof of a deletion what its records' purges removed, and the archives that may still contain it."""
    if not payload.forget or payload.of is not None:
        return []
    found = (
        await deletion_proofs.of_records(conn, ctx.job.container_id, ctx.job.id)
        if payload.records
        else []
    )  # a look at all jobs of the container, which a deletion without records can do without
    for name in ADDED_UP:
        proof[name] += sum((one["result"] or {}).get(name, 0) for one in found)
    if found:
        proof["record_jobs"] = [one["id"] for one in found[:MAX_NAMED]]
    doc_ids = [doc_id for doc_id, _ in payload.below]
    proof["archives_kept"] = await archives.containing(conn, ctx.job.container_id, doc_ids)
    failed = [one["id"] for one in found if one["state"] != JobState.DONE]
    warnings = kept_words(proof["archives_kept"])
    if failed:
        message = f"{len(failed)} purges of its records failed: `latent jobs requeue {failed[0]}` runs them again"
        warnings.append(Issue(code=IssueCode.INGEST_FAIL, message=message))
    return warnings


def kept_words(archives_kept: list[str]) -> list[Issue]:
    """The note that a deletion does not reach archives."""
    if not archives_kept:
        return []
    message = f"its contents remain in {', '.join(archives_kept)}: exports are deleted after a day, backups stay"
    return [Issue(code=IssueCode.POLICY, message=message)]
