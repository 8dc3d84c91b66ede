"""The served schema keeps the contract of docs/openapi.yaml, and tells what FastAPI alone would not."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
import yaml

from latent_gateway.app import ROUTERS
from latent_gateway.openapi import GatewayApi, operations
from tests.support import REPOSITORY

SHORT: Final = {
    "/v1/admin/installation": "a backup is of one moment",
    "/v1/models": "one per installed model",
    "/v1/admin/status": "one per worker that holds jobs, and 100 at most",
    "/v1/admin/settings": "one per setting",
    "/v1/admin/providers": "one per provider, and 100 at most",
    "/v1/saved-searches": "100 per principal at most",
    "/mcp/tools": "a dozen, and the contract's has no pages",
    "/v1/containers/{container_id}/documents/{doc_id}/outline": "it says so if it was cut",
    "/v1/containers/{container_id}/sources": "one per synced folder",
    "/v1/containers/{container_id}/eval/runs/{run_id}/difference": "one per golden query of two runs",
    "/v1/documents/{doc_id}/pages/{page}/boxes": "the words of one page at most",
    "/v1/containers/{container_id}/queries": "the first of an order, by limit",
    "/v1/containers/{container_id}/sizes": "one per day, of at most 400 days",
    "/v1/tokens/{token_id}/calls": "some per day, of at most 90 days",
    "/v1/containers/{container_id}/trash": "what was deleted within 30 days, newest first",
}
"""Lists that are no longer than what people write by hand, or are read whole."""
CONTRACT: Final = REPOSITORY / "docs" / "openapi.yaml"
Json = dict[str, Any]


@pytest.fixture(scope="module")
def contract() -> Json:
    read: Json = yaml.safe_load(CONTRACT.read_text(encoding="utf-8"))
    return read


@pytest.fixture(scope="module")
def served() -> Json:
    app = GatewayApi(title="Latent Containers", version="1")
    for module in ROUTERS:
        app.include_router(module.router)
    return app.openapi()


@dataclass(frozen=True)
class ToolDocument:
    """An OpenAPI document whose schemas are read with their references followed."""

    whole: Json

    def read(self, schema: Any) -> Json:
        if not isinstance(schema, dict):
            return {}
        if "$ref" in schema:
            found: Any = self.whole
            for part in schema["$ref"].removeprefix("#/").split("/"):
                found = found[part]
            return self.read(found)
        return self._merged(schema) if "allOf" in schema else schema

    def _merged(self, schema: Json) -> Json:
        merged: Json = {"type": "object", "required": [], "properties": {}}
        for part in map(self.read, schema["allOf"]):
            merged["required"] = [*merged["required"], *part.get("required", [])]
            merged["properties"] = merged["properties"] | part.get("properties", {})
        return merged

    def alternatives(self, schema: Any) -> list[Json]:
        """Of one type each; one without a type is anything."""
        read = self.read(schema)
        options = read.get("anyOf") or read.get("oneOf")
        if options:
            return [one for option in options for one in self.alternatives(option)]
        types = read.get("type")
        return [read | {"type": one} for one in types] if isinstance(types, list) else [read]

    def body(self, part: Json | None) -> Any:
        content = self.read(part).get("content", {})
        return content.get("application/json", {}).get("schema")


@dataclass(frozen=True)
class Comparison:
    """``inner`` must be of what ``outer`` is of. Of a request the inner one is the contract's (what it allows is
    taken), of an answer the served one's (what is given is what it promises)."""

    inner: ToolDocument
    outer: ToolDocument
    served_is_inner: bool

    def problems(self, inner: Any, outer: Any, place: str) -> Iterator[str]:
        for one in self.inner.alternatives(inner):
            tried = [
                list(self._pair(one, other, place)) for other in self.outer.alternatives(outer)
            ]
            if not any(not found for found in tried):
                yield from min(tried, key=len)

    def _pair(self, inner: Json, outer: Json, place: str) -> Iterator[str]:
        is_type, should_be = inner.get("type"), outer.get("type")
        if should_be is None:
            return
        if is_type != should_be and (is_type, should_be) != ("integer", "number"):
            yield f"{place}: is {is_type}, should be {should_be}"
            return
        yield from self._range(inner, outer, place)
        if is_type == "array":
            items = inner.get("prefixItems") or [inner.get("items", {})]
            expected = (outer.get("prefixItems") or [outer.get("items", {})])[0]
            for item in items:
                yield from self.problems(item, expected, f"{place}[]")
        if is_type == "object":
            yield from self._fields(inner, outer, place)

    def _range(self, inner: Json, outer: Json, place: str) -> Iterator[str]:
        allowed = _values(outer)
        if allowed is not None and not (_values(inner) or {object()}) <= allowed:
            yield f"{place}: may be {_values(inner)}, should be of {allowed}"
        for key, is_lower_bound in (("minimum", True), ("maximum", False), ("maxLength", False)):
            bound, own = outer.get(key), inner.get(key)
            if bound is None or self.served_is_inner:
                continue
            if own is None or (own < bound if is_lower_bound else own > bound):
                yield f"{place}: {key} {own}, should be within {bound}"

    def _fields(self, inner: Json, outer: Json, place: str) -> Iterator[str]:
        contract, served = (outer, inner) if self.served_is_inner else (inner, outer)
        contract_needs, served_needs = (
            set(contract.get("required", [])),
            set(served.get("required", [])),
        )
        for name, message in contract.get("properties", {}).items():
            found = served.get("properties", {}).get(name, served.get("additionalProperties"))
            if found is None or found is False:
                yield f"{place}.{name}: is missing"
                continue
            if name in contract_needs and name not in served_needs:
                yield f"{place}.{name}: is not required"
            if not self.served_is_inner and name in served_needs - contract_needs:
                yield f"{place}.{name}: is required"
            pair = (found, message) if self.served_is_inner else (message, found)
            if found is not True:
                yield from self.problems(*pair, f"{place}.{name}")
        if not self.served_is_inner:
            for name in served_needs - set(contract.get("properties", {})):
                yield f"{place}.{name}: is required and not of the contract"


def _values(schema: Json) -> set[Any] | None:
    if "const" in schema:
        return {schema["const"]}
    return set(schema["enum"]) if "enum" in schema else None


def contradictions(contract: Json, served: Json) -> list[str]:
    ours, theirs = ToolDocument(contract), ToolDocument(served)
    found: list[str] = []
    for path, verb, promised in operations(contract):
        place = f"{verb.upper()} {path}"
        given = served["paths"].get(path, {}).get(verb)
        if given is None:
            found.append(f"{place}: is not served")
            continue
        found += _of_parameters(ours, theirs, promised, given, place)
        request, taken = (
            ours.body(promised.get("requestBody")),
            theirs.body(given.get("requestBody")),
        )
        if request is not None:
            found += Comparison(ours, theirs, served_is_inner=False).problems(
                request, taken or {"type": "null"}, f"{place} takes"
            )
        for status, answer in promised["responses"].items():
            message = given["responses"].get(status)
            if message is None:
                found.append(f"{place}: does not answer {status}")
                continue
            found += Comparison(theirs, ours, served_is_inner=True).problems(
                theirs.body(message), ours.body(answer), f"{place} answers {status}"
            )
    return found


def _of_parameters(
    ours: ToolDocument, theirs: ToolDocument, promised: Json, given: Json, place: str
) -> Iterator[str]:
    known = {(p["in"], p["name"]): p for p in given.get("parameters", [])}
    expected = {(p["in"], p["name"]): p for p in promised.get("parameters", [])}
    for key, parameter in expected.items():
        if key not in known or known[key]["required"] != parameter["required"]:
            yield f"{place} takes {key}: missing, or required otherwise"
            continue
        yield from Comparison(ours, theirs, served_is_inner=False).problems(
            parameter["schema"], known[key]["schema"], f"{place} takes {key[1]}"
        )
    for key, parameter in known.items():
        if parameter.get("required") and key not in expected:
            yield f"{place} takes {key}: is required and not of the contract"


def test_the_served_schema_contradicts_nothing_of_the_contract(
    contract: Json, served: Json
) -> None:
    assert contradictions(contract, served) == []


SEARCH = "/v1/containers/search"


@pytest.mark.parametrize("slip", range(9))
def test_a_slip_is_found(contract: Json, served: Json, slip: int) -> None:
    """What the comparison must not let pass."""
    changed = copy.deepcopy(served)
    schemas = changed["components"]["schemas"]
    request, answer = schemas["SearchRequest"], schemas["SearchResponse"]
    match slip:
        case 0:
            del changed["paths"][SEARCH]
        case 1:
            del answer["properties"]["hits"]
        case 2:
            answer["required"].remove("diagnostics")
        case 3:
            request["required"].append("query")
        case 4:
            request["required"].remove("top_k")
        case 5:
            request["properties"]["top_k"]["maximum"] = 50
        case 6:
            schemas["Hit"]["properties"]["score"] = {"type": "string"}
        case 7:
            schemas["SearchMode"]["enum"].remove("rerank")
        case _:
            schemas["IssueCode"]["enum"].append("SURPRISE")
    assert contradictions(contract, changed)


def test_every_error_of_every_route_is_declared_as_an_envelope(served: Json) -> None:
    for path, verb, operation in operations(served):
        if path in ("/healthz", "/readyz"):
            continue
        for status, message in operation["responses"].items():
            if status.startswith("4") and status != "416":
                content = message["content"]["application/json"]["schema"]
                assert content == {"$ref": "#/components/schemas/Envelope"}, (path, verb, status)
        assert {"400", "404", "429", "503"} <= set(operation["responses"]), (path, verb)
    assert "HTTPValidationError" not in served["components"]["schemas"]


def test_every_list_is_read_in_pages(served: Json) -> None:
    """Whatever answers a list of things of its own takes a cursor and a limit, and says where it goes on."""
    document = ToolDocument(served)
    for path, verb, operation in operations(served):
        answer = document.read(document.body(operation["responses"].get("200")))
        lists = [
            name
            for name, message in answer.get("properties", {}).items()
            if document.read(message).get("type") == "array" and name != "issues"
        ]
        if verb != "get" or not lists or path in SHORT:
            continue
        taken = {p["name"] for p in operation.get("parameters", [])}
        assert {"limit", "cursor"} <= taken, path
        assert "next_cursor" in answer["properties"], path


def test_every_text_number_and_list_of_a_parameter_has_a_bound(served: Json) -> None:
    document = ToolDocument(served)
    for path, verb, operation in operations(served):
        for parameter in operation.get("parameters", []):
            for schema in document.alternatives(parameter["schema"]):
                place = (path, verb, parameter["name"])
                if schema.get("type") == "string":
                    bounds = {"maxLength", "pattern", "format", "enum", "const"}
                    assert bounds & set(schema), place
                if schema.get("type") == "integer":
                    assert {"maximum", "exclusiveMaximum"} & set(schema), place
