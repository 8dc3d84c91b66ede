"""Routes of the console: errors as pages, the redirect to the sign-in page, and the check of the origin."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from typing_extensions import override

from latent_core.domain.errors import (
    Forbidden,
    Invalid,
    LatentError,
    NotFound,
    OutOfSpace,
    RateLimited,
    Unauthorized,
)
from latent_gateway.console.frame.console_session import ConsoleSession, session_of
from latent_gateway.console.frame.csrf import check_csrf
from latent_gateway.console.frame.view import HEADERS, page, wants_part
from latent_gateway.envelope import waiting_headers

SAFE: Final = frozenset({"GET", "HEAD"})


class ForeignOrigin(Forbidden):
    """A page of another site has sent a change."""


def check_origin(request: Request) -> None:
    """``ForeignOrigin`` unless one of our pages sent the request. Browsers send the origin with every POST."""
    if request.method in SAFE:
        return
    origins = request.headers.getlist("origin")
    host = request.headers.get("host", "").lower()
    # The scheme is not compared: behind a proxy that ends TLS, it differs from the browser's.
    if len(origins) != 1 or not host or _host_of(origins[0]) != host:
        raise ForeignOrigin(
            "this request does not come from a page of this console: open the console and try again there"
        )


def _host_of(origin: str) -> str | None:
    """The host with its port; None if the origin is not an address."""
    try:
        return urlsplit(origin.lower()).netloc
    except ValueError:
        return None


SIGN_IN: Final = "/login"
TITLES: Final = {
    403: "Not allowed",
    404: "Not found",
    409: "Not now",
    413: "Too large",
    429: "Too many requests",
    503: "Not available",
    504: "Too slow",
    507: "Storage full",
}

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class PublicRoute(APIRoute):
    """A route whose errors are pages, and which needs no session."""

    @override
    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def shown(request: Request) -> Response:
            try:
                await self.check(request)
                return await handle(request)
            except Unauthorized:
                return to_sign_in(request)
            except LatentError as error:
                request.app.state.gateway.stack.capacity.heard(error)
                return await failed(request, error)
            except RequestValidationError:
                wrong = Invalid("this address or form is not valid: go back and follow a link")
                return await failed(request, wrong)
            except HTTPException as error:
                return await failed(request, _as_latent_error(error), error.status_code)

        return shown

    async def check(self, request: Request) -> None:
        """Whether the request may come from where it comes."""
        check_origin(request)


class ConsoleRoute(PublicRoute):
    """A route of signed-in people: every change brings the token of its session."""

    @override
    async def check(self, request: Request) -> None:
        check_origin(request)
        if request.method not in SAFE:
            await check_csrf(request)


def pages() -> APIRouter:
    """A router of pages, which are not in the schema."""
    return APIRouter(include_in_schema=False, route_class=ConsoleRoute)


def public_pages() -> APIRouter:
    """A router of pages for people who have no session yet."""
    return APIRouter(include_in_schema=False, route_class=PublicRoute)


def to_sign_in(request: Request) -> Response:
    """Redirect to the sign-in page, and from there back to this page."""
    address = request.url.path
    if request.url.query:
        address += f"?{request.url.query}"
    after = f"?{urlencode({'next': address})}" if request.method == "GET" and address != "/" else ""
    if wants_part(request):  # the script goes there
        return Response(status_code=401, headers=HEADERS)
    return RedirectResponse(f"{SIGN_IN}{after}", 303, HEADERS)


async def failed(request: Request, error: LatentError, status: int | None = None) -> Response:
    """The error as a page with the navigation, or as the part that a script asked for."""
    status = status or error.status
    part = wants_part(request)
    answer = page(
        "frame/alert.html" if part else "frame/error.html",
        None if part else await _session_if_any(request),
        status=status,
        title=TITLES.get(status, "That did not work"),
        message=error.message,
        code=error.code.value,
    )
    if isinstance(error, RateLimited | OutOfSpace):
        answer.headers.update(waiting_headers(error))
    return answer


async def _session_if_any(request: Request) -> ConsoleSession | None:
    """For the navigation alone; an error page must not fail itself."""
    try:
        return await session_of(request, request.app.state.gateway)
    except LatentError:
        return None


def _as_latent_error(error: HTTPException) -> LatentError:
    kind = NotFound if error.status_code == 404 else Invalid
    return kind(str(error.detail))
