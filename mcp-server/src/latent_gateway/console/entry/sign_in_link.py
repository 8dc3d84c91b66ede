"""The one-time link of ``latent up`` and ``latent console``: a page with a button, and the button signs in (ADR 0039)."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Form, Query, Request, Response

from latent_core.domain.errors import Unauthorized
from latent_gateway.auth.sign_in_codes import LINK, check_local
from latent_gateway.console.entry.sign_in import signed_in
from latent_gateway.console.frame.console_session import signed_owner
from latent_gateway.console.frame.routing import public_pages
from latent_gateway.console.frame.view import HEADERS, page
from latent_gateway.context import Shared

router = public_pages()

MAX_CODE_CHARS: Final = 128
LINK_HEADERS: Final = {
    # The address contains the code. Browsers send the origin alone: no-referrer would hide it from our own form, too.
    "Referrer-Policy": "strict-origin",
    "X-Robots-Tag": "noindex",
}

Code = Annotated[str, Query(max_length=MAX_CODE_CHARS)]
SentCode = Annotated[str, Form(max_length=MAX_CODE_CHARS)]


@router.get(LINK)
async def confirm(request: Request, shared: Shared, code: Code = "") -> Response:
    """A page that asks for the button. It changes nothing: programs that look at links in advance use none up."""
    check_local(request)
    if not shared.sign_in_codes.is_valid(code):
        return _ended()
    answer = page("entry/link.html", None, action=LINK, code=code)
    answer.headers.update(LINK_HEADERS)
    return answer


@router.post(LINK)
async def sign_in(request: Request, shared: Shared, code: SentCode = "") -> Response:
    """Use the code up and sign in as the owner."""
    check_local(request)
    try:
        shared.sign_in_codes.redeem(code)
    except Unauthorized:
        return _ended()
    return signed_in(request, shared, await signed_owner(request, shared), "/")


def _ended() -> Response:
    trouble = (
        "This link has been used or is older than 15 minutes. Run `latent console` for a new one, or "
        "sign in with a token."
    )
    answer = page("entry/login.html", None, status=401, next="/", trouble=trouble)
    answer.headers.update({**HEADERS, **LINK_HEADERS})
    return answer
