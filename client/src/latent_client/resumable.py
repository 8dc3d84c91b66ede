"""Large files in parts: after a lost connection or a restart of the gateway, the upload goes on where it was."""

from __future__ import annotations

import asyncio
import base64
import mimetypes
from contextlib import aclosing
from pathlib import Path
from typing import Final

from latent_client.files import read_part, unreadable
from latent_client.retry import Retries
from latent_client.transport import ClientCalls, part
from latent_core.domain.errors import Conflict, Invalid, TimedOut, Unavailable
from latent_core.wire.documents import ResumableUploadAnswer, ResumableUploadView, UploadView

PART_BYTES: Final = 8 * 1024 * 1024
"""A file over this size is sent in parts of it."""
BYTES_PER_SECOND: Final = 20 * 1024 * 1024
"""At which a gateway at least joins the parts, after the last one."""
RETRY_SECONDS: Final = 60.0
OFFSET_STREAM: Final = "application/offset+octet-stream"
TUS: Final = {"Tus-Resumable": "1.0.0"}


class ResumableUploadCalls(ClientCalls):
    """Calls of ``AsyncClient`` that send a file in parts. ``upload`` uses them for large files."""

    async def create_resumable_upload(
        self,
        container_id: str,
        filename: str,
        length: int,
        *,
        mime: str | None = None,
        sha256: str | None = None,
    ) -> ResumableUploadView:
        """Begin an upload of ``length`` bytes. With ``sha256``, the gateway compares the complete file with it."""
        named = {"filename": filename, "filetype": mime, "sha256": sha256}
        given = [f"{key} {_encoded(value)}" for key, value in named.items() if value]
        headers = {**TUS, "Upload-Length": str(length), "Upload-Metadata": ",".join(given)}
        answer = await self._transport.ask(
            ResumableUploadAnswer,
            "POST",
            f"/v1/containers/{part(container_id)}/resumable-uploads",
            headers=headers,
            repeatable=True,  # one that is not continued is removed
        )
        return answer.resumable_upload

    async def resumable_upload(self, container_id: str, file_ref: str) -> ResumableUploadView:
        """How far an upload is. Raises ``NotFound`` if it has expired."""
        path = f"/v1/containers/{part(container_id)}/resumable-uploads/{part(file_ref)}"
        answer = await self._transport.ask(ResumableUploadAnswer, "GET", path)
        return answer.resumable_upload

    async def append_to_upload(
        self, container_id: str, file_ref: str, file: Path, *, start: int, length: int
    ) -> int:
        """Send ``length`` bytes of ``file`` from ``start`` on; returns how many bytes the gateway has. Not sent again by
        itself: ``resumable_upload`` says where to continue."""
        headers = {
            **TUS,
            "Upload-Offset": str(start),
            "Content-Type": OFFSET_STREAM,
            "Content-Length": str(length),
        }

        async with aclosing(read_part(file, start, length)) as blocks:
            response = await self._transport.call(
                "PATCH",
                f"/v1/containers/{part(container_id)}/resumable-uploads/{part(file_ref)}",
                headers=headers,
                body=lambda: blocks,
                repeatable=False,
                read_seconds=RETRY_SECONDS + (start + length) / BYTES_PER_SECOND,
            )
        return int(response.headers["upload-offset"])

    async def delete_resumable_upload(self, container_id: str, file_ref: str) -> None:
        """Give up an unfinished upload."""
        path = f"/v1/containers/{part(container_id)}/resumable-uploads/{part(file_ref)}"
        await self._transport.call("DELETE", path, headers=TUS)

    async def upload_in_parts(
        self, container_id: str, file: Path, *, filename: str | None = None, mime: str | None = None
    ) -> UploadView:
        """Send a file part by part. After a failure, it goes on with what the gateway has; each part that arrives
        resets the retries."""
        length, name = await size_of(file), filename or file.name
        type_ = mime or mimetypes.guess_type(name)[0]
        begun = await self.create_resumable_upload(container_id, name, length, mime=type_)
        received, retries = 0, Retries(RETRY_SECONDS, answered=True)
        while received < length:
            size = min(PART_BYTES, length - received)
            try:
                received = await self.append_to_upload(
                    container_id, begun.file_ref, file, start=received, length=size
                )
                retries = Retries(RETRY_SECONDS, answered=True)
            except (Unavailable, TimedOut, Conflict) as error:
                notice = retries.after(_temporary(error))
                if notice is None:
                    raise
                await asyncio.sleep(notice.seconds)
                known = await self.resumable_upload(container_id, begun.file_ref)
                received = known.received
        state = await self.resumable_upload(container_id, begun.file_ref)
        if state.upload is None:
            raise Unavailable(f"the gateway has not completed the upload of {file}; send it again")
        return state.upload


async def size_of(file: Path) -> int:
    """In bytes. Raises ``Invalid`` if the file cannot be read."""
    try:
        return (await asyncio.to_thread(file.stat)).st_size
    except OSError as exc:
        raise unreadable(file, exc) from exc


def _temporary(error: Unavailable | TimedOut | Conflict) -> Unavailable:
    """As the retries count it. A ``Conflict`` means that the gateway has other bytes than were confirmed."""
    if isinstance(error, Conflict) and "received" not in error.details:
        raise error
    return error if isinstance(error, Unavailable) else Unavailable(error.message, **error.details)


def _encoded(value: str) -> str:
    try:
        return base64.b64encode(value.encode()).decode()
    except UnicodeEncodeError as exc:
        raise Invalid(f"{value!r} is not a name in UTF-8: rename the file") from exc
