"""Repair lost vectors of generated chunks: a job embeds their texts again.

Reading the document again would have them written again too, and only where its manifest still names the model.
"""

from __future__ import annotations

from latent_core.db import containers
from latent_core.db.containers import Container
from latent_core.doctor.context import NotRepairable, RepairContext
from latent_core.domain.findings import StoreDifference
from latent_core.ingest.generated import request_embedding


async def embed(ctx: RepairContext, container: Container, difference: StoreDifference) -> str:
    if difference.doc_id is None:
        raise NotRepairable("Its document is unknown.")
    async with ctx.db.transaction() as conn:
        if await containers.hold(conn, container.id) is None:
            raise NotRepairable("The container no longer exists.")
        job_id = await request_embedding(
            conn, container.id, difference.doc_id, principal=ctx.principal
        )
    return f"Job {job_id} embeds the generated texts of document {difference.doc_id} again."
