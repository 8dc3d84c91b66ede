"""A backup of a whole installation as a folder: every container, and what belongs to no container.

    containers/<id>.latent.tar.zst   the archive of each container, with its manifest, golden queries and folders
    installation.json                states of the containers, tokens with the hashes of their secrets, saved searches
    audit.jsonl                      the audit trail, oldest first
    sources.json                     folders of this computer that the caller syncs into these containers
    backup.json                      every file with its size and hash; written last, so a folder without it is incomplete

Only its owner may read it: hashes of tokens and the contents of all containers are in it.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Final, Protocol, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from latent_client.client import AsyncClient
from latent_client.files import sha256_of
from latent_client.source_registry import SourceRegistry
from latent_client.waiting import OnWait
from latent_core.domain.errors import Conflict, Forbidden, Invalid, LatentError, NotFound
from latent_core.domain.ids import CONTAINER_SLUG
from latent_core.domain.job import JobState
from latent_core.wire.installation import (
    MAX_RECORDS,
    MAX_SAVED_RECORDS,
    AuditRecord,
    InstallationRecords,
    RestoreRecordsBody,
)
from latent_core.wire.transfers import ArchiveAnswer

FORMAT: Final = "latent-installation"
FORMAT_VERSION: Final = 1
INDEX: Final = "backup.json"
RECORDS: Final = "installation.json"
AUDIT: Final = "audit.jsonl"
SOURCES: Final = "sources.json"
"""Older backups have none."""
ARCHIVES: Final = "containers"
SUFFIX: Final = ".latent.tar.zst"
JOB_SECONDS: Final = 24 * 3600.0
LINES: Final = 500
"""Of the audit trail in one request: each may be long."""

T = TypeVar("T")


class OnBackup(Protocol):
    """Called as the work goes on."""

    def container(self, container_id: str, done: int, total: int) -> None:
        """Now this container; ``done`` of ``total`` are finished."""

    def jobs(self) -> OnWait: ...

    def bytes(self, done: int, total: int) -> None: ...


class BackupFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    bytes: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class BackupIndex(BaseModel):
    """``backup.json``."""

    model_config = ConfigDict(extra="forbid")

    format: str
    format_version: int
    created_at: datetime
    containers: list[str]
    """Whose archive it has."""
    missing: list[str]
    """Containers that the owner of the installation may not export."""
    files: list[BackupFile]


@dataclass(frozen=True, slots=True)
class FinishedBackup:
    folder: Path
    containers: list[str]
    missing: list[str]
    bytes: int


@dataclass(slots=True)
class RestoredBackup:
    """What a restore brought back."""

    containers: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Containers that existed here."""
    failed: dict[str, str] = field(default_factory=dict)
    """Container to the cause."""
    tokens: int = 0
    saved_searches: int = 0
    audit: int = 0
    sources: int = 0
    """Folders that this client syncs again without a question."""


async def back_up_all(client: AsyncClient, folder: Path, on: OnBackup) -> FinishedBackup:
    """Write a backup of the whole installation into ``folder``. An older one in it is replaced file by file; its archives
    of unchanged containers are kept as they are."""
    await asyncio.to_thread(_prepare, folder)
    records = await client.installation()
    own = {one.id for one in await client.containers()}
    synced = SourceRegistry(client.data_dir).copy_of([one.id for one in records.containers])
    files, saved, missing = [], [], []
    for done, standing in enumerate(records.containers):
        on.container(standing.id, done, len(records.containers))
        archive = folder / ARCHIVES / f"{standing.id}{SUFFIX}"
        try:
            files.append(await _archived(client, standing.id, archive, folder, on))
        except NotFound:  # deleted meanwhile, or of another owner
            if standing.id in own:
                continue
            missing.append(standing.id)
        else:
            saved.append(standing.id)
    kept = InstallationRecords(
        at=records.at,
        containers=[one for one in records.containers if one.id in saved],
        tokens=records.tokens,
        saved_searches=records.saved_searches,
    )
    text = kept.model_dump_json(exclude={"request_id"})
    files.append(await asyncio.to_thread(_write, folder, RECORDS, [text.encode()]))
    files.append(await _trail(client, folder))
    files.append(await asyncio.to_thread(_write, folder, SOURCES, [synced.encode()]))
    index = BackupIndex(
        format=FORMAT,
        format_version=FORMAT_VERSION,
        created_at=records.at,
        containers=saved,
        missing=missing,
        files=files,
    )
    await asyncio.to_thread(_finish, folder, index)
    return FinishedBackup(folder, saved, missing, sum(one.bytes for one in files))


async def restore_all(
    client: AsyncClient, folder: Path, on: OnBackup, *, skip_existing: bool = False
) -> RestoredBackup:
    """Restore a backup. Every file is verified first, and nothing is changed if one is damaged, or if a container exists
    here and ``skip_existing`` is not set."""
    index = await verified(folder)
    here = {one.id for one in (await client.installation()).containers}
    taken = sorted(here.intersection(index.containers))
    if taken and not skip_existing:
        raise Conflict(
            f"{', '.join(taken)} exist here: restore into an empty installation, delete them, or add --skip-existing "
            "to restore only the others",
            containers=taken,
        )
    restored = RestoredBackup(skipped=taken)
    restored.audit = await _restore_trail(client, folder)
    records = await asyncio.to_thread(_records, folder)
    standing = {one.id: one for one in records.containers}
    waiting = [one for one in index.containers if one not in here]
    for done, container_id in enumerate(waiting):
        on.container(container_id, done, len(waiting))
        cause = await _imported(client, folder / ARCHIVES / f"{container_id}{SUFFIX}", on)
        if cause is not None:
            restored.failed[container_id] = cause
            continue
        restored.containers.append(container_id)
        if container_id in standing:  # now: a restore that is repeated skips the container
            body = RestoreRecordsBody(containers=[standing[container_id]])
            await client.restore_installation(body)
    if waiting:
        on.container("", len(waiting), len(waiting))
    for tokens in _parts(records.tokens, MAX_RECORDS):
        answer = await client.restore_installation(RestoreRecordsBody(tokens=tokens))
        restored.tokens += answer.tokens
    for saved in _parts(records.saved_searches, MAX_SAVED_RECORDS):
        answer = await client.restore_installation(RestoreRecordsBody(saved_searches=saved))
        restored.saved_searches += answer.saved_searches
    if any(one.name == SOURCES for one in index.files):
        copy = await asyncio.to_thread((folder / SOURCES).read_text, encoding="utf-8")
        restored.sources = await _restore_sources(client, copy, index.containers)
    return restored


async def verified(folder: Path) -> BackupIndex:
    """The index of a complete backup; ``Invalid`` names what is missing or damaged."""
    index = await asyncio.to_thread(_index, folder)
    for one in index.files:
        file = folder / one.name
        if not await asyncio.to_thread(file.is_file):
            raise Invalid(f"{file} is missing: the backup is incomplete; make another one")
        if await sha256_of(file) != one.sha256:
            raise Invalid(f"{file} is damaged: its hash differs; use another backup")
    return index


async def _archived(
    client: AsyncClient, container_id: str, archive: Path, folder: Path, on: OnBackup
) -> BackupFile:
    answer = await client.export(container_id)
    if answer.url is not None and answer.archive is not None:
        link = ArchiveAnswer(url=answer.url, archive=answer.archive)
    else:
        jobs = await client.wait([answer.job_id or 0], on.jobs(), timeout_seconds=JOB_SECONDS)
        (job,) = jobs
        if job.state is not JobState.DONE or job.result is None:
            cause = job.cause.message if job.cause is not None else job.state.value
            raise Conflict(
                f"the export of container '{container_id}' (job {job.job_id}) failed: {cause}"
            )
        link = await client.exported(int(job.result["archive_id"]))
    known = await asyncio.to_thread(archive.is_file) and await sha256_of(archive)
    if known != link.archive.sha256:
        await client.download(link, archive, on.bytes)
        await asyncio.to_thread(archive.chmod, 0o600)
    return BackupFile(
        name=archive.relative_to(folder).as_posix(),
        bytes=link.archive.bytes,
        sha256=link.archive.sha256,
    )


async def _imported(client: AsyncClient, archive: Path, on: OnBackup) -> str | None:
    """The cause if it failed."""
    try:
        answer = await client.import_archive(archive)
        (job,) = await client.wait([answer.job_id], on.jobs(), timeout_seconds=JOB_SECONDS)
    except LatentError as error:
        return error.message
    if job.state is JobState.DONE:
        return None
    return job.cause.message if job.cause is not None else f"job {job.job_id}: {job.state.value}"


async def _restore_trail(client: AsyncClient, folder: Path) -> int:
    """Before all else: the trail is in the order of its entries. A line that exists is not added again."""
    restored = 0
    with (folder / AUDIT).open(encoding="utf-8") as lines:
        records = (AuditRecord.model_validate_json(line) for line in lines)
        while some := await asyncio.to_thread(_taken, records, LINES):
            restored += (await client.restore_installation(RestoreRecordsBody(audit=some))).audit
    return restored


async def _trail(client: AsyncClient, folder: Path) -> BackupFile:
    """The audit trail arrives newest first and may be long: its parts are kept on disk, then written in reverse."""
    try:
        with tempfile.TemporaryFile(dir=folder) as kept:
            ends, part = [0], list[bytes]()

            def keep() -> None:
                kept.write(b"".join(reversed(part)))
                ends.append(kept.tell())
                part.clear()

            async for line in client.audit():
                part.append(_line(AuditRecord(**line.model_dump(exclude={"id"}))))
                if len(part) == LINES:
                    await asyncio.to_thread(keep)
            keep()
            spans = reversed(list(itertools.pairwise(ends)))
            pieces = (_piece(kept, start, end) for start, end in spans)
            return await asyncio.to_thread(_write, folder, AUDIT, pieces)
    except OSError as exc:
        raise Invalid(f"{folder} cannot be written: {exc.strerror or exc}") from exc


def _piece(file: IO[bytes], start: int, end: int) -> bytes:
    file.seek(start)
    return file.read(end - start)


async def _restore_sources(client: AsyncClient, copy: str, containers: Sequence[str]) -> int:
    """Only for folders that exist on this computer, whose sources the containers have."""
    known: set[UUID] = set()
    for container_id in containers:
        try:
            known |= {one.source_id for one in await client.sources(container_id)}
        except (Forbidden, NotFound):  # not restored, or of another owner
            continue
    return await asyncio.to_thread(SourceRegistry(client.data_dir).add_missing, copy, known)


def _records(folder: Path) -> InstallationRecords:
    return InstallationRecords.model_validate_json((folder / RECORDS).read_text(encoding="utf-8"))


def _parts(records: Sequence[T], count: int) -> Iterable[list[T]]:
    return (list(records[n : n + count]) for n in range(0, len(records), count))


def _taken(records: Iterable[T], count: int) -> list[T]:
    return list(itertools.islice(records, count))


def _prepare(folder: Path) -> None:
    try:
        (folder / ARCHIVES).mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        (folder / INDEX).unlink(missing_ok=True)  # incomplete until it is written again
    except OSError as exc:
        raise Invalid(f"{folder} cannot be written: {exc.strerror or exc}") from exc


def _line(record: BaseModel) -> bytes:
    return record.model_dump_json().encode() + b"\n"


def _write(folder: Path, name: str, pieces: Iterable[bytes]) -> BackupFile:
    draft, file = folder / f"{name}.part", folder / name
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            out.writelines(pieces)
            out.flush()
            os.fsync(out.fileno())
        size, sha256 = draft.stat().st_size, _digest(draft)
        draft.replace(file)
    except OSError as exc:
        raise Invalid(f"{file} cannot be written: {exc.strerror or exc}") from exc
    finally:
        draft.unlink(missing_ok=True)
    return BackupFile(name=name, bytes=size, sha256=sha256)


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _finish(folder: Path, index: BackupIndex) -> None:
    """Remove archives that this backup does not have, then write the index."""
    names = {one.name for one in index.files}
    for file in (folder / ARCHIVES).glob(f"*{SUFFIX}"):
        if file.relative_to(folder).as_posix() not in names:
            file.unlink(missing_ok=True)
    _write(folder, INDEX, [index.model_dump_json(indent=2).encode() + b"\n"])


def _index(folder: Path) -> BackupIndex:
    file = folder / INDEX
    try:
        data: Any = json.loads(file.read_text(encoding="utf-8"))
        index = BackupIndex.model_validate(data)
    except FileNotFoundError:
        raise Invalid(
            f"{folder} is no complete backup: it has no {INDEX}; give the folder of `latent backup all --to`"
        ) from None
    except (OSError, ValueError, ValidationError) as exc:
        raise Invalid(f"{file} cannot be read: {exc}") from exc
    if index.format != FORMAT or index.format_version > FORMAT_VERSION:
        raise Invalid(
            f"{file} is of format {index.format} {index.format_version}: use the release that wrote it"
        )
    if not all(CONTAINER_SLUG.fullmatch(one) for one in index.containers):
        raise Invalid(f"{file} names a container that cannot exist")
    if not {one.name for one in index.files} >= {
        RECORDS,
        AUDIT,
        *(f"{ARCHIVES}/{c}{SUFFIX}" for c in index.containers),
    }:
        raise Invalid(f"{file} does not list all of its files")
    if any(Path(one.name).is_absolute() or ".." in Path(one.name).parts for one in index.files):
        raise Invalid(f"{file} names a file outside its folder")
    return index
