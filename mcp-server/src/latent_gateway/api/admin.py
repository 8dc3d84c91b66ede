"""``POST /v1/admin/doctor``: compare the stores, and repair differences on request."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Response

from latent_core.db import audit, containers
from latent_core.db.containers import Space
from latent_core.db.doctor import checks
from latent_core.doctor.examine import Doctor
from latent_core.doctor.repair import Repairer
from latent_core.domain.errors import LatentError, TimedOut
from latent_core.domain.findings import ContainerReport, DoctorReport, StoreDifference
from latent_core.domain.manifest.model import is_local
from latent_core.domain.token import Scope
from latent_core.ingest.delete import LEASES_TO_COLLECT
from latent_core.models.embedding.port import TroubleAware
from latent_core.models.embedding.resolve import EmbedderRegistry
from latent_core.models.onnx import device
from latent_core.models.providers.facts import state_of
from latent_core.stack import Stack
from latent_core.wire.doctor import DoctorAnswer, DoctorBody
from latent_gateway.auth import access
from latent_gateway.context import Caller, Gateway, RequestId, Shared
from latent_gateway.envelope import json_answer
from latent_gateway.manifest_files import (
    FileDifference,
    compare,
    invalid_file,
    missing_container,
    scan_folder,
)

router = APIRouter(tags=["admin"])

LONGEST_SECONDS: Final = 3600.0
"""With ``deep``, all bytes are read."""


@router.post("/v1/admin/doctor", response_model=DoctorAnswer)
async def doctor(
    body: DoctorBody, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Compare rows, points, postings and blobs, and report every difference. Changes nothing without ``repair``.

    Only one run at a time: a second request gets a ``Conflict`` until the first has ended.
    """
    access.require(caller, Scope.ADMIN)
    container_ids = None
    async with shared.stack.db.transaction() as conn:
        if body.container_id is not None:
            container_ids = [(await access.owned(conn, caller, body.container_id)).id]
        elif not caller.is_owner:
            container_ids = [c.id for c in await access.all_owned(conn, caller)]
    try:
        # The timeout is the outer block, so that a cancelled run releases the lock.
        async with asyncio.timeout(LONGEST_SECONDS), checks.alone(shared.stack.db):
            report = await _examined(shared, caller.name, body, container_ids, request_id)
    except TimeoutError as exc:
        raise TimedOut(
            f"the stores were not compared within {LONGEST_SECONDS:g} s: name one container, or run it without deep"
        ) from exc
    return json_answer(DoctorAnswer(report=report.model_dump(mode="json")), request_id)


async def _examined(
    shared: Gateway,
    principal: str,
    body: DoctorBody,
    container_ids: list[str] | None,
    request_id: str,
) -> DoctorReport:
    stack = shared.stack
    lease = shared.settings.lease_seconds
    alone = shared.settings.qdrant_url is None
    examined = Doctor(
        stack.db,
        stack.vectors,
        stack.blobs,
        grace_seconds=LEASES_TO_COLLECT * lease,
        deep=body.deep,
        alone=alone,
    )
    report = await examined.examine(container_ids)
    await _compare_files(shared, report, whole=container_ids is None)
    await _note_embedders(shared, report)
    report.notes += await _provider_notes(stack, report)
    if container_ids is None:
        _note_runtime(report)
        processes = shared.settings.gateway_processes
        report.checks["gateway_processes"] = f"{shared.serving_processes} of {processes} serve"
    if body.repair and not report.clean:
        repairer = Repairer(
            stack.db,
            stack.vectors,
            stack.blobs,
            principal=principal,
            lease_seconds=lease,
            alone=alone,
        )
        report.repairs = await repairer.repair(report)
        await _note_repairs(shared, principal, report, request_id)
        stack.wake()
    return report


async def _note_embedders(shared: Gateway, report: DoctorReport) -> None:
    """Note containers whose embedder cannot be used here, with what mends it."""
    async with shared.stack.db.transaction() as conn:
        known = await containers.find(conn, list(report.containers))
    for container_id, container in known.items():
        message = await asyncio.to_thread(_of_embedder, shared.stack.embedders, container.space)
        if message is not None:
            note = StoreDifference(kind="embedder", object=container_id, message=message)
            report.containers[container_id].notes.append(note)


def _of_embedder(embedders: EmbedderRegistry, space: Space) -> str | None:
    missing = embedders.lacking(space.embedder, space.version)
    if missing is not None:
        return f"{missing}. Until then searches use keywords only"
    if not is_local(space.embedder):
        return None
    try:
        embedder = embedders.for_space(space)
    except LatentError as error:
        return error.message
    return embedder.trouble if isinstance(embedder, TroubleAware) else None


def _note_runtime(report: DoctorReport) -> None:
    """What local models run on, and whether its packages are whole."""
    report.checks["local_models_run_on"] = device.described()
    if (problem := device.clash()) is not None:
        report.notes.append(StoreDifference(kind="runtime", object="onnxruntime", message=problem))


async def _provider_notes(stack: Stack, report: DoctorReport) -> list[StoreDifference]:
    """Providers that containers of the report or the file of providers name, and that cannot be used."""
    async with stack.db.transaction() as conn:
        examined = await containers.find(conn, list(report.containers))
    names = [c.space.embedder for c in examined.values()]
    names += [c.manifest.retrieval.rerank.provider for c in examined.values()]
    providers = stack.embedders.providers
    found = {used.provider.name: used.provider for name in names if (used := providers.find(name))}
    found |= {one.name: one for one in providers if one.from_file}
    states = await asyncio.gather(*(state_of(provider) for provider in found.values()))
    return [
        StoreDifference(kind="provider", object=name, message=state)
        for name, state in zip(found, states, strict=True)
        if state is not None
    ]


async def _compare_files(shared: Gateway, report: DoctorReport, *, whole: bool) -> None:
    """Compare the manifest folder with the database, which owns manifests: a person must decide. A file that cannot be
    applied is a difference, one that apply would accept a note."""
    stack = shared.stack
    found = await asyncio.to_thread(scan_folder, shared.settings.manifests)
    ids = [m.id for _, m in found.manifests]
    async with stack.db.transaction() as conn:
        known = await containers.find(conn, ids)
        switched = await audit.last_switched(conn, ids)
        deleted = await audit.deleted(conn, [i for i in ids if i not in known])
    for path, manifest in found.manifests:
        container = known.get(manifest.id)
        if container is None:
            if whole and manifest.id not in deleted:
                missing = await asyncio.to_thread(missing_container, stack, path, manifest)
                report.stores.append(missing)
        elif manifest.id in report.containers:
            switched_at = switched.get(manifest.id)
            difference = compare(path, manifest, container, stack.blobs, switched_at)
            if difference is not None:
                _report_file(report.containers[manifest.id], path, difference)
    if whole:  # the names of other files may belong to any container
        report.stores += [invalid_file(name, cause) for name, cause in found.invalid.items()]
    report.clean = not report.stores and not any(
        one.differences for one in report.containers.values()
    )


def _report_file(found: ContainerReport, path: Path, difference: FileDifference) -> None:
    cause = f" and cannot be applied: {difference.refused}" if difference.refused else ""
    message = f"differs from the stored manifest in {', '.join(difference.keys)}{cause}"
    reported = StoreDifference(
        kind="manifest",
        object=path.name,
        message=f"{message.rstrip('.')}. Remedy: {difference.remedy}",
    )
    (found.differences if difference.refused else found.notes).append(reported)


async def _note_repairs(
    shared: Gateway, principal: str, report: DoctorReport, request_id: str
) -> None:
    done = sum(one.done for one in report.repairs)
    async with shared.stack.db.transaction() as conn:
        await audit.note(
            conn,
            principal=principal,
            action="doctor.repair",
            container_id=None,
            object_=f"{done} of {len(report.repairs)}",
            request_id=request_id,
        )
