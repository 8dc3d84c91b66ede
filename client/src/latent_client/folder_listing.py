"""Announces a folder's files to the server in parts and collects which files it needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol
from uuid import UUID

from latent_client.walk import FoundFile
from latent_core.wire.documents import ListedFile, ListingAnswer, RefusedFile

LISTING_FILES: Final = 5_000
"""Files announced in one call."""


@dataclass(frozen=True, slots=True)
class FolderTarget:
    """The container and the root that files are announced for."""

    container_id: str
    root: str
    source_id: UUID | None = None


@dataclass(slots=True)
class ListingVerdict:
    """The server's answers about announced files."""

    need: list[str] = field(default_factory=list)
    unsure: list[str] = field(default_factory=list)
    """Files that the server can decide only by their hash."""
    refused: list[RefusedFile] = field(default_factory=list)
    unchanged: int = 0
    open_jobs: list[int] = field(default_factory=list)
    vanished: int = 0
    """Documents whose files are gone."""
    documents: int = 0
    """Documents below the root, if some of them vanished."""
    parts_with_vanished: list[ListingPart] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    delete_jobs: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ListingPart:
    """Consecutive files by path, and the range of paths that they cover."""

    files: Sequence[ListedFile]
    after: str | None
    through: str | None


class ListingClient(Protocol):
    """The part of ``AsyncClient`` that lists a folder."""

    async def listing(
        self,
        container_id: str,
        root: str,
        files: Sequence[ListedFile],
        *,
        after: str | None = None,
        through: str | None = None,
        delete_vanished: bool = False,
        count_vanished: bool = False,
        source: UUID | None = None,
        allow_deletions: bool = False,
    ) -> ListingAnswer: ...


class FolderLister:
    """Announces the files of one root. Files and calls are sorted by path."""

    def __init__(self, client: ListingClient, target: FolderTarget) -> None:
        self._client = client
        self._target = target

    async def announce(
        self,
        part: ListingPart,
        verdict: ListingVerdict,
        *,
        count: bool = False,
    ) -> None:
        """Announce one part. With ``count``, also count the documents whose files are gone."""
        answer = await self._list(part, count=count)
        verdict.need += answer.need
        verdict.unsure += answer.hash
        verdict.refused += answer.refused
        verdict.unchanged += answer.unchanged
        verdict.open_jobs += answer.open_jobs
        if answer.vanished:
            verdict.vanished += answer.vanished
            verdict.documents = max(verdict.documents, answer.documents)
            verdict.parts_with_vanished.append(part)

    async def delete(self, verdict: ListingVerdict) -> None:
        """Delete the documents whose files are gone: a part is listed again until none is left."""
        for part in verdict.parts_with_vanished:
            while True:
                answer = await self._list(part, delete=True)
                verdict.deleted += answer.deleted
                verdict.delete_jobs += answer.delete_jobs
                if not (answer.partial and answer.deleted):
                    break

    async def _list(
        self, part: ListingPart, *, delete: bool = False, count: bool = False
    ) -> ListingAnswer:
        return await self._client.listing(
            self._target.container_id,
            self._target.root,
            part.files,
            after=part.after,
            through=part.through,
            delete_vanished=delete,
            count_vanished=count,
            source=self._target.source_id,
            allow_deletions=delete,
        )


def parts(listed: Sequence[ListedFile], size: int | None = None) -> Iterator[ListingPart]:
    """Parts that together cover the whole root, in order. ``listed`` is sorted by path, by code point."""
    step = size or LISTING_FILES
    after: str | None = None
    for start in range(0, max(len(listed), 1), step):
        files = listed[start : start + step]
        last = start + step >= len(listed)
        through = None if last else files[-1].path
        yield ListingPart(files, after, through)
        after = through


def listed_file(
    file: FoundFile, digests: Mapping[str, str | None], sha256: str | None = None
) -> ListedFile:
    # Unchecked: the server refuses invalid values, such as a time before 1970, and gives the reason.
    return ListedFile.model_construct(
        path=file.path,
        bytes=file.bytes,
        mtime_ns=file.mtime_ns,
        sha256=sha256,
        meta_sha256=digests.get(file.path),
    )
