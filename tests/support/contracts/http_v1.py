"""The contract's tables as data: calls, fields, defaults, ranges and answers of HTTP v1 and of the tools of MCP; and the
comparison of a schema or an answer with them.

A type is a JSON type, with ``[]`` for a list of it and ``?`` for one that may be null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

Json = dict[str, Any]
Fields = Mapping[str, str]


@dataclass(frozen=True)
class Parameter:
    """A field of a request's body, or a query parameter."""

    type: str
    is_required: bool = False
    choices: tuple[str, ...] = ()
    default: Any = None
    minimum: int | None = None
    maximum: int | None = None


@dataclass(frozen=True)
class Call:
    method: str
    path: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    answers: Mapping[int, Fields] = field(default_factory=dict)
    is_enveloped: bool = True


ENVELOPE: Final[Fields] = {
    "request_id": "string",
    "version": "string",
    "partial": "boolean",
    "timings": "object",
    "issues": "object[]",
}
ISSUE: Final[Fields] = {"code": "string", "message": "string", "details": "object"}
ISSUE_CODES: Final = frozenset(
    {
        *("AUTH", "TIMEOUT", "NO_HITS", "RATE_LIMIT", "POLICY", "INGEST_FAIL"),
        *("NOT_FOUND", "INVALID", "CONFLICT", "UNAVAILABLE"),
    }
)
CONTAINER: Final[Fields] = {
    "id": "string",
    "name": "string",
    "modalities": "string[]",
    "dims": "integer?",
    "state": "string",
}
HIT: Final[Fields] = {
    "container_id": "string",
    "doc_id": "string",
    "chunk_id": "string",
    "modality": "string",
    "score": "number",
    "base_score": "number",
    "title": "string",
    "snippet": "string",
    "rendered_snippet": "string",
    "uri": "string?",
    "page_uri": "string?",
    "page_uris": "string[]",
    "why": "object[]",
    "source_path": "string",
    "external_id": "string?",
    "offsets": "integer[]",
    "timestamps": "number[]",
    "modified_at": "string?",
    "fetched_at": "string?",
    "indexed_at": "string?",
    "provenance": "object",
    "meta": "object",
}
PROVENANCE: Final[Fields] = {
    "source_uri": "string",
    "fetched_at": "string?",
    "handler_version": "string",
    "embedder_version": "string",
    "page": "integer?",
}
DIAGNOSTICS: Final[Fields] = {
    "stage_scores": "object",
    "timings_ms": "object",
    "candidates_before_rerank": "integer",
    "candidates_after_rerank": "integer",
    "applied_filters": "object",
    "freshness_factor": "number?",
    "container_status": "object[]",
}
STAGE_SCORES: Final[Fields] = {"bm25": "object[]", "vector": "object[]"}
TIMINGS_MS: Final[Fields] = {
    "embed": "number",
    "vector": "number",
    "bm25": "number",
    "fuse": "number",
    "rerank": "number",
}
PDF_STATUS: Final[Fields] = {"total": "integer", "processed": "integer", "unprocessed": "integer"}
TOOL: Final[Fields] = {"name": "string", "description": "string", "inputSchema": "object"}
MODELS: Final[Mapping[str, Fields]] = {
    "Envelope": ENVELOPE,
    "Issue": ISSUE,
    "ContainerSummary": CONTAINER,
    "Hit": HIT,
    "Provenance": PROVENANCE,
    "Diagnostics": DIAGNOSTICS,
    "PdfStatus": PDF_STATUS,
    "ToolView": TOOL,
}
"""By the names of the served schema."""

IN_CONTAINER: Final = {"container_id": Parameter("string", is_required=True)}
QUEUED: Final[Fields] = {"job_id": "string", "status": "string"}
LIST: Final = Call("GET", "/v1/containers/list", {}, {200: {"containers": "object[]"}})
DESCRIBE: Final = Call(
    "GET",
    "/v1/containers/describe",
    IN_CONTAINER,
    {200: {"manifest": "object", "sizes": "object", "last_ingest_at": "string?"}},
)
ADD: Final = Call(
    "POST",
    "/v1/containers/add",
    {
        **IN_CONTAINER,
        "uri": Parameter("string"),
        "file_ref": Parameter("string"),
        "modality": Parameter("string", choices=("auto", "text", "image")),
    },
    {202: QUEUED},
)
SEARCH: Final = Call(
    "POST",
    "/v1/containers/search",
    {
        "containers": Parameter("string[]", is_required=True),
        "top_k": Parameter("integer", is_required=True, minimum=1, maximum=100),
        "query": Parameter("string"),
        "image_ref": Parameter("string"),
        "mode": Parameter(
            "string", choices=("semantic", "hybrid", "crossmodal", "rerank"), default="hybrid"
        ),
        "filters": Parameter("object", default={}),
        "rerank_k": Parameter("integer", default=50),
        "dedup": Parameter("boolean", default=True),
    },
    {200: {"hits": "object[]", "diagnostics": "object?"}},
)
"""Mode ``multivector`` of the contract is refused by name until a version supports it."""
REFRESH: Final = Call(
    "POST",
    "/v1/admin/refresh",
    {
        **IN_CONTAINER,
        "strategy": Parameter("string", choices=("parallel", "inplace"), default="parallel"),
    },
    {202: QUEUED},
)
EXPORT: Final = Call(
    "POST",
    "/v1/containers/export",
    IN_CONTAINER,
    {200: {"url": "string?"}, 202: {"job_id": "string", "status": "string"}},
)
HEALTH: Final = Call("GET", "/healthz", {}, {200: {"status": "string"}}, is_enveloped=False)
READINESS: Final = Call(
    "GET",
    "/readyz",
    {},
    {200: {"status": "string", "services": "object"}, 503: {}},
    is_enveloped=False,
)
MCP_TOOLS: Final = Call("GET", "/mcp/tools", {}, {200: {"tools": "object[]"}})
PDF_STATUSES: Final = Call("GET", "/v1/admin/pdf-status", {}, {200: {"documents": "object[]"}})
CALLS: Final = (
    *(LIST, DESCRIBE, ADD, SEARCH, REFRESH, EXPORT),
    *(HEALTH, READINESS, MCP_TOOLS, PDF_STATUSES),
)
TOOLS: Final[Mapping[str, Call]] = {
    "containers.list": LIST,
    "containers.describe": DESCRIBE,
    "containers.add": ADD,
    "containers.search": SEARCH,
    "admin.refresh": REFRESH,
    "containers.export": EXPORT,
}
"""Their input schemas are the requests."""
MCP_TOP_K: Final = 10


def schema_differences(schema: Json) -> list[str]:
    """Where an OpenAPI document contradicts the contract: missing things, other types, narrower ranges."""
    served = _ServedSchema(schema)
    found = [one for call in CALLS for one in served.call(call)]
    for name, fields in MODELS.items():
        found += served.fields(schema["components"]["schemas"].get(name, {}), fields, name)
    codes = set(schema["components"]["schemas"]["IssueCode"]["enum"])
    return found + [f"IssueCode: {one}" for one in sorted(codes ^ ISSUE_CODES)]


def tool_differences(tools: Sequence[Json]) -> list[str]:
    """Where the answer of ``GET /mcp/tools`` contradicts the contract."""
    listed = {tool["name"]: tool["inputSchema"] for tool in tools}
    found = []
    for name, call in TOOLS.items():
        if name not in listed:
            found.append(f"{name}: is not listed")
            continue
        found += _ServedSchema({}).parameters(listed[name], call, name, is_short=True)
    return found


@dataclass(frozen=True)
class _ServedSchema:
    whole: Json

    def call(self, call: Call) -> Iterator[str]:
        place = f"{call.method} {call.path}"
        operation = self.whole["paths"].get(call.path, {}).get(call.method.lower())
        if operation is None:
            yield f"{place}: is not served"
            return
        yield from self.parameters(self._request(operation, call.method), call, place)
        for status, fields in call.answers.items():
            answer = operation["responses"].get(str(status))
            if answer is None:
                yield f"{place}: does not answer {status}"
            elif fields and call != HEALTH:  # which has no model
                schema = answer["content"]["application/json"]["schema"]
                envelope = ENVELOPE if call.is_enveloped else {}
                for name, problem in self._missing(schema, {**envelope, **fields}):
                    yield f"{place} {status} {name}: {problem}"

    def parameters(
        self, given: Json, call: Call, place: str, *, is_short: bool = False
    ) -> Iterator[str]:
        """``is_short``: a schema of MCP, which has neither ranges nor defaults."""
        allowed = {name for name, one in call.parameters.items() if one.is_required}
        for name in sorted(set(given.get("required", ())) - allowed):
            yield f"{place}.{name}: is required"
        for name, expected in call.parameters.items():
            schema = given.get("properties", {}).get(name)
            if schema is None:
                yield f"{place}.{name}: is missing"
                continue
            forms = list(self._forms(schema))
            if not any(self._is(one, expected.type.removesuffix("?")) for one in forms):
                yield f"{place}.{name}: is not of type {expected.type}"
            known = {value for one in forms for value in one.get("enum", ())}
            if expected.choices and not set(expected.choices) <= known:
                yield f"{place}.{name}: does not take {sorted(set(expected.choices) - known)}"
            if is_short:
                continue
            if expected.default is not None and schema.get("default") != expected.default:
                yield f"{place}.{name}: has the default {schema.get('default')}"
            if expected.minimum is not None and schema.get("minimum") != expected.minimum:
                yield f"{place}.{name}: has the minimum {schema.get('minimum')}"
            if expected.maximum is not None and schema.get("maximum") != expected.maximum:
                yield f"{place}.{name}: has the maximum {schema.get('maximum')}"

    def fields(self, schema: Json, expected: Fields, place: str) -> Iterator[str]:
        for name, problem in self._missing(schema, expected):
            yield f"{place}.{name}: {problem}"

    def _missing(self, schema: Json, expected: Fields) -> Iterator[tuple[str, str]]:
        """Fields of an answer that it may lack, or that are of another type."""
        shapes = list(self._forms(schema))
        for name, type_ in expected.items():
            for shape in shapes:
                inner = shape.get("properties", {}).get(name)
                if inner is None or name not in shape.get("required", ()):
                    yield name, "may be missing"
                    continue
                nullable = type_.endswith("?") or name == "job_id"
                for form in self._forms(inner):
                    if form.get("type") == "null" and nullable:
                        continue
                    if not self._is(form, type_.removesuffix("?")):
                        yield name, f"is {form.get('type')}, not {type_}"

    def _request(self, operation: Json, method: str) -> Json:
        if method == "POST":
            body = operation["requestBody"]["content"]["application/json"]["schema"]
            return next(self._forms(body))
        parameters = [one for one in operation.get("parameters", ()) if one["in"] == "query"]
        return {
            "properties": {one["name"]: one["schema"] for one in parameters},
            "required": [one["name"] for one in parameters if one.get("required")],
        }

    def _forms(self, schema: Json) -> Iterator[Json]:
        """Without references and alternatives."""
        if "$ref" in schema:
            found: Any = self.whole
            for part in schema["$ref"].removeprefix("#/").split("/"):
                found = found[part]
            yield from self._forms(found)
        elif "anyOf" in schema:
            for one in schema["anyOf"]:
                yield from self._forms(one)
        else:
            yield schema

    def _is(self, schema: Json, type_: str) -> bool:
        if not type_.endswith("[]"):
            return schema.get("type") == type_
        items = schema.get("prefixItems") or [schema.get("items", {})]
        inner = type_.removesuffix("[]")
        return schema.get("type") == "array" and all(
            form.get("type") == inner for item in items for form in self._forms(item)
        )


_PYTHON: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
}


def answer_differences(answer: Json, expected: Fields, place: str = "answer") -> list[str]:
    """Fields that an answer lacks, or that are of another type."""
    return [
        f"{place}.{name}: {answer.get(name, 'missing')!r} is not {type_}"
        for name, type_ in expected.items()
        if name not in answer or not _holds(answer[name], type_)
    ]


def _holds(value: Any, type_: str) -> bool:
    if value is None:
        return type_.endswith("?")
    inner = type_.removesuffix("?")
    if inner.endswith("[]"):
        return isinstance(value, list) and all(_holds(item, inner[:-2]) for item in value)
    return isinstance(value, _PYTHON[inner]) and (inner == "boolean" or not isinstance(value, bool))
