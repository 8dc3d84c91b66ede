"""How the stand-in for a Qdrant server reads requests: what cannot be read is refused as by the server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

import orjson

from tests.support.servers.qdrant_refusals import (
    FakeRefusal,
    bad_parameter,
    format_error,
    invalid,
    too_large,
)

MAX_BYTES: Final = 32 * 1024 * 1024
"""Of one request: ``service.max_request_size_mb`` of config/config.yaml."""
_NAME_LENGTH: Final = 255
_NOT_IN_NAMES: Final = "/\0"
_NOT_IN_NEW_NAMES: Final = '/\0<>:"\\|?*\x1f'
_CONSISTENCIES: Final = ("all", "majority", "quorum")


class RouteKind(StrEnum):
    """What a route does, which decides which parameters it has."""

    READ = "read"
    UPDATE = "update"
    """Changes points or indexes, with ``wait``."""
    CHANGE = "change"
    """Changes a collection."""
    CREATE = "create"


@dataclass(frozen=True, slots=True)
class FakeRequest:
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        """Without repeated and trailing slashes: ``NormalizePath::trim`` of src/actix/mod.rs."""
        return re.sub("/+", "/", urlsplit(self.target).path).rstrip("/") or "/"

    @property
    def parameters(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query))

    @property
    def key(self) -> str | None:
        bearer = self.headers.get("authorization", "")
        return self.headers.get("api-key") or (
            bearer.removeprefix("Bearer ") if bearer.startswith("Bearer ") else None
        )


@dataclass(frozen=True, slots=True)
class FakeCall:
    """A request on a route, with what the path and the query say."""

    name: str
    field: str
    body: bytes
    wait: bool
    timeout: int | None


def read_call(request: FakeRequest, found: Mapping[str, str], kind: RouteKind) -> FakeCall:
    """What the extractors of a handler read, in their order: path, query, then body. ``found``: parts of the path."""
    name = unquote(found.get("name", ""))
    _check_name(name, _NOT_IN_NEW_NAMES if kind is RouteKind.CREATE else _NOT_IN_NAMES)
    given = request.parameters
    wait = given.get("wait", "false")
    if wait not in ("true", "false"):
        raise bad_parameter("provided string was not `true` or `false`")
    consistency = given.get("consistency", "1")
    if consistency not in _CONSISTENCIES and not consistency.isdecimal():
        raise bad_parameter(
            f"failed to deserialize read consistency query parameter value '{consistency}'"
        )
    timeout = _read_timeout(given.get("timeout"), kind)
    if request.method in ("PUT", "POST", "PATCH"):
        _check_json(request)
    return FakeCall(name, unquote(found.get("field", "")), request.body, wait == "true", timeout)


def _check_name(name: str, refused: str) -> None:
    """``CollectionPath`` and ``StrictCollectionPath`` of src/actix/api/mod.rs."""
    cause = next(
        (f'collection name cannot contain "{char}" char' for char in name if char in refused), None
    )
    if len(name) > _NAME_LENGTH:
        cause = f'value "{name}" invalid, must be from 1 to {_NAME_LENGTH} characters'
    if cause is not None:
        raise invalid("collection_name", cause, place="path parameters")


def _read_timeout(given: str | None, kind: RouteKind) -> int | None:
    """``ReadParams``, ``UpdateParams`` and ``WaitTimeout``: only an update may have a timeout of 0."""
    if given is None:
        return None
    if not given.isdecimal():
        raise bad_parameter("invalid digit found in string")
    if int(given) or kind is RouteKind.UPDATE:
        return int(given)
    if kind is RouteKind.READ:
        raise bad_parameter("invalid value: integer `0`, expected a nonzero u64")
    raise invalid("timeout", "value 0 invalid, must be 1 or larger", place="query parameters")


def _check_json(request: FakeRequest) -> None:
    """``JsonPayloadError`` of actix-web."""
    if len(request.body) > MAX_BYTES:
        raise too_large(len(request.body), MAX_BYTES)
    if "json" not in request.headers.get("content-type", ""):
        raise FakeRefusal(400, "Content type error")
    try:
        orjson.loads(request.body)
    except orjson.JSONDecodeError as exc:
        raise format_error(str(exc)) from exc
