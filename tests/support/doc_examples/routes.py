"""Requests of an example: the gateway has the route, and the body is one that it reads."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError

from latent_core.domain.errors import Invalid
from latent_core.domain.filters.syntax import parse
from latent_gateway.app import ROUTERS
from latent_gateway.mcp.tools.registry import PAIR, TOOLS

GATEWAY_PORTS: Final = frozenset({7801, 7802})
MCP: Final = frozenset({"/mcp", "/mcp/connector"})
PLAIN: Final = re.compile(r"(GET|POST|PUT|PATCH|DELETE) (/\S*)")


@cache
def routes() -> tuple[APIRoute, ...]:
    return tuple(
        route for module in ROUTERS for route in module.router.routes if isinstance(route, APIRoute)
    )


def route_of(method: str, path: str) -> APIRoute | None:
    """The route of a path, whose parts in braces may have any name."""
    path = re.sub(r"\{[^}]*\}|…", "1", path)
    for route in routes():
        if method in (route.methods or ()) and _pattern(route).fullmatch(path):
            return route
    return None


def _pattern(route: APIRoute) -> re.Pattern[str]:
    parts = re.split(r"\{[^}]*\}", route.path)
    return re.compile("[^/]+".join(re.escape(part) for part in parts))


def request_problem(method: str, url: str, body: str | None) -> str | None:
    """What is wrong with a request to the gateway; other servers are not checked."""
    address = urlsplit(url)
    if address.hostname not in ("127.0.0.1", "localhost") or address.port not in GATEWAY_PORTS:
        return None
    data: Any = None
    if body is not None:
        try:
            data = orjson.loads(body)
        except ValueError as error:
            return f"the body is not JSON: {error}"
    if address.path in MCP:
        return _tool_problem(data)
    route = route_of(method, address.path)
    if route is None:
        return f"there is no route {method} {address.path}"
    field = route.body_field
    if field is None or data is None:
        return None
    filters = data.get("filters") if isinstance(data, dict) else None
    return _body_problem(field.field_info.annotation, data) or (
        filter_problem(filters) if filters else None
    )


def filter_problem(filters: Any) -> str | None:
    """What is wrong with the filters of a search."""
    try:
        parse(filters)
    except Invalid as error:
        return f"the filter is refused: {error.message}"
    return None


def _body_problem(shape: Any, data: Any) -> str | None:
    try:
        TypeAdapter(shape).validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        return f"the body is refused: {'.'.join(map(str, first['loc']))}: {first['msg']}"
    return None


def _tool_problem(message: Any) -> str | None:
    """A call of a tool: it exists, and takes the arguments."""
    if not isinstance(message, dict) or message.get("method") != "tools/call":
        return None
    params = message.get("params", {})
    for tool in (*TOOLS, *PAIR):
        if params.get("name") == tool.wire_name:
            return _body_problem(tool.arguments, params.get("arguments", {}))
    return f"there is no tool {params.get('name')}"


def span_problem(text: str) -> str | None:
    """A span such as ``GET /v1/jobs``."""
    match = PLAIN.fullmatch(text)
    if match is None:
        return None
    method, path = match[1], match[2].partition("?")[0]
    if not path.startswith(("/v1/", "/healthz", "/readyz", "/metrics")):
        return None
    return None if route_of(method, path) else f"there is no route {method} {path}"
