"""Templates, static files, and the headers of every page. Text of documents is always escaped."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from jinja2 import Environment, PackageLoader, StrictUndefined

from latent_core.domain.errors import NotFound
from latent_core.domain.table import header_above
from latent_gateway.console import text_format
from latent_gateway.console.console_session import ConsoleSession

router = APIRouter(include_in_schema=False)

PLACES: Final = {
    "console.css": ("latent_gateway.console", "static/console.css", "text/css"),
    "console.js": ("latent_gateway.console", "static/console.js", "text/javascript"),
    "icon.svg": ("latent_gateway.console", "static/icon.svg", "image/svg+xml"),
}
HTMX_NAME: Final = "htmx.js"
HTMX: Final = {
    "latent_containers_htmx": "htmx-2.min.js",
    "django_htmx": "static/django_htmx/htmx-2.min.js",
}
"""Package to path. Installed by name, ours holds htmx; in a checkout, django-htmx does, without Django."""
ASSET_HEADERS: Final = {
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
    """Raises ``KeyError`` if there is no such asset."""
    package, path, mime = _htmx() if name == HTMX_NAME else PLACES[name]
    content = files(package).joinpath(path).read_bytes()
    version = hashlib.sha256(content).hexdigest()[:VERSION_CHARS]
    return Asset(content, f"{mime}; charset=utf-8", version)


def _htmx() -> tuple[str, str, str]:
    package = next(filter(find_spec, HTMX), "django_htmx")
    return package, HTMX[package], "text/javascript"


def address(name: str) -> str:
    """The address, for templates."""
    return f"/console/static/{name}?v={asset(name).version}"


@router.get("/console/static/{name}")
async def static(name: str) -> Response:
    """Static files. They contain nothing private, so they need no session."""
    if name not in (*PLACES, HTMX_NAME):
        raise NotFound(f"the console has no file '{name[:80]}'")
    found = asset(name)
    return Response(found.content, media_type=found.mime, headers=ASSET_HEADERS)


POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: browsers would then hide the origin of our own forms, and it is checked.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
FRAGMENT: Final = "hx-request"
RESTORING: Final = "hx-history-restore-request"


@cache
def templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("latent_gateway.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals["asset"] = address
    environment.filters |= {
        name: getattr(text_format, name)
        for name in ("amount", "size", "moment", "ago", "seconds", "place", "reason", "plain")
    }
    environment.globals["marked"] = text_format.marked
    environment.globals["header"] = header_above
    return environment


def draw(template: str, **shown: Any) -> str:
    """Render a template to HTML."""
    return templates().get_template(template).render(**shown)


def page(
    template: str, session: ConsoleSession | None, *, status: int = 200, **shown: Any
) -> Response:
    """A whole page, or a part that htmx inserts."""
    content = draw(template, session=session, **shown)
    return Response(content, status, headers=HEADERS, media_type="text/html")


def wants_part(request: Request) -> bool:
    """Whether htmx requests only the changed part."""
    return FRAGMENT in request.headers and RESTORING not in request.headers
