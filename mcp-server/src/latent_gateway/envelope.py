"""Answers: the envelope of every body, and errors as issues with their HTTP status."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection
from math import ceil
from typing import Any, Final

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from latent_core.db.capacity import REMEMBERED_SECONDS
from latent_core.domain.errors import (
    Conflict,
    Invalid,
    Issue,
    IssueCode,
    LatentError,
    OutOfSpace,
    RateLimited,
    Unavailable,
)
from latent_core.wire.base import Envelope
from latent_gateway.query_parameters import suggestion

logger = logging.getLogger(__name__)

CODES = {
    401: IssueCode.AUTH,
    403: IssueCode.POLICY,
    404: IssueCode.NOT_FOUND,
    409: IssueCode.CONFLICT,
}
RETRY_AFTER_SECONDS: Final = 2
CAPACITY_RETRY_AFTER_SECONDS: Final = ceil(REMEMBERED_SECONDS)
"""Of an answer about missing disk space, which a person must provide."""
ISSUE_HEADER = b"latent-issue"
"""From an error's answer to the telemetry, which counts it and removes the header."""


class PreconditionRequired(Conflict):
    """The request needs an ``If-Match`` header with the version."""

    status = 428


def json_answer(
    body: BaseModel, request_id: str, *, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """``body`` as JSON, with the request id."""
    content = body.model_dump(mode="json")
    content["request_id"] = request_id
    return Response(
        _json(content), status_code=status, media_type="application/json", headers=headers
    )


def _json(content: Any) -> bytes:
    try:
        return orjson.dumps(content)
    except TypeError:  # a message quotes the caller's input: numbers over 64 bits, lone surrogates
        return json.dumps(content, default=str).encode()


def retry_seconds(error: LatentError) -> int | None:
    """When to try again; None if that is not known or would not help."""
    if not isinstance(error, RateLimited | Unavailable) and "retry_after" not in error.details:
        return None
    full = isinstance(error, OutOfSpace)
    seconds = CAPACITY_RETRY_AFTER_SECONDS if full else RETRY_AFTER_SECONDS
    return int(error.details.get("retry_after", seconds))


def waiting_headers(error: LatentError) -> dict[str, str]:
    """``Retry-After`` for errors that pass."""
    seconds = retry_seconds(error)
    return {} if seconds is None else {"Retry-After": str(seconds)}


def error_answer(error: LatentError, request_id: str) -> Response:
    headers = waiting_headers(error)
    if error.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="latent"'
    return _refusal(error.issue(), request_id, error.status, headers)


def _refusal(issue: Issue, request_id: str, status: int, headers: dict[str, str]) -> Response:
    answer = json_answer(Envelope(issues=[issue]), request_id, status=status, headers=headers)
    answer.raw_headers.append((ISSUE_HEADER, issue.code.value.encode()))
    return answer


def install(app: FastAPI, heard: Callable[[LatentError], None] = lambda _: None) -> None:
    """Render every error of a route as an envelope: our errors by class (``heard`` is called with them), the
    framework's by status."""

    async def latent(request: Request, exc: Exception) -> Response:
        if not isinstance(exc, LatentError):
            raise exc
        heard(exc)
        return error_answer(exc, request.scope["latent.request_id"])

    app.add_exception_handler(LatentError, latent)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(HTTPException, _http)


async def _validation(request: Request, exc: Exception) -> Response:
    if not isinstance(exc, RequestValidationError):
        raise exc
    fields = _body_fields(request)
    problems = [_problem(e, fields) for e in exc.errors()[:20]]
    return error_answer(
        Invalid("; ".join(problems), problems=problems), request.scope["latent.request_id"]
    )


def _body_fields(request: Request) -> Collection[str]:
    """The fields of the body that the route takes; none if it takes no object."""
    body = getattr(request.scope.get("route"), "body_field", None)
    model = None if body is None else body.field_info.annotation
    return model.model_fields if isinstance(model, type) and issubclass(model, BaseModel) else ()


def _problem(error: dict[str, Any], fields: Collection[str]) -> str:
    place = ".".join(str(p) for p in error["loc"][1:]) or str(error["loc"][0])
    if error["type"] == "extra_forbidden":
        top = len(error["loc"]) == 2 and fields
        return (
            f"'{place}' is unknown; {suggestion(place, fields)}" if top else f"'{place}' is unknown"
        )
    return f"{place}: {str(error['msg']).removeprefix('Value error, ')}"


async def _http(request: Request, exc: Exception) -> Response:
    if not isinstance(exc, HTTPException):
        raise exc
    code = CODES.get(exc.status_code, IssueCode.INVALID)
    issue = Issue(
        code=code, message=f"{request.method} {request.url.path}: {str(exc.detail).lower()}"
    )
    return _refusal(
        issue, request.scope["latent.request_id"], exc.status_code, dict(exc.headers or {})
    )
