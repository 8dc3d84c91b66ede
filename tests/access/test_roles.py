"""Every route of the app with every kind of token: a table that says who gets what, and that no route may be missing from.

A role that gets 404, or 403 for a scope that it lacks, is asked again for something that does not exist: the two
answers, and the statements they cost, must be the same.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import httpx
import orjson
import pytest
import pytest_asyncio
from starlette.routing import BaseRoute, Mount, Route

from latent_core.blobs.writer import store
from latent_core.db.capacity import SINCE as OVER_CAPACITY
from latent_core.db.tokens import NOTE_USE
from latent_core.db.transfer import archives
from latent_core.domain.job import ArchiveKind
from latent_core.domain.manifest.model import Manifest
from latent_core.queue.admin import QUEUED
from latent_gateway.app import ROUTERS
from latent_gateway.mcp.tools import add
from latent_gateway.mcp.tools.registry import tools_of
from tests.support.archives import empty_archive
from tests.support.harness.gateway_harness import (
    BASE,
    EVERYBODY,
    PLAZA,
    SECRET,
    VAULT,
    VAULT_MANIFEST,
    GatewayHarness,
    furnished,
    manifest,
    statements,
)
from tests.support.queue import sql

pytestmark = pytest.mark.asyncio(loop_scope="module")

NO_TOKEN: Final = {"revoked": 401, "expired": 401, "nobody": 401}
OK: Final = 0
"""Stands for the status that a row says is good."""
Expected = Mapping[str, int]


def _of(**roles: int) -> Expected:
    """Roles in words; ``owner`` and ``writer`` are always let in, who has no valid token never."""
    return {"owner": OK, "writer": OK, **roles, **NO_TOKEN}


OPEN: Final = dict.fromkeys(EVERYBODY, OK)
ANYBODY: Final = dict.fromkeys(EVERYBODY, OK) | NO_TOKEN
READ: Final = _of(reader=OK, other=404, ingester=403, admin=403, narrowed=404)
LISTS: Final = _of(reader=OK, other=OK, ingester=403, admin=403, narrowed=OK)
WRITE: Final = _of(reader=403, other=404, ingester=OK, admin=403, narrowed=404)
CHANGE: Final = _of(reader=403, other=404, ingester=403, admin=404, narrowed=404)
CREATE: Final = _of(reader=OK, other=OK, ingester=403, admin=403, narrowed=403)
ITS_JOBS: Final = _of(reader=OK, other=404, ingester=OK, admin=403, narrowed=404)
STEER: Final = _of(reader=403, other=404, ingester=OK, admin=403, narrowed=404)
JOBS: Final = _of(reader=OK, other=OK, ingester=OK, admin=403, narrowed=OK)
OWN: Final = _of(reader=OK, other=OK, ingester=403, admin=OK, narrowed=OK)
"""Of what each owns: nothing is an answer as well."""
FILES: Final = _of(reader=404, other=404, ingester=403, admin=404, narrowed=404)
"""Of what is the owners' alone, and not told of to readers."""
OWNER: Final = dict.fromkeys(EVERYBODY, 403) | {"owner": OK} | NO_TOKEN
OPERATOR: Final = _of(reader=OK, other=OK, ingester=403, admin=OK, narrowed=403)


@dataclass
class RoleRequest:
    """One request; ``names`` are the identities in it that a stranger may not know."""

    path: str
    body: Any = None
    content: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()

    def elsewhere(self) -> RoleRequest:
        """The same for what does not exist."""
        path, body = self.path, orjson.dumps(self.body).decode()
        for name in self.names:
            path, body = path.replace(name, _another(name)), body.replace(name, _another(name))
        return RoleRequest(path, orjson.loads(body), self.content, self.headers, self.names)


def _another(name: str) -> str:
    """Of the same kind and length, and nobody's."""
    if name.isdecimal():
        return "9" * max(len(name), 9)
    try:
        return str(UUID(int=UUID(name).int ^ (1 << 64)))
    except ValueError:
        return "x" * len(name)


Build = Callable[[GatewayHarness], Awaitable[RoleRequest]]


@dataclass(frozen=True)
class Row:
    expected: Expected
    build: Build
    ok: tuple[int, ...] = (200,)


def plain(
    path: str, *, body: Any = None, headers: dict[str, str] | None = None, names: str = ""
) -> Build:
    """A request whose parts in braces are fields of the harness; those in ``names`` (and the vault) are the secret ones."""

    async def build(harness: GatewayHarness) -> RoleRequest:
        known = {**vars(harness), "vault": VAULT}

        def fill(text: str) -> str:
            return re.sub(r"\{(\w+)\}", lambda found: str(known[found[1]]), text)

        secret = tuple(str(known[name]) for name in ("vault", *names.split()))
        filled = None if body is None else orjson.loads(fill(orjson.dumps(body).decode()))
        given = {name: fill(value) for name, value in (headers or {}).items()}
        return RoleRequest(fill(path), filled, headers=given, names=secret)

    return build


async def _create(harness: GatewayHarness) -> RoleRequest:
    everybody = [f"agent:{name}" for name in ("writer", "reader", "other", "admin")]
    made = manifest(f"made-{harness.number()}", ["local:you", *everybody], [])
    return RoleRequest("/v1/containers", {"manifest": made})


async def _delete_container(harness: GatewayHarness) -> RoleRequest:
    made = {**VAULT_MANIFEST, "id": f"doomed-{harness.number()}"}
    await harness.ask_json("owner", "POST", "/v1/containers", body={"manifest": made})
    return RoleRequest(f"/v1/containers/{made['id']}", names=(made["id"],))


async def _restore_document(harness: GatewayHarness) -> RoleRequest:
    """A deleted note of the writer's."""
    body = {"container_id": VAULT, "text": f"Note {harness.number()}"}
    added = await harness.ask_json("writer", "POST", "/v1/containers/add", body=body)
    path = f"/v1/containers/{VAULT}/documents/{added['doc_id']}"
    await harness.ask_json("writer", "DELETE", path)
    return RoleRequest(f"{path}/restore", names=(VAULT, added["doc_id"]))


async def _delete_document(harness: GatewayHarness) -> RoleRequest:
    added = await harness.add(VAULT, f"doomed-{harness.number()}.md", b"soon gone")
    return RoleRequest(
        f"/v1/containers/{VAULT}/documents/{added['doc_id']}", names=(VAULT, added["doc_id"])
    )


async def _upload(harness: GatewayHarness) -> RoleRequest:
    path = f"/v1/containers/{VAULT}/uploads?filename=a.md"
    return RoleRequest(path, content=b"bytes", names=(VAULT,))


async def _cancel(harness: GatewayHarness) -> RoleRequest:
    added = await harness.add(VAULT, f"queued-{harness.number()}.md", b"never made")
    return RoleRequest(f"/v1/jobs/{added['job_id']}/cancel", names=(str(added["job_id"]),))


async def _group(harness: GatewayHarness) -> RoleRequest:
    """The group of a job of the vault, with an id that is told from other parts of a path."""
    lift = "SELECT setval(name, greatest(70000, nextval(name))) FROM pg_get_serial_sequence('job_batches', 'id') AS name"
    await sql(harness.stack.db, lift)
    added = await harness.add(VAULT, f"grouped-{harness.number()}.md", b"never made")
    rows = await sql(
        harness.stack.db, "SELECT batch_id FROM jobs WHERE id = %(id)s", id=int(added["job_id"])
    )
    return RoleRequest(f"/v1/job-groups/{rows[0]['batch_id']}", names=(str(rows[0]["batch_id"]),))


async def _requeue(harness: GatewayHarness) -> RoleRequest:
    target = await _cancel(harness)
    await harness.ask_json("owner", "POST", target.path)
    return RoleRequest(target.path.replace("cancel", "requeue"), names=target.names)


async def _blob(harness: GatewayHarness) -> RoleRequest:
    page = await harness.ask_json("owner", "GET", f"/v1/documents/{harness.doc_id}/pages/1")
    return RoleRequest(page["page"]["page_uri"].removeprefix(BASE))


LONG_IDS: Final = """
SELECT setval(name, greatest(70000, nextval(name))) FROM pg_get_serial_sequence('archives', 'id') AS name
"""
"""So that they can be told from other parts of a path."""


async def _export(harness: GatewayHarness) -> RoleRequest:
    kept = await _kept(harness, ArchiveKind.EXPORT)
    return RoleRequest(f"/v1/exports/{kept}", names=(str(kept),))


def _backup(ending: str = "", body: Any = None) -> Build:
    async def build(harness: GatewayHarness) -> RoleRequest:
        kept = await _kept(harness, ArchiveKind.BACKUP)
        path = f"/v1/backups/{kept}"
        given = None if body is None else {**body, "container_id": f"back-{harness.number()}"}
        return RoleRequest(f"{path}{ending}", given, names=(str(kept),))

    return build


async def _kept(harness: GatewayHarness, kind: ArchiveKind) -> int:
    """An archive of the vault."""
    data = empty_archive(Manifest.model_validate(VAULT_MANIFEST))
    sha256 = await store(harness.stack.db, harness.stack.blobs.own, data)
    async with harness.stack.db.transaction() as conn:
        await conn.execute(LONG_IDS)
        return await archives.insert(
            conn, kind, VAULT, sha256=sha256, size=len(data), filename="a.zst", job_id=0
        )


def _eval_run(ending: str = "") -> Build:
    async def build(harness: GatewayHarness) -> RoleRequest:
        async with harness.stack.db.transaction() as conn:
            await conn.execute(LONG_RUN_IDS)
            await conn.execute(DETAILED_RUN, {"container_id": VAULT})
            row = await (await conn.execute("SELECT max(id) AS id FROM eval_runs")).fetchone()
        number = str(row["id"]) if row else ""
        path = f"/v1/containers/{VAULT}/eval/runs/{number}"
        return RoleRequest(f"{path}{ending}{number if ending else ''}", names=(VAULT, number))

    return build


LONG_RUN_IDS: Final = """
SELECT setval(name, greatest(70000, nextval(name))) FROM pg_get_serial_sequence('eval_runs', 'id') AS name
"""

DETAILED_RUN: Final = """
INSERT INTO eval_runs (container_id, dataset, setup, figures, passed, principal, verdicts)
VALUES (%(container_id)s, 'golden', 'hybrid',
        '{"means": {"ndcg_at_10": 1, "recall_at_20": 1, "recall_at_100": 1, "mrr": 1, "zero_hit_rate": 0, "p50_ms": 1,
          "p95_ms": 1}, "queries": 1}', true, 'local:you',
        '[{"id": "q", "query": "glass", "ndcg_at_10": 1, "recall_at_20": 1, "hits": 1}]')
"""

GOLDEN_QUERY: Final = {"query": SECRET, "expect": ["glass"]}


def _golden_set(body: Any = None) -> Build:
    """The version that the vault's golden queries have now."""

    async def build(harness: GatewayHarness) -> RoleRequest:
        path = f"/v1/containers/{VAULT}/golden"
        known = await harness.ask_json("owner", "GET", path)
        return RoleRequest(path, body, headers={"If-Match": known["etag"]}, names=(VAULT,))

    return build


def _golden_query(body: Any = None) -> Build:
    async def build(harness: GatewayHarness) -> RoleRequest:
        path = f"/v1/containers/{VAULT}/golden"
        made = {**GOLDEN_QUERY, "id": f"query-{harness.number()}"}
        added = await harness.ask_json("owner", "POST", path, body=made)
        headers = {"If-Match": added["query"]["etag"]} if body else {}
        name = added["query"]["id"]
        return RoleRequest(f"{path}/{name}", body, headers=headers, names=(VAULT, name))

    return build


async def _import(harness: GatewayHarness) -> RoleRequest:
    made = (await _create(harness)).body["manifest"]
    data = empty_archive(Manifest.model_validate(made))
    return RoleRequest("/v1/imports?filename=a.zst", content=data)


async def _create_token(harness: GatewayHarness) -> RoleRequest:
    return RoleRequest("/v1/tokens", {"principal": "agent:new", "name": f"n{harness.number()}"})


def _token(below: str) -> Build:
    """A token of somebody else."""

    async def build(harness: GatewayHarness) -> RoleRequest:
        path = (await _revoke(harness)).path
        return RoleRequest(f"{path}{below}", names=(path.rpartition("/")[2],))

    return build


async def _revoke(harness: GatewayHarness) -> RoleRequest:
    body = {"principal": "agent:new", "name": f"n{harness.number()}"}
    made = await harness.ask_json("owner", "POST", "/v1/tokens", body=body)
    return RoleRequest(f"/v1/tokens/{made['token']['id']}")


async def _take_over(harness: GatewayHarness) -> RoleRequest:
    return RoleRequest(await _source(harness), {"host": "h", "folder": "/g"})


async def _forget(harness: GatewayHarness) -> RoleRequest:
    return RoleRequest(await _source(harness))


async def _source(harness: GatewayHarness) -> str:
    path = f"/v1/containers/{VAULT}/sources"
    body = {**SOURCE, "root": f"folder {harness.number()}"}
    source = (await harness.ask_json("ingester", "POST", path, body=body))["source"]
    return f"{path}/{source['source_id']}"


TUS: Final = {"Tus-Resumable": "1.0.0"}
UPLOADS: Final = f"/v1/containers/{VAULT}/resumable-uploads"


async def _begin_upload(harness: GatewayHarness) -> RoleRequest:
    headers = {**TUS, "Upload-Length": "3", "Upload-Metadata": "filename YS5tZA=="}
    return RoleRequest(UPLOADS, headers=headers, names=(VAULT,))


def _begun(by: str = "writer", **headers: str) -> Build:
    """An upload that ``by`` has begun: others do not see it, whatever they may do in the container."""

    async def build(harness: GatewayHarness) -> RoleRequest:
        begin = await _begin_upload(harness)
        answer = await harness.ask_json(by, "POST", begin.path, headers=begin.headers)
        file_ref = answer["resumable_upload"]["file_ref"]
        content = b"abc" if headers else None
        path = f"{UPLOADS}/{file_ref}"
        return RoleRequest(path, content=content, headers=TUS | headers, names=(file_ref,))

    return build


OWN_UPLOAD: Final = {
    **_of(reader=403, other=404, ingester=OK, admin=403, narrowed=404),
    "owner": 404,
}
"""Of the principal that the roles writer and ingester are."""
APPENDS: Final = {"Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}

SEARCH: Final = {"containers": ["{vault}"], "query": SECRET, "top_k": 3}
ADD: Final = {"container_id": "{vault}", "file_ref": "{upload_id}"}
LISTING: Final = {"root": "folder", "files": [], "delete_vanished": True}
SOURCE: Final = {"root": "folder", "host": "h", "folder": "/f"}
JUDGED: Final = {"id": "q", "query": SECRET, "relevant": {"a": 1}}
REFRESH: Final = {"container_id": "{vault}", "strategy": "inplace", "dry_run": True}
SELECTED: Final = {"container_id": "{vault}", "doc_ids": ["{pdf_id}"], "stream": False}
CONTAINER: Final = "/v1/containers/{vault}"
DOCUMENT: Final = "/v1/documents/{doc_id}"
JSON_RPC: Final = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ACCEPT: Final = {"Accept": "application/json, text/event-stream"}

NO_DOCUMENT: Final = {"doc_ids": ["00000000-0000-0000-0000-000000000000"]}
"""Of no document: the selection is accepted, and its only outcome is that it does not exist."""

TABLE: Final[dict[tuple[str, str], Row]] = {
    ("GET", "/healthz"): Row(OPEN, plain("/healthz")),
    ("GET", "/readyz"): Row(OPEN, plain("/readyz")),
    ("GET", "/openapi.json"): Row(OPEN, plain("/openapi.json")),
    ("GET", "/v1/blobs/{sha256}"): Row(OPEN, _blob),
    ("GET", "/metrics"): Row(OPERATOR, plain("/metrics")),
    ("GET", "/v1/containers/list"): Row(LISTS, plain("/v1/containers/list")),
    ("GET", "/v1/containers/describe"): Row(
        READ, plain("/v1/containers/describe?container_id={vault}")
    ),
    ("POST", "/v1/containers"): Row(CREATE, _create, (201,)),
    ("PUT", "/v1/containers/{container_id}"): Row(
        CHANGE,
        plain(CONTAINER, body={"manifest": VAULT_MANIFEST}, headers={"If-Match": '"{etag}"'}),
    ),
    ("PUT", "/v1/containers/{container_id}/state"): Row(
        CHANGE, plain(f"{CONTAINER}/state", body={"state": "active"})
    ),
    ("POST", "/v1/containers/{container_id}/plan"): Row(
        CHANGE, plain(f"{CONTAINER}/plan", body={"manifest": VAULT_MANIFEST})
    ),
    ("GET", "/v1/containers/{container_id}/sizes"): Row(READ, plain(f"{CONTAINER}/sizes")),
    ("DELETE", "/v1/containers/{container_id}"): Row(CHANGE, _delete_container, (202,)),
    ("POST", "/v1/containers/search"): Row(READ, plain("/v1/containers/search", body=SEARCH)),
    # The vault permits no language model: readers learn that, and others not that it is there.
    ("POST", "/v1/containers/ask"): Row(
        READ,
        plain("/v1/containers/ask", body={"containers": ["{vault}"], "question": "glass?"}),
        (403,),
    ),
    ("POST", "/v1/search"): Row(READ, plain("/v1/search", body=SEARCH)),
    ("POST", "/v1/doc_search"): Row(
        READ, plain("/v1/doc_search", body={"query": SECRET, "containers": ["{vault}"]})
    ),
    # Of each principal's own: tests/access/test_saved_searches.py.
    ("GET", "/v1/saved-searches"): Row(LISTS, plain("/v1/saved-searches")),
    ("POST", "/v1/saved-searches"): Row(
        READ, plain("/v1/saved-searches", body={"name": "s", "request": SEARCH}), (201,)
    ),
    ("DELETE", "/v1/saved-searches/{saved_id}"): Row(
        LISTS, plain("/v1/saved-searches/999999999"), (404,)
    ),
    ("POST", "/v1/containers/{container_id}/uploads"): Row(WRITE, _upload, (201,)),
    ("OPTIONS", "/v1/containers/{container_id}/resumable-uploads"): Row(
        WRITE, plain(UPLOADS), (204,)
    ),
    ("POST", "/v1/containers/{container_id}/resumable-uploads"): Row(WRITE, _begin_upload, (201,)),
    ("GET", "/v1/containers/{container_id}/resumable-uploads/{upload_id}"): Row(
        OWN_UPLOAD, _begun()
    ),
    ("PATCH", "/v1/containers/{container_id}/resumable-uploads/{upload_id}"): Row(
        OWN_UPLOAD, _begun(**APPENDS), (204,)
    ),
    ("DELETE", "/v1/containers/{container_id}/resumable-uploads/{upload_id}"): Row(
        OWN_UPLOAD, _begun(), (204,)
    ),
    ("POST", "/v1/containers/add"): Row(WRITE, plain("/v1/containers/add", body=ADD), (202,)),
    ("POST", "/v1/containers/{container_id}/listing"): Row(
        WRITE, plain(f"{CONTAINER}/listing", body=LISTING)
    ),
    ("GET", "/v1/containers/{container_id}/sources"): Row(WRITE, plain(f"{CONTAINER}/sources")),
    ("POST", "/v1/containers/{container_id}/sources"): Row(
        WRITE, plain(f"{CONTAINER}/sources", body=SOURCE), (201,)
    ),
    ("POST", "/v1/containers/{container_id}/sources/match"): Row(
        WRITE, plain(f"{CONTAINER}/sources/match", body={"root": "folder", "sha256": []})
    ),
    ("PUT", "/v1/containers/{container_id}/sources/{source_id}"): Row(WRITE, _take_over),
    ("DELETE", "/v1/containers/{container_id}/sources/{source_id}"): Row(WRITE, _forget),
    ("GET", "/v1/containers/{container_id}/documents"): Row(READ, plain(f"{CONTAINER}/documents")),
    ("GET", "/v1/containers/{container_id}/documents/{doc_id}"): Row(
        READ, plain(f"{CONTAINER}/documents/{{doc_id}}", names="doc_id")
    ),
    ("DELETE", "/v1/containers/{container_id}/documents/{doc_id}"): Row(
        WRITE, _delete_document, (202,)
    ),
    ("GET", "/v1/containers/{container_id}/documents/{doc_id}/outline"): Row(
        READ, plain(f"{CONTAINER}/documents/{{doc_id}}/outline", names="doc_id")
    ),
    ("GET", "/v1/containers/{container_id}/trash"): Row(WRITE, plain(f"{CONTAINER}/trash")),
    ("POST", "/v1/containers/{container_id}/documents/{doc_id}/restore"): Row(
        WRITE, _restore_document, (202,)
    ),
    ("GET", "/v1/containers/{container_id}/chunks"): Row(READ, plain(f"{CONTAINER}/chunks")),
    ("GET", "/v1/containers/{container_id}/chunks/stats"): Row(
        READ, plain(f"{CONTAINER}/chunks/stats")
    ),
    ("GET", "/v1/containers/{container_id}/chunks/{chunk_id}"): Row(
        READ, plain(f"{CONTAINER}/chunks/{{chunk_id}}", names="chunk_id")
    ),
    ("POST", "/v1/containers/{container_id}/eval"): Row(
        CHANGE, plain(f"{CONTAINER}/eval", body={"judged": [JUDGED]}), (202,)
    ),
    ("GET", "/v1/containers/{container_id}/eval"): Row(READ, plain(f"{CONTAINER}/eval")),
    ("GET", "/v1/containers/{container_id}/eval/runs"): Row(READ, plain(f"{CONTAINER}/eval/runs")),
    ("GET", "/v1/containers/{container_id}/eval/runs/{run_id}"): Row(READ, _eval_run()),
    ("GET", "/v1/containers/{container_id}/eval/runs/{run_id}/difference"): Row(
        READ, _eval_run("/difference?since=")
    ),
    ("GET", "/v1/containers/{container_id}/golden"): Row(READ, plain(f"{CONTAINER}/golden")),
    ("PUT", "/v1/containers/{container_id}/golden"): Row(
        CHANGE, _golden_set({"queries": [GOLDEN_QUERY]})
    ),
    ("DELETE", "/v1/containers/{container_id}/golden"): Row(CHANGE, _golden_set()),
    ("POST", "/v1/containers/{container_id}/golden"): Row(
        CHANGE, plain(f"{CONTAINER}/golden", body=GOLDEN_QUERY), (201,)
    ),
    ("PUT", "/v1/containers/{container_id}/golden/{query_id}"): Row(
        CHANGE, _golden_query(GOLDEN_QUERY)
    ),
    ("DELETE", "/v1/containers/{container_id}/golden/{query_id}"): Row(CHANGE, _golden_query()),
    ("GET", "/v1/containers/{container_id}/queries"): Row(CHANGE, plain(f"{CONTAINER}/queries")),
    ("DELETE", "/v1/containers/{container_id}/queries"): Row(CHANGE, plain(f"{CONTAINER}/queries")),
    ("GET", "/v1/documents/{doc_id}/pages"): Row(READ, plain(f"{DOCUMENT}/pages", names="doc_id")),
    ("GET", "/v1/documents/{doc_id}/pages/{page}"): Row(
        READ, plain(f"{DOCUMENT}/pages/1", names="doc_id")
    ),
    ("GET", "/v1/documents/{doc_id}/pages/{page}/boxes"): Row(
        READ, plain("/v1/documents/{pdf_id}/pages/1/boxes?wait_ms=0", names="pdf_id"), (200, 202)
    ),
    ("POST", "/v1/containers/{container_id}/documents/reingest"): Row(
        WRITE, plain(f"{CONTAINER}/documents/reingest", body=NO_DOCUMENT), (202,)
    ),
    ("POST", "/v1/containers/{container_id}/documents/delete"): Row(
        WRITE, plain(f"{CONTAINER}/documents/delete", body=NO_DOCUMENT), (202,)
    ),
    ("GET", "/v1/containers/{container_id}/originals"): Row(
        READ, plain(f"{CONTAINER}/originals?doc={{pdf_id}}", names="pdf_id")
    ),
    ("GET", "/v1/documents/{doc_id}/pages/{page}/pdf"): Row(
        READ, plain("/v1/documents/{pdf_id}/pages/1/pdf?wait_ms=0", names="pdf_id"), (200, 202)
    ),
    ("POST", "/v1/containers/export"): Row(
        CHANGE, plain("/v1/containers/export", body={"container_id": "{vault}"}), (200, 202)
    ),
    ("GET", "/v1/exports/{archive_id}"): Row(FILES, _export),
    ("POST", "/v1/imports"): Row(CREATE, _import, (202,)),
    ("GET", "/v1/backups"): Row(OWN, plain("/v1/backups")),
    ("POST", "/v1/backups"): Row(
        CHANGE, plain("/v1/backups", body={"container_id": "{vault}"}), (202,)
    ),
    ("GET", "/v1/backups/{backup_id}"): Row(FILES, _backup()),
    ("DELETE", "/v1/backups/{backup_id}"): Row(FILES, _backup(), (202,)),
    ("POST", "/v1/backups/{backup_id}/verify"): Row(FILES, _backup("/verify"), (202,)),
    ("POST", "/v1/backups/{backup_id}/restore"): Row(FILES, _backup("/restore", {}), (202,)),
    ("GET", "/v1/jobs"): Row(JOBS, plain("/v1/jobs")),
    ("GET", "/v1/job-groups"): Row(JOBS, plain("/v1/job-groups")),
    ("GET", "/v1/job-groups/{group_id}"): Row(ITS_JOBS, _group),
    ("GET", "/v1/jobs/{job_id}"): Row(ITS_JOBS, plain("/v1/jobs/{job_id}", names="job_id")),
    ("GET", "/v1/jobs/{job_id}/events"): Row(
        ITS_JOBS, plain("/v1/jobs/{job_id}/events", names="job_id")
    ),
    ("POST", "/v1/jobs/{job_id}/cancel"): Row(STEER, _cancel, (202,)),
    ("POST", "/v1/jobs/{job_id}/requeue"): Row(STEER, _requeue, (202,)),
    ("POST", "/v1/requeue"): Row(
        WRITE, plain("/v1/requeue", body={"container_id": "{vault}"}), (202,)
    ),
    ("GET", "/v1/admin/status"): Row(OPERATOR, plain("/v1/admin/status")),
    ("GET", "/v1/admin/settings"): Row(OPERATOR, plain("/v1/admin/settings")),
    ("GET", "/v1/admin/providers"): Row(OPERATOR, plain("/v1/admin/providers")),
    ("POST", "/v1/admin/model-test"): Row(
        OPERATOR, plain("/v1/admin/model-test", body={"model": "nothing/here"}), (400,)
    ),
    ("GET", "/v1/models"): Row(OWNER, plain("/v1/models")),
    ("GET", "/v1/admin/installation"): Row(OWNER, plain("/v1/admin/installation")),
    ("POST", "/v1/admin/installation"): Row(OWNER, plain("/v1/admin/installation", body={})),
    # The harness calls from other machines, which get no link (tests/console/test_sign_in_links.py).
    ("POST", "/v1/admin/sign-in-link"): Row(OWNER, plain("/v1/admin/sign-in-link"), (403,)),
    ("POST", "/v1/admin/doctor"): Row(
        CHANGE, plain("/v1/admin/doctor", body={"container_id": "{vault}"})
    ),
    ("GET", "/v1/documents/{doc_id}/original"): Row(
        READ, plain("/v1/documents/{pdf_id}/original", names="pdf_id")
    ),
    ("GET", "/v1/admin/pdf-status"): Row(
        CHANGE, plain("/v1/admin/pdf-status?container_id={vault}")
    ),
    ("POST", "/v1/admin/process-selected"): Row(
        CHANGE, plain("/v1/admin/process-selected", body=SELECTED, names="pdf_id"), (202,)
    ),
    ("GET", "/v1/admin/understanding"): Row(
        CHANGE, plain("/v1/admin/understanding?container_id={vault}")
    ),
    ("POST", "/v1/admin/extract"): Row(
        CHANGE, plain("/v1/admin/extract", body=SELECTED, names="pdf_id"), (400,)
    ),
    ("POST", "/v1/admin/drop-generated"): Row(
        CHANGE,
        plain(
            "/v1/admin/drop-generated",
            body={
                "container_id": "{vault}",
                "group": "extraction",
                "doc_ids": ["{pdf_id}"],
            },
            names="pdf_id",
        ),
        (202,),
    ),
    ("POST", "/v1/admin/summarise"): Row(
        CHANGE,
        plain(
            "/v1/admin/summarise",
            body={"container_id": "{vault}", "doc_ids": ["{pdf_id}"]},
            names="pdf_id",
        ),
        (400,),
    ),
    ("GET", "/v1/containers/{container_id}/documents/{doc_id}/summary"): Row(
        READ, plain("/v1/containers/{vault}/documents/{pdf_id}/summary", names="pdf_id"), (404,)
    ),
    ("GET", "/v1/containers/{container_id}/pages"): Row(
        READ, plain("/v1/containers/{vault}/pages?page=1")
    ),
    ("GET", "/v1/documents/{doc_id}/pages/{page}/extraction"): Row(
        READ, plain("/v1/documents/{pdf_id}/pages/1/extraction", names="pdf_id"), (404,)
    ),
    ("POST", "/v1/admin/refresh"): Row(CHANGE, plain("/v1/admin/refresh", body=REFRESH)),
    ("POST", "/v1/admin/rollback"): Row(
        CHANGE, plain("/v1/admin/rollback", body={"container_id": "{vault}"}), (409,)
    ),
    ("GET", "/v1/audit"): Row(OWN, plain("/v1/audit")),
    ("POST", "/v1/tokens"): Row(OWNER, _create_token, (201,)),
    ("GET", "/v1/tokens"): Row(OWNER, plain("/v1/tokens")),
    ("DELETE", "/v1/tokens/{token_id}"): Row(OWNER, _revoke),
    ("GET", "/v1/tokens/{token_id}"): Row(OWNER, _token("")),
    ("GET", "/v1/tokens/{token_id}/calls"): Row(OWNER, _token("/calls")),
    ("GET", "/v1/tokens/{token_id}/changes"): Row(OWNER, _token("/changes")),
    ("GET", "/mcp/tools"): Row(ANYBODY, plain("/mcp/tools")),
    ("POST", "/mcp"): Row(ANYBODY, plain("/mcp", body=JSON_RPC, headers=ACCEPT)),
    ("GET", "/mcp/"): Row(ANYBODY, plain("/mcp/"), (404,)),
    ("POST", "/mcp/"): Row(ANYBODY, plain("/mcp/"), (404,)),
    ("DELETE", "/mcp/"): Row(ANYBODY, plain("/mcp/"), (404,)),
    ("POST", "/mcp/connector"): Row(
        ANYBODY, plain("/mcp/connector", body=JSON_RPC, headers=ACCEPT)
    ),
    ("GET", "/mcp/connector/"): Row(ANYBODY, plain("/mcp/connector/"), (404,)),
    ("POST", "/mcp/connector/"): Row(ANYBODY, plain("/mcp/connector/"), (404,)),
    ("DELETE", "/mcp/connector/"): Row(ANYBODY, plain("/mcp/connector/"), (404,)),
}
"""A route that is not here fails the test below: whoever adds one says here who may use it."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(install_root: Path) -> AsyncIterator[GatewayHarness]:
    async with furnished(install_root / "roles") as one:
        yield one


def routes_of(routes: list[BaseRoute]) -> set[tuple[str, str]]:
    """Method and path of every route, those of mounted apps by their mount."""
    found: set[tuple[str, str]] = set()
    for route in routes:
        if isinstance(route, Mount):
            found.add(("GET", f"{route.path}/"))
        elif isinstance(route, Route):
            path = route.path.replace(":path}", "}")  # as the schema names it
            found |= {(method, path) for method in (route.methods or {"GET"}) - {"HEAD"}}
    return found


async def test_every_route_of_the_app_stands_in_the_table(harness: GatewayHarness) -> None:
    served = routes_of(list(harness.app.routes))
    for module in ROUTERS:
        served |= routes_of(list(module.router.routes))
    schema = harness.app.openapi()["paths"]
    served |= {(verb.upper(), path) for path, item in schema.items() for verb in item}
    assert served >= set(TABLE), "the table names routes that are not there"
    assert not {one for one in served - set(TABLE) if not is_console(one[1])}


def is_console(path: str) -> bool:
    return not path.startswith(("/v1", "/mcp", "/healthz", "/readyz", "/metrics", "/openapi"))


@pytest.mark.parametrize(("method", "path"), TABLE, ids=lambda part: str(part).strip("/"))
async def test_each_role_gets_what_the_table_says_and_nothing_more(
    harness: GatewayHarness, method: str, path: str
) -> None:
    row = TABLE[method, path]
    wrong = []
    for role in EVERYBODY:
        target = await row.build(harness)
        answer = await _ask(harness, role, method, target)
        required = row.expected[role]
        if answer.status_code not in (row.ok if required == OK else (required,)):
            wrong.append((role, required, answer.status_code, answer.text[:300]))
        if required != OK:
            assert SECRET not in answer.text, (role, answer.text)
        # Who may read the vault and not change it is told so: it is known to be there.
        if required == 404 or (required == 403 and role != "reader"):
            await _same_as_nothing(harness, role, method, target)
    assert not wrong


async def _ask(
    harness: GatewayHarness, role: str, method: str, target: RoleRequest
) -> httpx.Response:
    return await harness.ask(
        role, method, target.path, body=target.body, content=target.content, headers=target.headers
    )


PERIODIC = (NOTE_USE, QUEUED, OVER_CAPACITY)
"""Statements that a gateway sends at most once per minute, second or two, whatever is requested."""


async def _same_as_nothing(
    harness: GatewayHarness, role: str, method: str, target: RoleRequest
) -> None:
    """Body, code and query path of what may not be seen are those of what is not there."""
    answer_body, cost = [], []
    for one, names in ((target, target.names), (target.elsewhere(), map(_another, target.names))):
        with statements() as sent:
            answer = await _ask(harness, role, method, one)
        text = answer.text.replace(answer.headers["x-request-id"], "")
        for name in names:
            text = text.replace(name, "…")
        answer_body.append((answer.status_code, text))
        cost.append([statement for statement in sent if statement not in PERIODIC])
    assert answer_body[0] == answer_body[1], role
    assert cost[0] == cost[1], role


async def test_selected_documents_are_followed_until_no_job_works_on_any(
    harness: GatewayHarness,
) -> None:
    body = {"container_id": VAULT, "doc_ids": [harness.pdf_id]}
    answer = await harness.ask("writer", "POST", "/v1/admin/process-selected", body=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = re.findall(r"event: (\w+)\ndata: (.*)\n\n", answer.text)
    assert [name for name, _ in events] == ["accepted", "document", "end"]
    accepted, document = (orjson.loads(data) for _, data in events[:2])
    assert accepted["documents"][0]["action"] == "none"
    assert (document["status"], document["total"], document["processed"]) == ("drawn", 1, 1)
    answer_body = await harness.ask_json(
        "writer", "GET", f"/v1/admin/pdf-status?container_id={VAULT}"
    )
    assert document in answer_body["documents"]
    audited = await harness.ask_json("owner", "GET", "/v1/audit?action=document.process")
    assert audited["audit"][0]["principal"] == "agent:writer"


async def test_a_document_of_another_container_cannot_be_selected(harness: GatewayHarness) -> None:
    body = {"container_id": PLAZA, "doc_ids": [harness.pdf_id]}
    theirs = await harness.ask("other", "POST", "/v1/admin/process-selected", body=body)
    body["doc_ids"] = [_another(harness.pdf_id)]
    nobodys = await harness.ask("other", "POST", "/v1/admin/process-selected", body=body)
    assert theirs.status_code == nobodys.status_code == 404
    assert SECRET not in theirs.text


KEPT_RUNS: Final = """
INSERT INTO eval_runs (container_id, dataset, setup, figures, passed, principal)
SELECT %(container_id)s, 'golden', 'setup ' || n,
       '{"means": {"ndcg_at_10": 1, "recall_at_20": 1, "recall_at_100": 1, "mrr": 1, "zero_hit_rate": 0, "p50_ms": 1,
         "p95_ms": 1}, "ndcg_by_query": {}}', true, 'local:you'
FROM generate_series(1, 3) AS n
"""


async def test_backups_and_kept_runs_are_read_page_by_page(harness: GatewayHarness) -> None:
    for _ in range(3):
        await _kept(harness, ArchiveKind.BACKUP)
    async with harness.stack.db.transaction() as conn:
        await conn.execute(KEPT_RUNS, {"container_id": VAULT})
    for path, name in (
        (f"/v1/backups?container_id={VAULT}", "backups"),
        (f"/v1/containers/{VAULT}/eval?", "runs"),
    ):
        whole = (await harness.ask_json("owner", "GET", path))[name]
        seen, cursor = [], ""
        while cursor is not None:
            page = await harness.ask_json(
                "owner", "GET", f"{path}&limit=2{cursor and '&cursor='}{cursor}"
            )
            assert len(page[name]) <= 2
            seen, cursor = [*seen, *page[name]], page["next_cursor"]
        assert len(whole) >= 3
        assert seen == whole


async def test_golden_queries_in_the_manifest_folder_stay_and_the_answer_of_the_deletion_says_so(
    harness: GatewayHarness,
) -> None:
    for content in (None, b'{"queries": [{"q": "glass", "expect": ["glass"]}]}'):
        target = await _delete_container(harness)
        (name,) = target.names
        file = harness.settings.manifests / name / "eval.json"
        if content is not None:
            file.parent.mkdir()
            file.write_bytes(content)
        answer_body = await harness.ask_json("owner", "DELETE", target.path)
        assert file.exists() is (content is not None)
        assert [issue["details"]["files"] for issue in answer_body["issues"]] == (
            [[f"{name}/eval.json"]] if content else []
        )


async def test_lists_name_only_what_is_seen(harness: GatewayHarness) -> None:
    for path, role, seen in [
        ("/v1/containers/list", "reader", True),
        ("/v1/containers/list", "other", False),
        ("/v1/containers/list", "narrowed", False),
        ("/v1/jobs", "ingester", True),
        ("/v1/jobs", "other", False),
        ("/v1/jobs", "narrowed", False),
        ("/v1/admin/pdf-status", "writer", True),
        ("/v1/admin/pdf-status", "reader", False),
        ("/v1/admin/pdf-status", "other", False),
        ("/v1/audit", "writer", True),
        ("/v1/audit", "reader", False),
        ("/v1/audit", "admin", False),
        ("/v1/audit", "other", False),
    ]:
        answer = await harness.ask(role, "GET", path)
        assert answer.status_code == 200
        assert (f'"{VAULT}"' in answer.text) is seen, (path, role)
        assert seen or SECRET not in answer.text


async def test_a_search_of_all_finds_only_what_may_be_read(harness: GatewayHarness) -> None:
    body = {"query": SECRET}
    assert (await harness.ask_json("reader", "POST", "/v1/doc_search", body=body))["hits"]
    for role in ("other", "narrowed"):
        answer = await harness.ask(role, "POST", "/v1/doc_search", body=body)
        assert SECRET not in answer.text.replace(f'"query":"{SECRET}"', "")


@dataclass(frozen=True)
class ToolRow:
    arguments: dict[str, Any]
    listed: frozenset[str]
    """Roles that are told of it."""
    works: frozenset[str]
    """And those for whom it does what it is asked with the vault."""
    names: str = ""
    build: Build | None = None
    """Makes the arguments for each role, instead of ``arguments``."""


INVALID_PARAMS: Final = -32602
"""Of a tool that the token may not call: it is unknown."""
READERS: Final = frozenset({"owner", "writer", "reader"})
WITH_READ: Final = READERS | {"other", "narrowed"}
WITH_INGEST: Final = WITH_READ | {"ingester"}
WRITERS: Final = frozenset({"owner", "writer", "ingester"})
WITH_ADMIN: Final = WITH_READ | {"admin"}
OWNERS: Final = frozenset({"owner", "writer"})
WITH_CREATE: Final = WITH_READ - {"ingester"}


async def _note_to_delete(harness: GatewayHarness) -> RoleRequest:
    body = {"container_id": VAULT, "text": f"Note {harness.number()}"}
    added = await harness.ask_json("writer", "POST", "/v1/containers/add", body=body)
    return RoleRequest("/", {"doc_id": added["doc_id"]}, names=(added["doc_id"],))


async def _new_container(harness: GatewayHarness) -> RoleRequest:
    return RoleRequest("/", {"id": f"made-{harness.number()}"})


TOOLS: Final[dict[str, ToolRow]] = {
    "containers_list": ToolRow({}, WITH_READ, WITH_READ),
    "containers_describe": ToolRow({"container_id": "{vault}"}, WITH_READ, READERS),
    "containers_search": ToolRow({"containers": ["{vault}"], "query": "glass"}, WITH_READ, READERS),
    "doc_search": ToolRow({"containers": ["{vault}"], "query": "glass"}, WITH_READ, READERS),
    "containers_create": ToolRow({}, WITH_CREATE, WITH_CREATE - {"narrowed"}, build=_new_container),
    "documents_add": ToolRow(ADD, WITH_INGEST, WRITERS),
    "documents_list": ToolRow({"container_id": "{vault}"}, WITH_READ, READERS),
    "documents_outline": ToolRow({"doc_id": "{doc_id}"}, WITH_READ, READERS, "doc_id"),
    "documents_delete": ToolRow({}, WITH_INGEST, OWNERS, build=_note_to_delete),
    "documents_get": ToolRow({"doc_id": "{doc_id}"}, WITH_READ, READERS, "doc_id"),
    "page_image": ToolRow({"doc_id": "{doc_id}", "page": 1}, WITH_READ, READERS, "doc_id"),
    "jobs_get": ToolRow({"job_id": "{job_id}"}, WITH_INGEST, READERS | {"ingester"}, "job_id"),
    "containers_export": ToolRow({"container_id": "{vault}"}, WITH_ADMIN, OWNERS),
    "admin_refresh": ToolRow(REFRESH, WITH_ADMIN, OWNERS),
    "search": ToolRow({"query": "glass"}, WITH_READ, WITH_READ),
    "fetch": ToolRow({"id": "{doc_id}:{chunk_id}"}, WITH_READ, READERS, "doc_id chunk_id"),
}
VALID: Final = tuple(role for role in EVERYBODY if role not in NO_TOKEN)


async def test_every_tool_stands_in_the_table(harness: GatewayHarness) -> None:
    assert {tool.wire_name for tool in tools_of(harness.settings)} == set(TOOLS)


@pytest.mark.parametrize("tool", TOOLS)
async def test_each_role_lists_exactly_the_tools_it_may_call(
    harness: GatewayHarness, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(add, "MAX_WAIT_SECONDS", 0)  # no worker runs here
    row = TOOLS[tool]
    for role in VALID:
        built = await (row.build or plain("/", body=row.arguments, names=row.names))(harness)
        arguments = {k: int(v) if k == "job_id" else v for k, v in built.body.items()}
        listed = {t["name"] for t in (await harness.result(role, "tools/list"))["tools"]}
        assert (tool in listed) is (role in row.listed), role
        result = await harness.result(role, "tools/call", name=tool, arguments=arguments)
        text = orjson.dumps(result).decode()
        refused = result.get("isError", False) or result.get("code") == INVALID_PARAMS
        assert refused is (role not in row.works), (role, text[:300])
        if role not in READERS | {"ingester"}:
            assert SECRET not in text, (role, text)
        if role not in row.works | {"reader"}:
            await _tool_tells_of_nothing(harness, role, tool, arguments, built.names)
    plainly = await harness.ask_json("reader", "GET", "/mcp/tools")
    assert {t["mcpName"] for t in plainly["tools"]} == {
        n for n, r in TOOLS.items() if "reader" in r.listed
    }


async def _tool_tells_of_nothing(
    harness: GatewayHarness, role: str, tool: str, arguments: dict[str, Any], names: tuple[str, ...]
) -> None:
    """What is refused is refused in the same words, by the same statements, as what is not there."""
    answer_body, cost = [], []
    other = dict(zip(names, map(_another, names), strict=True))
    for renamed in ({}, other):
        target = orjson.loads(_renamed(orjson.dumps(arguments).decode(), renamed))
        with statements() as sent:
            result = await harness.result(role, "tools/call", name=tool, arguments=target)
        known = dict.fromkeys([renamed.get(name, name) for name in names], "…")
        text = re.sub(r"\br\d+\b", "", orjson.dumps(result).decode())  # the request's id
        answer_body.append(_renamed(text, known))
        cost.append([statement for statement in sent if statement not in PERIODIC])
    assert answer_body[0] == answer_body[1], (role, tool)
    assert cost[0] == cost[1], (role, tool)


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """With other names; numbers that are parts of others stay."""
    for name, other in names.items():
        text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", other, text)
    return text


async def test_resources_and_their_completion_tell_strangers_what_they_tell_of_nothing(
    harness: GatewayHarness,
) -> None:
    nothing = {"container": "never-was", "document": str(uuid4()), "page": f"{uuid4()}/1"}
    there = {"container": VAULT, "document": harness.doc_id, "page": f"{harness.doc_id}/1"}
    for role in VALID:
        for kind, name in there.items():
            answer_body = await harness.result(role, "resources/read", uri=f"{kind}://{name}")
            if role in READERS:
                assert SECRET in orjson.dumps(answer_body).decode()
                continue
            of_nothing = await harness.result(
                role, "resources/read", uri=f"{kind}://{nothing[kind]}"
            )
            shown = (orjson.dumps(answer_body).decode().replace(name.removesuffix("/1"), "…"),)
            unshown = (
                orjson.dumps(of_nothing).decode().replace(nothing[kind].removesuffix("/1"), "…")
            )
            assert shown == (unshown,)
        listed = await harness.result(role, "resources/list")
        assert (f"container://{VAULT}" in orjson.dumps(listed).decode()) is (role in READERS)
        for argument, value, found in [
            ("container://{id}", ("id", "vau"), VAULT),
            ("document://{id}", ("id", harness.doc_id[:6]), harness.doc_id),
        ]:
            completed = await harness.result(
                role,
                "completion/complete",
                ref={"type": "ref/resource", "uri": argument},
                argument={"name": value[0], "value": value[1]},
            )
            assert (found in orjson.dumps(completed).decode()) is (role in READERS), role


async def test_records_of_a_backup_are_added_once_and_their_tokens_are_valid_again(
    harness: GatewayHarness,
) -> None:
    await harness.make_token("kept", "agent:reader", name="kept", scopes=["read"])
    path = "/v1/admin/installation"
    found = await harness.ask_json("owner", "GET", path)
    (record,) = [token for token in found["tokens"] if token["name"] == "kept"]
    await sql(harness.stack.db, "DELETE FROM tokens WHERE name = 'kept'")
    assert (await harness.ask("kept", "GET", "/v1/containers/list")).status_code == 401

    line = {
        "at": "2025-01-02T03:04:05Z",
        "principal": "agent:reader",
        "action": "document.add",
        "container_id": VAULT,
        "object": None,
        "request_id": None,
    }
    body = {"tokens": [record], "audit": [line]}
    added = await harness.ask_json("owner", "POST", path, body=body)
    assert (added["tokens"], added["audit"]) == (1, 1)
    assert (await harness.ask("kept", "GET", "/v1/containers/list")).status_code == 200
    again = await harness.ask_json("owner", "POST", path, body=body)
    assert (again["tokens"], again["audit"], again["containers"]) == (0, 0, 0)


async def test_a_restored_token_has_no_scope_that_the_restorer_lacks(
    harness: GatewayHarness,
) -> None:
    await harness.make_token("lesser", "local:you", name="lesser", scopes=["admin"])
    found = await harness.ask_json("lesser", "GET", "/v1/admin/installation")
    record = found["tokens"][0] | {"sha256": "0" * 64, "scopes": ["read"]}
    refused = await harness.ask(
        "lesser", "POST", "/v1/admin/installation", body={"tokens": [record]}
    )
    assert refused.status_code == 403
