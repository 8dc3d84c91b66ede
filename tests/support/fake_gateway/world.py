"""What stands behind the fake gateway: containers, documents and jobs in memory.

Jobs end at once unless they are held. A file that begins with ``%BROKEN`` fails to be ingested.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson

from latent_client.transport import Blob
from latent_core.domain.document import DocumentState, DocumentView
from latent_core.domain.errors import (
    IngestFailed,
    NotFound,
)
from latent_core.domain.golden import GoldenSet
from latent_core.domain.ids import document_id
from latent_core.domain.job import JobEvent, JobKind, JobState, JobView
from latent_core.domain.manifest.model import Manifest
from latent_core.wire.container_sizes import StoreSizes
from latent_core.wire.sources import SourceView

FINAL = (JobState.DONE, JobState.FAILED, JobState.CANCELLED)


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class StoredDocument:
    view: DocumentView
    text: str
    mtime_ns: int | None
    given_meta: dict[str, Any] = field(default_factory=dict)


@dataclass
class World:
    """State and what happens to it."""

    url: str = ""
    """Where its gateway is served: what links begin with."""
    hold_jobs: bool = False
    manifests: dict[str, Manifest] = field(default_factory=dict)
    golden: dict[str, GoldenSet] = field(default_factory=dict)
    store_sizes: dict[str, list[StoreSizes]] = field(default_factory=dict)
    documents: dict[UUID, StoredDocument] = field(default_factory=dict)
    jobs: dict[int, JobView] = field(default_factory=dict)
    history: list[JobEvent] = field(default_factory=list)
    uploads: dict[str, Blob] = field(default_factory=dict)
    events_before_cut: int | None = None
    """Events after which a stream breaks off, once."""
    differences: list[dict[str, str]] = field(default_factory=list)
    sources: list[tuple[str, SourceView]] = field(default_factory=list)
    """Sources of containers, in the order of their creation."""
    _numbers: Iterable[int] = field(default_factory=lambda: itertools.count(1))

    def sources_of(self, container_id: str) -> list[SourceView]:
        return [source for owner, source in self.sources if owner == container_id]

    def create(self, manifest: Manifest) -> None:
        self.manifests[manifest.id] = manifest

    def put(
        self,
        container_id: str,
        uri: str,
        data: bytes,
        mtime_ns: int | None = None,
        meta: dict[str, Any] | None = None,
    ) -> JobView:
        """Accept a document, as its upload would."""
        doc_id = document_id(container_id, uri)
        view = DocumentView(
            doc_id=doc_id,
            container_id=container_id,
            source_uri=uri,
            title=uri.rpartition("/")[2],
            mime="text/plain",
            source_type=None,
            state=DocumentState.PENDING,
            generation=None,
            chunks=0,
            bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            modified_at=None,
            first_fetched_at=now(),
            fetched_at=now(),
            updated_at=now(),
            meta=meta or {},
        )
        text = data.decode(errors="replace")
        self.documents[doc_id] = StoredDocument(view, text, mtime_ns, meta or {})
        return self.enqueue(JobKind.INGEST, container_id, doc_id, uri)

    def enqueue(
        self, kind: JobKind, container_id: str, doc_id: UUID | None = None, uri: str | None = None
    ) -> JobView:
        job = JobView(
            job_id=next(iter(self._numbers)),
            kind=kind,
            container_id=container_id,
            doc_id=doc_id,
            source_uri=uri,
            state=JobState.QUEUED,
            progress_done=0,
            progress_total=None,
            progress_note=None,
            attempts=0,
            max_attempts=5,
            cancel_requested=False,
            created_at=now(),
            started_at=None,
            finished_at=None,
        )
        self.jobs[job.job_id] = job
        self.note(job.job_id, "queued")
        if not self.hold_jobs:
            self.finish(job.job_id)
        return self.jobs[job.job_id]

    def finish(self, job_id: int, state: JobState | None = None) -> None:
        """End a job: as its document deserves, or as told."""
        job = self.jobs[job_id]
        stored = self.documents.get(job.doc_id) if job.doc_id else None
        broken = stored is not None and stored.text.startswith("%BROKEN")
        cause = IngestFailed("the file is damaged; save it again").issue() if broken else None
        state = state or (JobState.FAILED if broken else JobState.DONE)
        if stored and state is JobState.DONE and job.kind is JobKind.INGEST:
            live = {
                "state": DocumentState.LIVE,
                "generation": 1,
                "chunks": 1,
                "source_type": "text",
            }
            stored.view = stored.view.model_copy(update=live)
        done = {
            "state": state,
            "cause": cause,
            "attempts": 1,
            "progress_done": 1,
            "progress_total": 1,
            "started_at": now(),
            "finished_at": now(),
        }
        self.jobs[job_id] = job.model_copy(update=done)
        self.note(job_id, state.value)

    def note(self, job_id: int, event: str, **details: Any) -> None:
        number = len(self.history) + 1
        self.history.append(
            JobEvent(id=number, job_id=job_id, at=now(), event=event, details=details)
        )

    def container(self, container_id: str) -> Manifest:
        if container_id not in self.manifests:
            raise NotFound(
                f"container '{container_id}' does not exist, or you may not read it; "
                "/v1/containers/list names those that can",
                container_id=container_id,
            )
        return self.manifests[container_id]

    def contents(self, container_id: str) -> list[StoredDocument]:
        found = [d for d in self.documents.values() if d.view.container_id == container_id]
        return sorted(found, key=lambda d: d.view.doc_id)

    def job(self, job_id: int) -> JobView:
        if job_id not in self.jobs:
            raise NotFound(f"job {job_id} does not exist")
        return self.jobs[job_id]

    def restart(self, job_id: int) -> JobView:
        again = {"state": JobState.QUEUED, "cause": None, "finished_at": None}
        self.jobs[job_id] = self.job(job_id).model_copy(update=again)
        self.note(job_id, "requeued")
        return self.jobs[job_id]

    def page_uri(self, stored: StoredDocument) -> str:
        return f"{self.url}/v1/blobs/{stored.view.sha256}?exp=1&sig=x&type=image/webp"

    def delete_document(self, doc_id: UUID) -> JobView:
        gone = self.documents.pop(doc_id, None)
        if gone is None:
            raise NotFound(f"document {doc_id} does not exist")
        return self.enqueue(JobKind.PURGE, gone.view.container_id, doc_id, gone.view.source_uri)

    async def stream(self, job_id: int, after: int) -> AsyncIterator[bytes]:
        """The history after an event, then how the job stands; ``end`` when it has ended."""
        for event in [e for e in self.history if e.job_id == job_id and e.id > after]:
            if self.events_before_cut == 0:
                self.events_before_cut = None
                raise ConnectionError("cut off, as the test wants it")
            if self.events_before_cut is not None:
                self.events_before_cut -= 1
            event_data = {"event": event.event, "at": event.at, "details": event.details}
            yield self._sse_frame(event.event, {**event_data, "job": self._shown(job_id)}, event.id)
        last = "end" if self.jobs[job_id].state in FINAL else "progress"
        yield self._sse_frame(last, {"job": self._shown(job_id)}, None)

    def _shown(self, job_id: int) -> dict[str, Any]:
        return self.jobs[job_id].model_dump(mode="json")

    def _sse_frame(self, name: str, data: dict[str, Any], event_id: int | None) -> bytes:
        head = f"event: {name}\n" + (f"id: {event_id}\n" if event_id is not None else "")
        return head.encode() + b"data: " + orjson.dumps(data) + b"\n\n"
