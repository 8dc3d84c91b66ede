"""A folder, or a single file, brought into a container: announced, then sent as far as it is new."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, TypeVar

from pydantic import BaseModel

from latent_client.answers import Added, ListedFile, ListingAnswer
from latent_client.client import AsyncClient
from latent_client.files import sha256_of
from latent_client.walk import FoundFile, Walk, walk
from latent_core.domain.errors import IngestFailed, Invalid, RateLimited, TooLarge

LISTING_FILES: Final = 5_000
"""Files announced in one call."""
CONCURRENCY: Final = 4
RATE_ATTEMPTS: Final = 6
LONGEST_RATE_PAUSE: Final = 60.0

T = TypeVar("T")
R = TypeVar("R")


class SkippedFile(BaseModel):
    path: str
    reason: str


class FolderProgress(BaseModel):
    """What ``sync_folder`` is at."""

    stage: Literal["list", "hash", "upload"]
    done: int
    total: int
    path: str | None = None


class FolderReport(BaseModel):
    """What became of a folder."""

    root: str
    files: int
    """Announced: neither ignored nor skipped."""
    ignored: int
    unchanged: int = 0
    added: list[Added] = []
    deleted: list[str] = []
    """Source uris that vanished from the folder."""
    delete_jobs: list[int] = []
    skipped: list[SkippedFile] = []
    """Files that were not taken in, with the reason."""
    kept: str | None = None
    """Why documents that seem to have vanished were not deleted."""

    @property
    def job_ids(self) -> list[int]:
        """Of the documents added."""
        return [added.job_id for added in self.added]


OnFolder = Callable[[FolderProgress], None]


async def sync_folder(
    client: AsyncClient,
    container_id: str,
    folder: Path,
    root_name: str | None = None,
    on_progress: OnFolder | None = None,
    delete_vanished: bool = True,
) -> FolderReport:
    """Make the documents below ``file:///<root_name>/`` those of ``folder``.

    ``root_name`` is the folder's own name by default. A file that cannot be read or is refused is
    reported and the others go on; ``Invalid`` when no file can be read.
    """
    root = root_name or name_of(folder)
    if not root or "/" in root:
        raise Invalid(f"'{root}' cannot name the root of {folder}; name it otherwise (--root NAME)")
    found = await asyncio.to_thread(walk, folder)
    _refuse_empty(folder, found)
    return await _Sync(client, container_id, root, found, on_progress).run(delete_vanished)


def name_of(folder: Path) -> str:
    """The name under which a folder's documents stand; "" for a root of the file system."""
    return Path(os.path.abspath(folder)).name


async def ingest_file(
    client: AsyncClient, container_id: str, file: Path, source_uri: str | None = None
) -> Added:
    """Send one file; it is the document ``source_uri``, by default ``file:///<its name>``."""
    if not await asyncio.to_thread(file.is_file):
        raise Invalid(f"{file} is not a file; name a file or a folder that exists")
    status = await asyncio.to_thread(file.stat)
    return await _send(
        client, container_id, file, source_uri or f"file:///{file.name}", status.st_mtime_ns
    )


class _Sync:
    """One run over one folder."""

    def __init__(
        self,
        client: AsyncClient,
        container_id: str,
        root: str,
        found: Walk,
        on_progress: OnFolder | None,
    ) -> None:
        self._client = client
        self._container_id = container_id
        self._files = {file.path: file for file in found.files}
        self._complete = found.complete
        self._on_progress = on_progress
        self._report = FolderReport(root=root, files=len(found.files), ignored=found.ignored)
        for skipped in found.skipped:
            self._skip(skipped.path, skipped.reason)

    async def run(self, delete_vanished: bool) -> FolderReport:
        if delete_vanished and not self._complete:
            delete_vanished = False
            self._report.kept = "parts of the folder could not be read"
        need = await self._announce(delete_vanished)
        await self._upload(need)
        self._report.skipped.sort(key=lambda skipped: skipped.path)
        return self._report

    async def _announce(self, delete_vanished: bool) -> list[FoundFile]:
        """The files the server needs; those it is unsure of are announced again with their hash."""
        listed = [_listed(file) for file in self._files.values()]
        need, unsure = await self._list(listed, delete_vanished)
        hashed = await self._hash(unsure)
        more, _ = await self._list(hashed, delete_vanished=False)
        wanted = [self._files[path] for path in sorted({*need, *more}) if path in self._files]
        return [file for file in wanted if self._readable(file)]

    async def _list(
        self, listed: Sequence[ListedFile], delete_vanished: bool
    ) -> tuple[list[str], list[str]]:
        """In several calls when they are many; what vanished is then deleted one by one."""
        at_once = len(listed) <= LISTING_FILES
        need: list[str] = []
        unsure: list[str] = []
        for start in range(0, len(listed), LISTING_FILES):
            answer = await self._client.listing(
                self._container_id,
                self._report.root,
                listed[start : start + LISTING_FILES],
                delete_vanished=delete_vanished and at_once,
            )
            need += answer.need
            unsure += answer.hash
            self._note(answer)
            self._tell("list", min(start + LISTING_FILES, len(listed)), len(listed))
        if delete_vanished and not at_once:
            await self._delete_vanished()
        return need, unsure

    async def _hash(self, paths: Sequence[str]) -> list[ListedFile]:
        """Announcements with hashes, of those files that can be read."""
        files = [self._files[path] for path in sorted(set(paths)) if path in self._files]
        readable = [file for file in files if self._readable(file)]

        async def one(file: FoundFile) -> ListedFile | None:
            try:
                sha256 = await sha256_of(file.file)
            except Invalid as exc:
                self._skip(file.path, exc.message)
                return None
            return _listed(file, sha256)

        results = await self._each("hash", readable, one)
        return [listed for listed in results if listed is not None]

    async def _upload(self, files: Sequence[FoundFile]) -> None:
        async def one(file: FoundFile) -> Added | None:
            uri = f"file:///{self._report.root}/{file.path}"
            try:
                return await _send(self._client, self._container_id, file.file, uri, file.mtime_ns)
            except (Invalid, TooLarge, IngestFailed) as exc:
                self._skip(file.path, exc.message)
                return None

        results = await self._each("upload", files, one)
        self._report.added = [added for added in results if added is not None]

    async def _delete_vanished(self) -> None:
        prefix = f"file:///{self._report.root}/"
        gone = [
            document
            async for document in self._client.documents(self._container_id, uri_prefix=prefix)
            if document.parent_id is None
            and document.source_uri.removeprefix(prefix) not in self._files
        ]
        for document in gone:
            queued = await self._client.delete_document(self._container_id, document.doc_id)
            self._report.deleted.append(document.source_uri)
            self._report.delete_jobs.append(queued.job_id)

    async def _each(
        self,
        stage: Literal["hash", "upload"],
        files: Sequence[FoundFile],
        work: Callable[[FoundFile], Awaitable[R]],
    ) -> list[R]:
        """Some at a time, results in order; the first error ends all."""
        done = 0

        async def one(file: FoundFile) -> R:
            nonlocal done
            result = await work(file)
            done += 1
            self._tell(stage, done, len(files), file.path)
            return result

        return await _in_parallel(files, one)

    def _readable(self, file: FoundFile) -> bool:
        if not file.readable:
            self._skip(file.path, "cannot be read: permission denied")
        return file.readable

    def _note(self, answer: ListingAnswer) -> None:
        self._report.unchanged += answer.unchanged
        self._report.deleted += answer.deleted
        self._report.delete_jobs += answer.delete_jobs

    def _skip(self, path: str, reason: str) -> None:
        self._report.skipped.append(SkippedFile(path=path, reason=reason))

    def _tell(
        self,
        stage: Literal["list", "hash", "upload"],
        done: int,
        total: int,
        path: str | None = None,
    ) -> None:
        if self._on_progress is not None:
            self._on_progress(FolderProgress(stage=stage, done=done, total=total, path=path))


async def _send(
    client: AsyncClient, container_id: str, file: Path, source_uri: str, mtime_ns: int
) -> Added:
    upload = await _rate_limited(lambda: client.upload(container_id, file))
    return await _rate_limited(
        lambda: client.add(
            container_id,
            file_ref=upload.file_ref,
            source_uri=source_uri,
            modified_at=datetime.fromtimestamp(mtime_ns // 1_000_000_000, UTC),
            mtime_ns=mtime_ns,
        )
    )


async def _rate_limited(call: Callable[[], Awaitable[T]]) -> T:
    """A call that was refused for its rate was not done: it waits as it is told to."""
    for _ in range(RATE_ATTEMPTS - 1):
        try:
            return await call()
        except RateLimited as exc:
            pause = float(exc.details.get("retry_after", 1.0))
        await asyncio.sleep(min(pause, LONGEST_RATE_PAUSE))
    return await call()


async def _in_parallel(items: Iterable[T], work: Callable[[T], Awaitable[R]]) -> list[R]:
    """At most CONCURRENCY at a time; the first error ends all and is raised."""
    queue = iter(list(enumerate(items)))
    results: dict[int, R] = {}

    async def worker() -> None:
        for index, item in queue:
            results[index] = await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(CONCURRENCY):
                group.create_task(worker())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [results[index] for index in sorted(results)]


def _listed(file: FoundFile, sha256: str | None = None) -> ListedFile:
    return ListedFile(path=file.path, bytes=file.bytes, mtime_ns=file.mtime_ns, sha256=sha256)


def _refuse_empty(folder: Path, found: Walk) -> None:
    if any(file.readable for file in found.files):
        return
    left_out = len(found.skipped) + len(found.files)
    raise Invalid(
        f"{folder} holds no file that can be read as a document "
        f"({left_out} skipped, {found.ignored} ignored by the defaults or .latentignore)",
        skipped=[f"{s.path}: {s.reason}" for s in found.skipped[:20]],
    )
