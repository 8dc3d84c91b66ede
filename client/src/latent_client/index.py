"""An index that is up to date: a folder brought in, and waited for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from latent_client.client import HOUR, AsyncClient
from latent_client.folder import FolderReport, OnFolder, sync_folder
from latent_client.waiting import OnWait
from latent_core.domain.job import JobState, JobView


class IndexReport(BaseModel):
    """What was done to bring an index up to date."""

    folder: FolderReport
    jobs: list[JobView]
    """Of the documents added, in their final states."""

    @property
    def failed(self) -> list[JobView]:
        return [job for job in self.jobs if job.state is not JobState.DONE]

    @property
    def up_to_date(self) -> bool:
        """Whether every file that was taken in is searchable as it stands, and none that vanished."""
        return not self.failed and not self.folder.skipped and self.folder.kept is None


async def ensure_index_up_to_date(
    client: AsyncClient,
    container_id: str,
    folder: Path,
    root_name: str | None = None,
    *,
    meta: Mapping[str, Any] | None = None,
    timeout_seconds: float = HOUR,
    on_folder: OnFolder | None = None,
    on_wait: OnWait | None = None,
) -> IndexReport:
    """``sync_folder``, then wait until its documents are searchable; ``TimedOut`` names open jobs.

    What vanished is invisible when the folder is synced: nothing is waited for there. When nothing has
    changed this costs one call for every 5,000 files.
    """
    report = await sync_folder(client, container_id, folder, root_name, on_folder, meta=meta)
    jobs = await client.wait(report.job_ids, on_wait, timeout_seconds=timeout_seconds)
    return IndexReport(folder=report, jobs=jobs)
