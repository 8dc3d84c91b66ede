"""Sign in with a token, sign out."""

from __future__ import annotations

import re
from typing import Annotated, Final

from fastapi import Form, Query, Request, Response
from fastapi.responses import RedirectResponse

from latent_core.domain.errors import RateLimited, Unauthorized
from latent_gateway.console.frame.console_session import COOKIE, LASTS_SECONDS, session_of, signed
from latent_gateway.console.frame.routing import SIGN_IN, pages, public_pages
from latent_gateway.console.frame.view import HEADERS, page
from latent_gateway.context import Shared

router = public_pages()
leaving = pages()

OURS: Final = re.compile(r"/(?:console/[!-~]*)?")
"""Allowed targets after signing in: pages of the console only."""
MAX_TOKEN_CHARS: Final = 512


@router.get(SIGN_IN)
async def form(
    request: Request,
    shared: Shared,
    next_page: Annotated[str, Query(alias="next", max_length=4096)] = "/",
) -> Response:
    try:
        await session_of(request, shared)
    except Unauthorized:
        return page("entry/login.html", None, next=landing(next_page), trouble=None)
    return RedirectResponse(landing(next_page), 303, HEADERS)


@router.post(SIGN_IN)
async def sign_in(
    request: Request,
    shared: Shared,
    token: Annotated[str, Form(max_length=MAX_TOKEN_CHARS)] = "",
    next_page: Annotated[str, Form(alias="next", max_length=4096)] = "/",
) -> Response:
    """Exchange a token for a session. The token itself is not stored."""
    try:
        cookie = await signed(request, shared, token.strip())
    except (Unauthorized, RateLimited) as error:
        trouble = error.message if isinstance(error, RateLimited) else "This token is not valid."
        answer = page(
            "entry/login.html", None, status=error.status, next=landing(next_page), trouble=trouble
        )
        if isinstance(error, RateLimited):
            answer.headers["Retry-After"] = str(error.details.get("retry_after", 2))
        return answer
    return signed_in(request, shared, cookie, next_page)


def signed_in(request: Request, shared: Shared, cookie: str, next_page: str) -> Response:
    """Store the session in the browser and go to ``next_page``."""
    answer = RedirectResponse(landing(next_page), 303, HEADERS)
    answer.set_cookie(
        COOKIE,
        cookie,
        max_age=LASTS_SECONDS,
        path="/",
        httponly=True,
        samesite="strict",
        secure=_encrypted(request, shared.settings.public_url),
    )
    return answer


@leaving.post("/logout")
async def sign_out() -> Response:
    """Delete the session in this browser."""
    answer = RedirectResponse(SIGN_IN, 303, HEADERS)
    answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return answer


def landing(path: str) -> str:
    """The target after signing in: ``path`` if it is one of our pages."""
    return path if OURS.fullmatch(path) and "\\" not in path else "/"


def _encrypted(request: Request, public_url: str | None) -> bool:
    return request.url.scheme == "https" or (public_url or "").lower().startswith("https:")
