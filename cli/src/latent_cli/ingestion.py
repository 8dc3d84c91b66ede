"""Runs ``latent ingest``: sends each source in turn, then waits for the jobs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from latent_cli.progress import IngestBars
from latent_client import AsyncClient, FolderReport, SyncConsent, ingest_file, sync_folder
from latent_client.walk import SIDECAR
from latent_core.domain.document import DocumentView
from latent_core.domain.errors import Invalid, NotFound
from latent_core.domain.job import JobView
from latent_core.domain.web_address import WebAddress
from latent_core.wire.documents import AddAnswer

FEW = 100
"""Up to this number, documents are fetched one by one; above it, the container is listed."""


@dataclass(frozen=True, slots=True)
class FolderSource:
    folder: Path
    root: str | None = None
    """None: the folder's name."""


@dataclass(frozen=True, slots=True)
class FileSource:
    file: Path
    uri: str


@dataclass(frozen=True, slots=True)
class WebSource:
    address: str


Source = FolderSource | FileSource | WebSource


class IngestReport(BaseModel):
    container_id: str
    folders: list[FolderReport] = []
    files: list[AddAnswer] = []
    waited: bool = False
    jobs: list[JobView] = []
    """Jobs in their final states, if the command waited."""
    source_types: dict[UUID, str] = {}
    """Source types of the visible documents."""

    @property
    def job_ids(self) -> list[int]:
        return [
            *(job_id for folder in self.folders for job_id in folder.job_ids),
            *(added.job_id for added in self.files),
        ]


def plan(paths: Sequence[str], *, uri: str | None, root: str | None) -> list[Source]:
    """The sources that the arguments name. Raises ``Invalid`` if two of them have the same identity."""
    sources = [_source(path, uri, root) for path in _without_sidecars(paths)]
    if uri is not None and not (len(sources) == 1 and isinstance(sources[0], FileSource)):
        raise Invalid("--uri sets the identity of one file; give exactly one file")
    if root is not None and not any(isinstance(source, FolderSource) for source in sources):
        raise Invalid("--root sets the root name of a folder; give a folder")
    for identity, count in Counter(map(_identity, sources)).items():
        if count > 1:
            remedy = "ingest them one by one, with --root or --uri"
            raise Invalid(f"{count} of the sources have the same identity {identity}; {remedy}")
    return sources


class Ingestion:
    """One run of ``latent ingest``."""

    def __init__(
        self,
        container_id: str,
        bars: IngestBars,
        *,
        delete_vanished: bool,
        meta: Mapping[str, Any] | None = None,
        rebuild: bool = False,
        consent: SyncConsent = SyncConsent(),
        password: str | None = None,
    ) -> None:
        self._report = IngestReport(container_id=container_id)
        self._bars = bars
        self._delete_vanished = delete_vanished
        self._meta = dict(meta or {})
        self._rebuild = rebuild
        self._consent = consent
        self._password = password

    async def run(
        self, client: AsyncClient, sources: Sequence[Source], wait_seconds: float | None
    ) -> IngestReport:
        """Send every source. With ``wait_seconds``, wait at most that long for the jobs."""
        for source in sources:
            await self._take(client, source)
        if wait_seconds is not None:
            self._report.waited = True
            self._report.jobs = await client.wait(
                self._report.job_ids, self._bars.show, timeout_seconds=wait_seconds
            )
            self._report.source_types = await self._types(client)
        return self._report

    def remark(self) -> str:
        """What goes on if this run is interrupted now."""
        listed = f"`latent jobs list -c {self._report.container_id}` shows them"
        if self._report.waited:
            return f"its jobs continue; {listed}"
        return f"jobs of files that were sent continue; {listed}; run the same command again for the others"

    async def _take(self, client: AsyncClient, source: Source) -> None:
        container = self._report.container_id
        match source:
            case FolderSource(folder, root):
                report = await sync_folder(
                    client,
                    container,
                    folder,
                    root,
                    self._bars.show_folder,
                    self._delete_vanished,
                    meta=self._meta,
                    rebuild=self._rebuild,
                    consent=self._consent,
                    password=self._password,
                )
                self._report.folders.append(report)
            case FileSource(file, uri):
                added = await ingest_file(
                    client,
                    container,
                    file,
                    uri,
                    meta=self._meta,
                    rebuild=self._rebuild,
                    password=self._password,
                )
                self._report.files.append(added)
            case WebSource(address):
                added = await client.add(
                    container,
                    uri=address,
                    meta=self._meta or None,
                    rebuild=self._rebuild,
                    password=self._password,
                )
                self._report.files.append(added)

    async def _types(self, client: AsyncClient) -> dict[UUID, str]:
        container = self._report.container_id
        ids = {job.doc_id for job in self._report.jobs if job.doc_id is not None}
        if len(ids) <= FEW:
            found = [
                d for doc_id in sorted(ids) for d in await _document(client, container, doc_id)
            ]
        else:
            found = [document async for document in client.documents(container)]
        return {d.doc_id: d.source_type for d in found if d.doc_id in ids and d.source_type}


async def _document(client: AsyncClient, container: str, doc_id: UUID) -> list[DocumentView]:
    """The document in a list; an empty list if it was deleted meanwhile."""
    try:
        return [await client.document(container, doc_id)]
    except NotFound:
        return []


def _without_sidecars(paths: Sequence[str]) -> list[str]:
    """The paths without sidecars of other paths, which a glob such as ``docs/*`` also matches."""
    given = set(paths)
    return [
        path
        for path in paths
        if not path.endswith(SIDECAR) or path.removesuffix(SIDECAR) not in given
    ]


def _source(path: str, uri: str | None, root: str | None) -> Source:
    if path.startswith(("http://", "https://")):
        return WebSource(path)
    local = Path(path)
    if local.is_dir():
        return FolderSource(local, root)
    if not local.exists():
        raise Invalid(f"{path} does not exist; give a file, a folder or an http(s) address")
    return FileSource(local, uri or f"file:///{os.path.basename(os.path.abspath(local))}")


def _identity(source: Source) -> str:
    match source:
        case FolderSource(folder, root):
            return f"file:///{root}/" if root else str(folder.resolve())
        case FileSource(_, uri):
            return uri
        case WebSource(address):
            return str(WebAddress.parse(address))
