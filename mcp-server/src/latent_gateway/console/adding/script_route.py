"""Routes that the script for adding calls: answers and errors are JSON, as in the API."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from typing_extensions import override

from latent_core.domain.errors import Invalid, LatentError
from latent_gateway.api.tus import OffsetConflict, drain
from latent_gateway.console.frame.routing import ConsoleRoute, PublicRoute
from latent_gateway.console.frame.view import HEADERS
from latent_gateway.envelope import error_answer

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class ScriptRoute(ConsoleRoute):
    """With the checks of a page: origin, token of the session, session."""

    @override
    def get_route_handler(self) -> Handler:
        # Not that of pages, which turns an error into a page.
        handle = super(PublicRoute, self).get_route_handler()

        async def answered(request: Request) -> Response:
            try:
                await self.check(request)
                answer = await handle(request)
            except LatentError as error:
                answer = await _refused(request, error)
            except RequestValidationError:
                answer = await _refused(
                    request, Invalid("this request is not valid: reload the page")
                )
            answer.headers.update(HEADERS)
            return answer

        return answered


async def _refused(request: Request, error: LatentError) -> Response:
    request.app.state.gateway.stack.capacity.heard(error)
    await drain(request)
    answer = error_answer(error, request.scope["latent.request_id"])
    if isinstance(error, OffsetConflict):
        answer.headers["Upload-Offset"] = str(error.received)
    return answer


def script_routes() -> APIRouter:
    """A router of such routes, which are not in the schema."""
    return APIRouter(include_in_schema=False, route_class=ScriptRoute)
