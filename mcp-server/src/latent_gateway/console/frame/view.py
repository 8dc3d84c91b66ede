"""Templates, static files, and the headers of every page. Text of documents is always escaped."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from latent_core.domain.errors import NotFound
from latent_core.domain.ignore import IGNORED_FOLDERS
from latent_core.domain.table import header_above
from latent_gateway.console.frame import navigation, text_format
from latent_gateway.console.frame.console_session import NOTICE, ConsoleSession

router = APIRouter(include_in_schema=False)

PACKAGE: Final = "latent_gateway.console"
STYLES: Final = (
    "base",
    "frame",
    "adding",
    "containers",
    "searching",
    "reference",
    "agents",
    "quality",
    "operations",
    "start",
    "documents",
)
"""One stylesheet is served: these files of ``static/css``, in this order."""
SCRIPTS: Final = (
    "frame",
    "adding",
    "containers",
    "searching",
    "asking",
    "reference",
    "quality",
    "operations",
    "documents",
)
"""Modules of ``static/js``; every page loads the first."""
CSS: Final = "console.css"
ICON: Final = "icon.svg"
ASSET_HEADERS: Final = {
    "Cache-Control": "public, max-age=31536000, immutable",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}
VERSION_CHARS: Final = 12
IMPORT: Final = re.compile(r'from "\./([a-z_]+\.js)"')
NAMES: Final = frozenset({CSS, ICON, *(f"{name}.js" for name in SCRIPTS)})
NOTICE_SECONDS: Final = 60
MAX_NOTICE_CHARS: Final = 400


@dataclass(frozen=True, slots=True)
class Asset:
    content: bytes
    mime: str
    version: str
    """Of its content."""


@cache
def asset(name: str) -> Asset:
    """Raises ``KeyError`` if there is no such asset."""
    if name not in NAMES:
        raise KeyError(name)
    static_files = files(PACKAGE).joinpath("static")
    if name == CSS:
        parts = [static_files.joinpath(f"css/{part}.css").read_bytes() for part in STYLES]
        content, mime = b"\n".join(parts), "text/css"
    elif name == ICON:
        content, mime = static_files.joinpath(name).read_bytes(), "image/svg+xml"
    else:
        script = static_files.joinpath(f"js/{name}").read_text(encoding="utf-8")
        content, mime = IMPORT.sub(_versioned, script).encode(), "text/javascript"
    version = hashlib.sha256(content).hexdigest()[:VERSION_CHARS]
    return Asset(content, f"{mime}; charset=utf-8", version)


def _versioned(found: re.Match[str]) -> str:
    """An import by the address that pages use, too: a module with two addresses would run twice."""
    return f'from "{address(found[1])}"'


def address(name: str) -> str:
    """The address, for templates."""
    return f"/console/static/{name}?v={asset(name).version}"


@router.get("/console/static/{name}")
async def static(name: str) -> Response:
    """Static files. They contain nothing private, so they need no session."""
    if name not in NAMES:
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
PART: Final = "x-part"
"""Header of requests of ``frame.js`` that replace a part of the page."""


@cache
def templates() -> Environment:
    environment = Environment(
        loader=PackageLoader(PACKAGE),
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
    environment.globals["container_tabs"] = navigation.tabs
    environment.globals["ignored_folders"] = " ".join(sorted(IGNORED_FOLDERS))
    environment.globals["marked"] = text_format.marked
    environment.globals["header"] = header_above
    return environment


def draw(template: str, **shown: Any) -> str:
    """Render a template to HTML."""
    return templates().get_template(template).render(**shown)


def page(
    template: str, session: ConsoleSession | None, *, status: int = 200, **shown: Any
) -> Response:
    """A whole page, or a part that ``frame.js`` inserts. The notice of the last change is shown once."""
    content = draw(template, session=session, **shown)
    answer = Response(content, status, headers=HEADERS, media_type="text/html")
    if session is not None and session.notice:
        answer.delete_cookie(NOTICE, path="/", httponly=True, samesite="strict")
    return answer


def done(path: str, notice: str) -> RedirectResponse:
    """The answer to a successful change: to ``path``, where ``notice`` (one sentence) is shown once."""
    answer = RedirectResponse(path, 303, HEADERS)
    answer.set_cookie(
        NOTICE,
        quote(notice[:MAX_NOTICE_CHARS]),
        max_age=NOTICE_SECONDS,
        path="/",
        httponly=True,
        samesite="strict",
    )
    return answer


def wants_part(request: Request) -> bool:
    """Whether only the changed part is requested."""
    return PART in request.headers
