"""Templates and the headers every page goes out with. Whatever stands in a document is text, never markup."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from fastapi import Request, Response
from jinja2 import Environment, PackageLoader, StrictUndefined

from latent_gateway.console import text_format
from latent_gateway.console.assets import address
from latent_gateway.console.console_session import ConsoleSession

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
    # Not no-referrer: browsers would then hide the origin of our own forms, which is checked.
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
    return environment


def draw(template: str, **shown: Any) -> str:
    """A template as HTML."""
    return templates().get_template(template).render(**shown)


def page(
    template: str, session: ConsoleSession | None, *, status: int = 200, **shown: Any
) -> Response:
    """A whole page, or a part that htmx puts into one."""
    content = draw(template, session=session, **shown)
    return Response(content, status, headers=HEADERS, media_type="text/html")


def wants_part(request: Request) -> bool:
    """Whether htmx asks for the part that changes, not for the page."""
    return FRAGMENT in request.headers and RESTORING not in request.headers
