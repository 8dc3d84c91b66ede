"""``GET /v1/containers/{container_id}/originals``: the originals of selected documents as one ZIP file, streamed."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Annotated, Final
from urllib.parse import unquote
from uuid import UUID

from fastapi import APIRouter, Query, Response
from typing_extensions import Buffer, override

from latent_core.db.documents.originals import OriginalFile
from latent_core.domain.document import DocumentView
from latent_core.domain.errors import LatentError, NotFound, TooLarge
from latent_core.domain.ids import Sha256
from latent_core.wire.documents import MAX_SELECTED
from latent_gateway.api.originals import readable_original
from latent_gateway.api.sse import CountedStream
from latent_gateway.auth import access
from latent_gateway.auth.principal import Principal
from latent_gateway.context import Caller, Gateway, Shared

router = APIRouter(tags=["documents"])

MAX_BYTES: Final = 4 * 1000**3
"""Of the originals of one file."""
MAX_NAME_CHARS: Final = 120
"""Of a part of a path."""
MAX_DEPTH: Final = 16
MEDIA_TYPE: Final = "application/zip"
REPORT: Final = "not-included.txt"
_UNSAFE: Final = re.compile(
    r'[\x00-\x1f\x7f<>:"|?*\\\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]'
)
"""Refused by some system, or not to be seen."""
_DEVICES: Final = re.compile(r"(?i:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)")


@dataclass(frozen=True, slots=True)
class ZipMember:
    """A file of the archive."""

    name: str
    stored: OriginalFile
    modified_at: datetime | None
    bytes: int


@dataclass(frozen=True, slots=True)
class ZipPlan:
    members: Sequence[ZipMember]
    skipped: Sequence[str]
    """One line per document without an original: why."""


@router.get(
    "/v1/containers/{container_id}/originals",
    response_class=Response,
    responses={200: {"content": {MEDIA_TYPE: {}}, "description": "A ZIP file."}},
)
async def download_originals(
    container_id: str,
    shared: Shared,
    caller: Caller,
    doc: Annotated[list[UUID], Query(min_length=1, max_length=MAX_SELECTED)],
) -> Response:
    """The originals of documents as a ZIP file with safe names. Documents without one are listed in a text in it."""
    return await zipped(shared, caller, container_id, doc)


async def zipped(
    shared: Gateway, caller: Principal, container_id: str, doc_ids: Sequence[UUID]
) -> Response:
    """The stream; ``NotFound`` if no document has an original, ``TooLarge`` before anything is sent."""
    plan = await _planned(shared, caller, container_id, doc_ids)
    shared.streams.take(caller)
    headers = {
        "Content-Type": MEDIA_TYPE,
        "Content-Disposition": f'attachment; filename="{safe_name(container_id)}-originals.zip"',
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }
    return CountedStream(_stream(shared, plan), shared.streams, caller, headers)


async def _planned(
    shared: Gateway, caller: Principal, container_id: str, doc_ids: Sequence[UUID]
) -> ZipPlan:
    members: list[ZipMember] = []
    skipped: list[str] = []
    taken: set[str] = {REPORT}
    async with shared.stack.db.reading() as conn:
        container = await access.readable_one(conn, caller, container_id)
        for doc_id in dict.fromkeys(doc_ids):
            try:
                document, stored = await readable_original(conn, caller, doc_id)
            except NotFound as error:
                skipped.append(error.message)
                continue
            if document.container_id != container.id:
                skipped.append(f"document '{doc_id}' is not in container '{container.id}'")
                continue
            name = _free(path_of(document, stored), taken)
            members.append(ZipMember(name, stored, document.modified_at, document.bytes or 0))
    if not members:
        raise NotFound(f"none of these documents has an original: {'; '.join(skipped[:3])}")
    total = sum(member.bytes for member in members)
    if total > MAX_BYTES:
        raise TooLarge(
            f"these originals have {total} bytes together; one ZIP file takes {MAX_BYTES}: select fewer"
        )
    return ZipPlan(members, skipped)


async def _stream(shared: Gateway, plan: ZipPlan) -> AsyncIterator[bytes]:
    """The file in pieces; at most one piece of an original is in memory."""
    sink, skipped = _Sink(), list(plan.skipped)
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for member in plan.members:
            try:
                async for _ in _write(shared, archive, member):
                    yield sink.taken()
            except LatentError as error:
                skipped.append(f"{member.name}: {error.message}")
        if skipped:
            archive.writestr(_info(REPORT, None), "\n".join(skipped) + "\n")
    yield sink.taken()


async def _write(
    shared: Gateway, archive: zipfile.ZipFile, member: ZipMember
) -> AsyncIterator[None]:
    """Write one original; yields after each piece."""
    pieces = shared.stack.blobs.of(member.stored.bucket).stream(Sha256(member.stored.sha256))
    first = await anext(pieces, b"")  # a missing blob has no entry
    with archive.open(_info(member.name, member.modified_at), "w", force_zip64=True) as entry:
        entry.write(first)
        yield
        async for piece in pieces:
            entry.write(piece)
            yield


class _Sink(io.RawIOBase):
    """Collects what is written until it is taken; it cannot be rewound."""

    def __init__(self) -> None:
        self._parts = bytearray()

    @override
    def writable(self) -> bool:
        return True

    @override
    def write(self, data: Buffer) -> int:
        view = memoryview(data)
        self._parts += view
        return view.nbytes

    def taken(self) -> bytes:
        part, self._parts = bytes(self._parts), bytearray()
        return part


def _info(name: str, modified_at: datetime | None) -> zipfile.ZipInfo:
    at = (modified_at or datetime.now(UTC)).astimezone(UTC)
    year = min(max(at.year, 1980), 2107)
    return zipfile.ZipInfo(name, (year, at.month, at.day, at.hour, at.minute, at.second))


def path_of(document: DocumentView, stored: OriginalFile) -> str:
    """A relative path without steps upwards, control characters and names that a system reserves: of a file its path
    below the root, else the name of the original."""
    uri = document.source_uri
    path = unquote(uri.removeprefix("file:///")) if uri.startswith("file:///") else stored.filename
    parts = [safe_name(part) for part in PurePosixPath(path.replace("\\", "/")).parts]
    kept = [part for part in parts if part]
    return "/".join(kept[-MAX_DEPTH:]) or f"{document.doc_id}"


def safe_name(part: str) -> str:
    """One part of a path; empty if nothing of it can be kept."""
    name = _UNSAFE.sub("_", part).strip(" .")
    if len(name) > MAX_NAME_CHARS:
        suffix = PurePosixPath(name).suffix[:16]
        name = name[: MAX_NAME_CHARS - len(suffix)].rstrip(" .") + suffix
    return f"_{name}" if _DEVICES.match(name) else name.strip("/")


def _free(path: str, taken: set[str]) -> str:
    """The path, numbered if it is taken; systems differ in whether case matters."""
    one = PurePosixPath(path)
    name, number = path, 2
    while name.casefold() in taken:
        name = str(one.with_name(f"{one.stem} ({number}){one.suffix}"))
        number += 1
    taken.add(name.casefold())
    return name
