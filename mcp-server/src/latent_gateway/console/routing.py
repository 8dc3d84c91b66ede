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
from latent_gateway.console.view import FRAGMENT, HEADERS, page
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


class ConsoleRoute(APIRoute):
    """A route whose errors are pages."""

    @override
    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def shown(request: Request) -> Response:
            try:
                check_origin(request)
                return await handle(request)
            except Unauthorized:
                return to_sign_in(request)
            except LatentError as error:
                request.app.state.gateway.stack.capacity.heard(error)
                return failed(error)
            except RequestValidationError:
                return failed(Invalid("this address is not valid: go back and follow a link"))
            except HTTPException as error:
                return failed(_as_latent_error(error), error.status_code)

        return shown


def pages() -> APIRouter:
    """A router of pages, which are not in the schema."""
    return APIRouter(include_in_schema=False, route_class=ConsoleRoute)


def to_sign_in(request: Request) -> Response:
    """Redirect to the sign-in page, and from there back to this page."""
    address = request.url.path
    if request.url.query:
        address += f"?{request.url.query}"
    after = f"?{urlencode({'next': address})}" if request.method == "GET" and address != "/" else ""
    if FRAGMENT in request.headers:
        return Response(status_code=401, headers={**HEADERS, "HX-Redirect": SIGN_IN})
    return RedirectResponse(f"{SIGN_IN}{after}", 303, HEADERS)


def failed(error: LatentError, status: int | None = None) -> Response:
    status = status or error.status
    title = TITLES.get(status, "That did not work")
    answer = page(
        "error.html", None, status=status, title=title, message=error.message, code=error.code.value
    )
    if isinstance(error, RateLimited | OutOfSpace):
        answer.headers.update(waiting_headers(error))
    return answer


def _as_latent_error(error: HTTPException) -> LatentError:
    kind = NotFound if error.status_code == 404 else Invalid
    return kind(str(error.detail))
