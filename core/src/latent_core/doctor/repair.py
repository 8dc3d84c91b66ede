"""Repair differences: re-ingest the document, rebuild derived data of the container, or drop an orphan.

Runs on a live system, in small steps. Every repair is idempotent: it reads the data again and changes nothing that is
already correct. Jobs do the work where possible.
"""

from __future__ import annotations

import logging
from typing import Final

from latent_core.blobs.port import BlobStores
from latent_core.bm25.compaction import rebuild as rebuild_keywords
from latent_core.db import containers
from latent_core.db.connection import Database
from latent_core.db.containers import Container
from latent_core.db.doctor import repairs
from latent_core.doctor import container_stamps
from latent_core.doctor.context import DoctorThrottle, NotRepairable, RepairContext
from latent_core.doctor.drop import drop
from latent_core.doctor.embed import embed
from latent_core.doctor.points import ORPHAN
from latent_core.doctor.reingest import reingest
from latent_core.domain.errors import LatentError
from latent_core.domain.findings import DoctorReport, Remedy, RepairResult, StoreDifference
from latent_core.vectors.port import VectorIndex

logger = logging.getLogger(__name__)

REPAIRED_BEFORE: Final = "The repair of another difference covers it."


class Repairer:
    """Repairs the differences of one report."""

    def __init__(
        self,
        db: Database,
        index: VectorIndex,
        blobs: BlobStores,
        *,
        principal: str,
        lease_seconds: float,
        alone: bool = False,
    ) -> None:
        """``alone`` as for ``Doctor``."""
        self._ctx = RepairContext(db, index, blobs, principal, lease_seconds, alone)
        self._pace = DoctorThrottle()
        self._repaired: set[tuple[object, ...]] = set()

    async def repair(self, report: DoctorReport) -> list[RepairResult]:
        """The outcome of each difference. One that cannot be repaired does not stop the others."""
        outcomes: list[RepairResult] = []
        for container_id, of_container in report.containers.items():
            async with self._ctx.db.transaction() as conn:
                container = await containers.get(conn, container_id)
            if container is not None:
                outcomes += [await self._one(container, d) for d in of_container.differences]
        return outcomes + [await self._one(None, d) for d in report.stores]

    async def _one(self, container: Container | None, difference: StoreDifference) -> RepairResult:
        await self._pace.rest()
        done, message = True, REPAIRED_BEFORE
        try:
            if difference.repair is Remedy.NONE:
                done, message = False, "It cannot be repaired automatically."
            elif self._first(container, difference):
                message = await self._repaired_by(container, difference)
        except NotRepairable as exc:
            done, message = False, str(exc)
        except LatentError as exc:
            logger.warning("repair_failed", extra={"object": difference.object, "cause": str(exc)})
            done, message = False, exc.message
        return RepairResult(
            kind=difference.kind,
            object=difference.object,
            repair=difference.repair,
            done=done,
            message=message,
        )

    def _first(self, container: Container | None, difference: StoreDifference) -> bool:
        """Whether no other difference of the same thing was repaired before."""
        key = (difference.repair, *_subject(container, difference))
        first = key not in self._repaired
        self._repaired.add(key)
        return first

    async def _repaired_by(self, container: Container | None, difference: StoreDifference) -> str:
        if difference.repair is Remedy.DROP:
            return await drop(self._ctx, container, difference)
        if container is None:
            raise NotRepairable("It belongs to no container.")
        if difference.repair is Remedy.REINGEST:
            return await reingest(self._ctx, container, difference)
        if difference.repair is Remedy.EMBED:
            return await embed(self._ctx, container, difference)
        return await self._rebuild(container, difference)

    async def _rebuild(self, container: Container, difference: StoreDifference) -> str:
        """Rebuild the keyword index only if it is wrong, since the rebuild locks the container."""
        db = self._ctx.db
        if difference.kind == "keywords":
            return f"{await rebuild_keywords(db, container.id)} chunks are indexed again."
        async with db.transaction() as conn:
            await repairs.mark_live(conn, container.id)
        await container_stamps.mend(db, self._ctx.index, container)
        return "The live space, its dimensions, the etag and the languages are derived again."


def _subject(container: Container | None, difference: StoreDifference) -> tuple[object, ...]:
    """What one repair covers: a container's index or rows, a blob of a document, a generation, or a document."""
    if difference.repair is Remedy.REBUILD:
        return container.id if container else None, difference.kind == "keywords"
    if difference.kind in ("blob", ORPHAN) or difference.doc_id is None:
        return difference.doc_id, difference.kind, difference.object
    if difference.repair is Remedy.DROP:
        return difference.doc_id, difference.generation
    return difference.doc_id, difference.repair is Remedy.EMBED
