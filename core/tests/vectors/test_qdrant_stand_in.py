"""The stand-in for a Qdrant server answers like the server: statuses and texts that Qdrant 1.18.3 gave.

The same requests go to a given server (``LLC_TEST_QDRANT_URL``), so that a newer one that answers otherwise is noticed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest
from qdrant_client import models

from tests.support.servers import launch
from tests.support.servers.qdrant_engine import FakeQdrantEngine
from tests.support.servers.qdrant_requests import MAX_BYTES
from tests.support.servers.qdrant_server import QdrantServer

KEY: Final = "secret"
DOC: Final = "00000000-0000-0000-0000-000000000001"
VECTORS: Final = {"size": 2, "distance": "Cosine"}
HELP: Final = "Help: Create an index for this key or use a different filter."

Step = tuple[str, str, Any, int, str]
"""Method, path below the collection, body, status, and a part of the answer."""


def points(*ids: Any, dims: int = 2, vectors: int | None = None) -> dict[str, Any]:
    count = len(ids) if vectors is None else vectors
    payloads = [{"doc": DOC, "n": number} for number in range(len(ids))]
    rows = [[1.0] * dims for _ in range(count)]
    return {"batch": {"ids": list(ids), "vectors": rows, "payloads": payloads}}


def match(key: str, value: Any) -> dict[str, Any]:
    return {"must": [{"key": key, "match": {"value": value}}]}


def strict(**limits: Any) -> Step:
    body = {"strict_mode_config": {"enabled": True, **limits}}
    return ("PATCH", "", body, 200, '"result":true')


def index(field: str, schema: Any, query: str = "?wait=true") -> tuple[str, str, Any]:
    return ("PUT", f"/index{query}", {"field_name": field, "field_schema": schema})


COLLECTIONS: Final[list[Step]] = [
    ("GET", "", None, 404, "Not found: Collection `{name}` doesn't exist!"),
    ("PUT", "/points", points(1), 404, "Not found: Collection `{name}` doesn't exist!"),
    (*index("doc", "uuid"), 404, "Not found: Collection `{name}` doesn't exist!"),
    ("DELETE", "", None, 200, '"result":false'),
    ("GET", "/exists", None, 200, '{"exists":false}'),
    ("GET", "/nothing", None, 404, ""),
    ("POST", "", {}, 404, ""),
    ("PUT", "", {"vectors": {"size": 0, "distance": "Dot"}}, 400, "Format error in JSON body: "),
    (
        "PUT",
        "",
        {"vectors": {"size": 70000, "distance": "Dot"}},
        422,
        "[vectors.size: value 70000 invalid, must be from 1 to 65536]",
    ),
    (
        "PUT",
        "?timeout=0",
        {"vectors": VECTORS},
        422,
        "Validation error in query parameters: [timeout: value 0 invalid, must be 1 or larger]",
    ),
    ("PUT", "", {"vectors": VECTORS, "payload": {"memory": "cold"}, "new": 1}, 200, "true"),
    ("PUT", "", {"vectors": VECTORS}, 409, "Wrong input: Collection `{name}` already exists!"),
    ("GET", "", None, 200, '"params":{"vectors":{"size":2,"distance":"Cosine"}'),
    ("PATCH", "", {"params": {"write_consistency_factor": 0}}, 400, "Format error in JSON body: "),
]
INDEXES: Final[list[Step]] = [
    (*index("doc", "uuid"), 200, '"status":"completed"'),
    (*index("doc", "uuid"), 200, '"status":"completed"'),
    (*index("n", "keyword", "?wait=false"), 200, '"status":"acknowledged"'),
    (*index("n", "integer"), 200, '"status":"completed"'),
    ("GET", "", None, 200, '"n":{"data_type":"integer","points":0}'),
    (*index("x", None), 400, "Bad request: Can't auto-detect field type"),
    (*index("x", "word"), 400, "Format error in JSON body: "),
    ("DELETE", "/index/x?wait=true", None, 200, '"status":"completed"'),
]
UPDATES: Final[list[Step]] = [
    ("PUT", "/points?wait=true", points(1, 2, 3), 200, '"status":"completed"'),
    ("PUT", "/points", points(3), 200, '"status":"acknowledged"'),
    ("PUT", "/points?wait=true&timeout=5", points(3), 200, '"status":"completed"'),
    ("PUT", "/points?wait=yes", points(3), 400, "was not `true` or `false`"),
    ("PUT", "/points?timeout=x", points(3), 400, "Deserialize error in query parameters: "),
    ("PUT", "/points", points(), 400, "Bad request: Empty update request"),
    ("PUT", "/points", points(1, 2, vectors=1), 422, "ids and vectors must be equal (2 != 1)"),
    ("PUT", "/points", points("word"), 400, "value word is not a valid point ID"),
    (
        "PUT",
        "/points",
        points(1, dims=3),
        400,
        "Wrong input: Vector dimension error: expected dim: 2, got 3",
    ),
    ("POST", "/points/delete", {"points": []}, 400, "Bad request: Empty update request"),
]
READS: Final[list[Step]] = [
    ("POST", "/points", {"ids": [1, 1, 9]}, 200, '"result":[{"id":1}],'),
    ("POST", "/points?timeout=0", {"ids": [1]}, 400, "expected a nonzero u64"),
    ("POST", "/points?consistency=none", {"ids": [1]}, 400, "parameter value 'none'"),
    ("POST", "/points/count", {}, 200, '{"count":3}'),
    ("POST", "/points/scroll", {"limit": 0}, 422, "[scroll_request.limit: value 0 invalid"),
    ("POST", "/points/query", {"query": [1.0]}, 400, "expected dim: 2, got 1"),
    ("POST", "/points/query", {"query": [1.0, 1.0], "limit": 0}, 422, "[internal.limit: value 0"),
    ("POST", "/facet", {"key": "x"}, 400, "No appropriate index for faceting: `x`."),
]
STRICT_MODE: Final[list[Step]] = [
    strict(unindexed_filtering_retrieve=False, unindexed_filtering_update=False),
    (
        "POST",
        "/points/count",
        {"filter": match("x", DOC)},
        400,
        f'Bad request: Index required but not found for \\"x\\" of one of the following types: [keyword, uuid]. {HELP}',
    ),
    ("POST", "/points/count", {"filter": match("n", DOC)}, 400, "types: [keyword, uuid]"),
    (
        "POST",
        "/points/delete",
        {"filter": {"must": [{"key": "doc", "range": {"lt": 3}}]}},
        400,
        "[float, integer]",
    ),
    ("POST", "/points/count", {"filter": match("doc", DOC)}, 200, '{"count":3}'),
    strict(max_query_limit=2, max_timeout=3),
    (
        "POST",
        "/points/scroll",
        {"limit": 3},
        400,
        'Bad request: Limit exceeded 3 > 2 for \\"limit\\". Help: Reduce the \\"limit\\" parameter to or below 2.',
    ),
    ("POST", "/facet", {"key": "doc", "limit": 3}, 400, 'Limit exceeded 3 > 2 for \\"limit\\"'),
    ("POST", "/points/scroll", {}, 200, '"points":['),
    ("POST", "/points?timeout=4", {"ids": [1]}, 400, 'Limit exceeded 4 > 3 for \\"timeout\\"'),
    ("PUT", "/points?timeout=4", points(1), 400, 'Limit exceeded 4 > 3 for \\"timeout\\"'),
    strict(search_allow_exact=False, search_max_hnsw_ef=10, search_max_oversampling=1.5),
    ("POST", "/points/count", {}, 400, "Bad request: Exact search disabled!. Help: Set exact="),
    (
        "POST",
        "/points/query",
        {"query": [1.0, 1.0], "limit": 1, "params": {"quantization": {"oversampling": 2.0}}},
        400,
        'Limit exceeded 2 > 1.5 for \\"oversampling\\"',
    ),
    strict(upsert_max_batchsize=2, condition_max_size=2, max_payload_index_count=2),
    ("PUT", "/points", points(1, 2, 3), 400, 'Limit exceeded 3 > 2 for \\"upsert limit\\"'),
    (
        "POST",
        "/points/count",
        {"exact": False, "filter": {"must": [{"has_id": [1, 2, 3]}]}},
        400,
        "Bad request: Condition size limit reached (3 > 2). Help: Reduce the size of your condition.",
    ),
    (
        *index("doc", "uuid"),
        400,
        "Bad request: Collection already has the maximum number of payload indices (2). Help: Please delete an existing "
        "index before creating a new one.",
    ),
    strict(read_rate_limit=1, write_rate_limit=1),
    (
        "POST",
        "/points",
        {"ids": [1, 2]},
        429,
        "Rate limiting exceeded: Read rate limit exceeded, request larger than rate limiter capacity, please try to "
        "split your request",
    ),
    ("PUT", "/points", points(1), 200, "acknowledged"),
    (
        "PUT",
        "/points",
        points(1),
        429,
        "Rate limiting exceeded: Write rate limit exceeded: Operation requires 1 tokens but only 0.",
    ),
]


@pytest.fixture(params=["stand-in", "Qdrant server by REST"])
def client(request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    """Requests on a collection of the test's own, without strict mode."""
    path = f"/collections/t{uuid4().hex[:12]}"
    if request.param == "stand-in":
        with QdrantServer(api_key=KEY) as server:
            server.engine = FakeQdrantEngine(clock=lambda: 0.0)
            server.engine.strict = models.StrictModeConfig()
            with httpx.Client(base_url=server.url + path, headers={"api-key": KEY}) as found:
                yield found
        return
    given = launch.qdrant_address(f"answers of the stand-in, {request.param}")
    key = given.api_key.get_secret_value() if given.api_key else ""
    with httpx.Client(base_url=given.url + path, headers={"api-key": key}) as found:
        yield found
        found.delete("")


def test_the_server_and_its_stand_in_give_the_same_statuses_and_texts(client: httpx.Client) -> None:
    name = str(client.base_url).rstrip("/").rpartition("/")[2]
    steps = [*COLLECTIONS, *INDEXES, *UPDATES, *READS, *STRICT_MODE]
    for number, (method, path, body, status, text) in enumerate(steps):
        answer = client.request(method, path, json=body)
        found = (number, answer.status_code, answer.text)
        assert answer.status_code == status, found
        assert text.replace("{name}", name) in answer.text, found
        assert ("Retry-After" in answer.headers) == ("tokens" in text), found


def test_a_request_that_is_too_large_is_refused_with_400(client: httpx.Client) -> None:
    client.put("", json={"vectors": VECTORS})
    headers = {"Content-Type": "application/json"}
    answer = client.put("/points", content=b" " * (MAX_BYTES + 1), headers=headers)
    assert answer.status_code == 400
    assert answer.json()["status"]["error"] == (
        "JSON payload (33554433 bytes) is larger than allowed (limit: 33554432 bytes)."
    )


@pytest.mark.parametrize("path", ["/", "/healthz", "/livez", "/readyz", "/readyz/"])
def test_these_paths_need_no_key(path: str) -> None:
    with QdrantServer(api_key=KEY) as server:
        assert httpx.get(server.url + path).status_code == 200


def test_every_other_path_needs_the_key_even_if_there_is_nothing() -> None:
    with QdrantServer(api_key=KEY, read_only_key="reader") as server:
        for path in ("/collections", "/nothing"):
            answer = httpx.get(server.url + path)
            missing = "Must provide an API key or an Authorization bearer token"
            assert (answer.status_code, answer.text) == (401, missing)
            answer = httpx.get(server.url + path, headers={"api-key": "wrong"})
            assert (answer.status_code, answer.text) == (401, "Invalid API key or JWT")
        bearer = {"Authorization": f"Bearer {KEY}"}
        assert httpx.get(f"{server.url}/collections", headers=bearer).status_code == 200
        assert httpx.get(f"{server.url}/nothing", headers=bearer).status_code == 404
        answer = httpx.delete(f"{server.url}/collections/c", headers={"api-key": "reader"})
        assert answer.status_code == 403
        assert answer.json()["status"]["error"] == "Forbidden: Global manage access is required"


def test_readiness_is_plain_text() -> None:
    with QdrantServer() as server:
        server.ready = False
        answer = httpx.get(f"{server.url}/readyz")
        assert (answer.status_code, answer.text) == (503, "some shards are not ready")
