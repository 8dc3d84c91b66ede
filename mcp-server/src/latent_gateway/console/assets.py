"""Style, script and icon, read once from the installed packages; their address changes with their content."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from fastapi import APIRouter, Response

from latent_core.domain.errors import NotFound

router = APIRouter(include_in_schema=False)

PLACES: Final = {
    "console.css": ("latent_gateway.console", "static/console.css", "text/css"),
    "console.js": ("latent_gateway.console", "static/console.js", "text/javascript"),
    "icon.svg": ("latent_gateway.console", "static/icon.svg", "image/svg+xml"),
    # The wheel carries htmx for Django; nothing else of it is used, and Django is not installed.
    "htmx.js": ("django_htmx", "static/django_htmx/htmx-2.min.js", "text/javascript"),
}
HEADERS: Final = {
    "Cache-Control": "public, max-age=31536000, immutable",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}
VERSION_CHARS: Final = 12


@dataclass(frozen=True, slots=True)
class Asset:
    content: bytes
    mime: str
    version: str
    """Of its content."""


@cache
def asset(name: str) -> Asset:
    """``KeyError`` when there is no such asset."""
    package, path, mime = PLACES[name]
    content = files(package).joinpath(path).read_bytes()
    version = hashlib.sha256(content).hexdigest()[:VERSION_CHARS]
    return Asset(content, f"{mime}; charset=utf-8", version)


def address(name: str) -> str:
    """For templates."""
    return f"/console/static/{name}?v={asset(name).version}"


@router.get("/console/static/{name}")
async def static(name: str) -> Response:
    """Anybody may read these: there is nothing in them."""
    if name not in PLACES:
        raise NotFound(f"the console has no file '{name[:80]}'")
    found = asset(name)
    return Response(found.content, media_type=found.mime, headers=HEADERS)
