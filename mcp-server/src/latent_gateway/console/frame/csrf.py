"""The token of the session that every change must bring (CSRF), besides the check of the origin.

A page of another site can send our cookie in some browsers, but it cannot read our pages, so it does not know the token.
Forms bring it in the field ``csrf``, scripts in the header ``X-CSRF-Token``, forms with files in the query ``csrf``,
because their body is read by the route.
"""

from __future__ import annotations

import hmac
from typing import Final

from fastapi import Request

from latent_core.domain.errors import Forbidden
from latent_gateway.console.frame.console_session import COOKIE, sessions_of

HEADER: Final = "x-csrf-token"
FIELD: Final = "csrf"
FORM: Final = "application/x-www-form-urlencoded"


class StaleForm(Forbidden):
    """A change without the session's token."""


async def check_csrf(request: Request) -> None:
    """``StaleForm`` unless the request brings the token of its session. Without a session there is nothing to
    protect: the route sends the browser to the sign-in page."""
    cookie = request.cookies.get(COOKIE)
    if not cookie:
        return
    expected = (await sessions_of(request, request.app.state.gateway)).csrf(cookie)
    if not hmac.compare_digest(await _given(request), expected):
        raise StaleForm(
            "this form is older than your session: go back, reload the page and send it again"
        )


async def _given(request: Request) -> str:
    """ASCII, as ``compare_digest`` needs it."""
    given = request.headers.get(HEADER) or request.query_params.get(FIELD)
    if given is None and request.headers.get("content-type", "").startswith(FORM):
        field = (await request.form()).get(FIELD)
        given = field if isinstance(field, str) else None
    return given if given is not None and given.isascii() else ""
