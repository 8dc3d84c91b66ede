"""``GET /v1/blobs/{sha256}``: the bytes of a signed link. The signature is the permission."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Path, Query, Response
from fastapi.responses import StreamingResponse

from latent_core.blobs.signing import content_disposition
from latent_core.domain.errors import NotFound
from latent_core.domain.ids import Sha256
from latent_gateway.context import Shared
from latent_gateway.middleware.conditional import IfNoneMatch, has_match

router = APIRouter(tags=["blobs"])

_BINARY: Final = {"*/*": {"schema": {"type": "string", "format": "binary"}}}
BYTES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The bytes", "content": _BINARY},
    206: {"description": "Those that Range names", "content": _BINARY},
    304: {"description": "Those of If-None-Match are the same"},
    416: {"description": "There are none where Range begins"},
}
ONE_RANGE: Final = re.compile(r"^bytes=(\d{0,18})-(\d{0,18})$")


@router.get("/v1/blobs/{sha256}", response_class=Response, responses=BYTES)
async def read(
    sha256: Annotated[str, Path(pattern="^[0-9a-f]{64}$")],
    exp: Annotated[int, Query(ge=0, lt=2**53)],
    sig: Annotated[str, Query(max_length=128)],
    type: Annotated[str, Query(max_length=255)],  # noqa: A002 - the name is part of the link
    disposition: Annotated[str, Query(max_length=16)],
    shared: Shared,
    filename: Annotated[str, Query(max_length=1024)] = "",
    bucket: Annotated[str, Query(max_length=63)] = "",
    range: Annotated[str | None, Header(max_length=256)] = None,  # noqa: A002 - the name of the header
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Stream a blob, whole or in part."""
    shared.stack.signer.verify(
        sha256,
        exp=exp,
        sig=sig,
        mime=type,
        disposition=disposition,
        filename=filename,
        bucket=bucket,
    )
    blob, tag = Sha256(sha256), f'"{sha256}"'
    store = shared.stack.blobs.of(bucket)
    size = await store.size(blob)
    if size is None:
        raise NotFound("these bytes are no longer stored: search again for a new link")
    headers = _headers(type, disposition, filename) | {"ETag": tag}
    if has_match(if_none_match, tag):
        return Response(status_code=304, headers=headers)
    byte_range = _range(range, size)
    if byte_range is None:
        return StreamingResponse(
            store.stream(blob),
            media_type=type,
            headers={**headers, "Content-Length": str(size)},
        )
    start, end = byte_range
    if start >= end:
        return Response(status_code=416, headers={**headers, "Content-Range": f"bytes */{size}"})
    headers |= {
        "Content-Range": f"bytes {start}-{end - 1}/{size}",
        "Content-Length": str(end - start),
    }
    return StreamingResponse(
        store.stream(blob, start=start, end=end),
        status_code=206,
        media_type=type,
        headers=headers,
    )


def _headers(mime: str, disposition: str, filename: str) -> dict[str, str]:
    """Headers of a blob. Scripts in it cannot run (DESIGN §6)."""
    return {
        "Content-Disposition": content_disposition(mime, disposition, filename),
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "private, max-age=300",
        "Accept-Ranges": "bytes",
    }


def _range(header: str | None, size: int) -> tuple[int, int] | None:
    """Start and end (exclusive) of a single range; None for the whole blob. Several ranges also get the whole blob."""
    match = ONE_RANGE.match(header.strip()) if header else None
    if match is None or match.group(0) == "bytes=-":
        return None
    first, last = match.groups()
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(size, int(last) + 1) if last else size
