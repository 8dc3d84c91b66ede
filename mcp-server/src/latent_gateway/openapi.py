"""The served schema: FastAPI's schema of the routes, completed.

Every error is an envelope (``answers``), tokens are bearer tokens, and path parameters have patterns.
``docs/openapi.yaml`` is the contract, which the schema must never contradict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from threading import Lock
from typing import Any, Final

import orjson
from fastapi import FastAPI, Response
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema
from starlette.routing import BaseRoute
from typing_extensions import override

from latent_core.domain.ids import CONTAINER_SLUG
from latent_core.domain.manifest.model import Manifest
from latent_core.wire.base import Envelope
from latent_gateway.middleware.auth import OPEN
from latent_gateway.query_parameters import KNOWN_ONLY

Json = dict[str, Any]

PATH: Final = "/openapi.json"

REFERENCE: Final = "#/components/schemas/{model}"
OF_MANIFESTS: Final = "Manifest_"
"""Prefix of a manifest's parts in the schema: other models have the same names, such as ``Display``."""
OF_THE_FRAMEWORK: Final = ("HTTPValidationError", "ValidationError")
OF_A_MANIFEST: Final = ("ManifestBody", "NewContainerBody")
"""FastAPI's models of request errors; ``answers`` describes them instead."""
VERBS: Final = frozenset({"get", "put", "post", "delete", "patch"})
WITHOUT_ERRORS: Final = ("/healthz", "/readyz")

ERRORS: Final = {
    400: "INVALID: the request is not valid",
    404: "NOT_FOUND: it does not exist, or the caller may not see it",
    409: "CONFLICT: it contradicts the stored state",
    422: "INGEST_FAIL: the content cannot be read",
    429: "RATE_LIMIT: too many requests; Retry-After says when to try again",
    503: "UNAVAILABLE: a backing service does not answer; Retry-After says when to try again",
    504: "TIMEOUT: a deadline has passed",
}
ERRORS_OF_TOKENS: Final = {
    401: "AUTH: no valid token",
    403: "POLICY: the token or a policy forbids it",
}
ERRORS_OF_BODIES: Final = {413: "INVALID: over a stated limit"}
ERRORS_OF_WRITES: Final = {507: "UNAVAILABLE: a store is full"}
ERRORS_OF_CHANGES: Final = {
    412: "CONFLICT: If-Match names another version than the stored one",
    428: "CONFLICT: If-Match is missing",
}

JOB_ID: Final[Json] = {"type": "string", "pattern": "^[1-9][0-9]{0,18}$"}
PARTS_OF_PATHS: Final[dict[str, Json]] = {
    "container_id": {"pattern": CONTAINER_SLUG.pattern, "maxLength": 63},
    "job_id": JOB_ID,
    "token_id": {"minimum": 1, "maximum": 2**63 - 1},
    "page": {"minimum": 1, "maximum": 2**31 - 1},
}
"""Their patterns. Other values are not found."""


class GatewayApi(FastAPI):
    """FastAPI with the completed schema. The first request for it builds it in a thread, which takes a second."""

    def __init__(self, **given: Any) -> None:
        super().__init__(openapi_url=None, docs_url=None, redoc_url=None, **given)
        self._making = Lock()
        self._rendered: bytes | None = None
        self.add_api_route(PATH, self._served, include_in_schema=False, dependencies=[KNOWN_ONLY])

    @override
    def openapi(self) -> Json:
        with self._making:
            if self.openapi_schema is None:
                self.openapi_schema = completed(super().openapi())
        return self.openapi_schema

    async def _served(self) -> Response:
        if self._rendered is None:
            self._rendered = orjson.dumps(await asyncio.to_thread(self.openapi))
        return Response(self._rendered, media_type="application/json")


def completed(schema: Json) -> Json:
    """``schema`` completed in place."""
    components = schema.setdefault("components", {})
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    _with_our_models(components.setdefault("schemas", {}))
    for path, verb, operation in operations(schema):
        responses = operation.setdefault("responses", {})
        if _is_of_the_framework(responses.get("422")):
            del responses["422"]
        if OPEN.fullmatch(path.replace("{", "").replace("}", "")) is None:
            operation["security"] = [{"token": []}]
        if path not in WITHOUT_ERRORS:
            for status, description in _errors(verb, operation).items():
                responses.setdefault(str(status), _failure(description))
        for parameter in operation.get("parameters", []):
            if parameter["in"] == "path":
                parameter["schema"] |= PARTS_OF_PATHS.get(parameter["name"], {})
    _require_what_is_always_there(schema)
    return schema


def operations(schema: Json) -> Iterator[tuple[str, str, Json]]:
    """Path, method in lower case, operation."""
    for path, item in schema["paths"].items():
        for verb, operation in item.items():
            if verb in VERBS:
                yield path, verb, operation


def documented_answers(routes: Iterable[BaseRoute]) -> Iterator[tuple[str, str, int]]:
    """Route, method and status of every answer that the schema describes, without building the schema."""
    for route in routes:
        if isinstance(route, APIRoute):
            own = {route.status_code or 200, *(int(status) for status in route.responses)}
            for method in route.methods or ():
                errors = set() if route.path in WITHOUT_ERRORS else {*ERRORS, *ERRORS_OF_TOKENS}
                if errors and method != "GET":
                    errors |= {*ERRORS_OF_BODIES, *ERRORS_OF_WRITES}
                for status in own | errors:
                    yield route.path, method, status


def _errors(verb: str, operation: Json) -> dict[int, str]:
    errors = ERRORS | ERRORS_OF_TOKENS
    if "requestBody" in operation:
        errors |= ERRORS_OF_BODIES
    if verb != "get":
        errors |= ERRORS_OF_WRITES
    if any(p["name"].lower() == "if-match" for p in operation.get("parameters", [])):
        errors |= ERRORS_OF_CHANGES
    return errors


def _failure(description: str) -> Json:
    schema = {"$ref": REFERENCE.format(model="Envelope")}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _with_our_models(schemas: Json) -> None:
    """The envelope of every error; and manifests, which routes accept unparsed to report errors themselves."""
    for name in OF_THE_FRAMEWORK:
        schemas.pop(name, None)
    _, ours = models_json_schema([(Envelope, "serialization")], ref_template=REFERENCE)
    for name, schema in ours["$defs"].items():
        schemas.setdefault(name, schema)
    template = REFERENCE.format(model=OF_MANIFESTS + "{model}")
    _, parts = models_json_schema([(Manifest, "validation")], ref_template=template)
    for name, schema in parts["$defs"].items():
        schemas[OF_MANIFESTS + name] = schema
    for body in OF_A_MANIFEST:
        if body in schemas:
            schemas[body]["properties"]["manifest"] = {"$ref": template.format(model="Manifest")}


def _require_what_is_always_there(schema: Json) -> None:
    """Answers have all fields of their model, including defaults, so they are required. Models of requests stay
    unchanged."""
    taken = [operation.get("requestBody") for _, _, operation in operations(schema)]
    given = [operation["responses"] for _, _, operation in operations(schema)]
    schemas = schema["components"]["schemas"]
    for name in _reached(given, schemas) - _reached(taken, schemas):
        if schemas[name].get("type") == "object" and "properties" in schemas[name]:
            schemas[name]["required"] = list(schemas[name]["properties"])


def _reached(begin: list[Any], schemas: Json) -> set[str]:
    """Names of all schemas that are reachable from ``begin``."""
    names: set[str] = set()
    waiting = list(begin)
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            waiting += value.values()
            name = str(value.get("$ref", "")).rpartition("/")[2]
            if name in schemas and name not in names:
                names.add(name)
                waiting.append(schemas[name])
    return names


def _is_of_the_framework(response: Json | None) -> bool:
    return response is not None and OF_THE_FRAMEWORK[0] in str(response.get("content"))
