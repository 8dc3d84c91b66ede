"""An installation within the test's own process: its app, its rows and what it asks of them can be looked at.

Two containers of different people: ``vault``, which the tests are after, and ``plaza``, which is somebody else's. Roles
are tokens of each kind; what they may do stands in ``tests/access/test_roles.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import httpx
import orjson
import psycopg
import pymupdf
from fastapi import FastAPI

from latent_core.domain.token import Scope
from latent_core.settings import Settings
from latent_core.stack import Stack
from latent_gateway.app import create_app
from latent_workers.worker import working
from tests.support.harness.installation import eventually
from tests.support.on_servers import ON_SERVERS, own_stores
from tests.support.servers.embedding_server import EmbeddingServer

BASE: Final = "http://127.0.0.1:7801"
VAULT: Final = "vault"
PLAZA: Final = "plaza"
YARD: Final = "yard"
"""Of the owner of the installation: the only container of the token ``narrowed``."""
SECRET: Final = "quicksilver"
"""Stands in the vault's name, in its documents and in their titles; nobody else may be told."""
EXPIRE: Final = "UPDATE tokens SET expires_at = now() WHERE id = %(id)s"
ROLES: Final[dict[str, tuple[str, list[str], list[str] | None]]] = {
    # role: (principal, scopes, containers)
    "writer": ("agent:writer", [*Scope], None),
    "reader": ("agent:reader", [*Scope], None),
    "other": ("agent:other", [*Scope], None),
    "ingester": ("agent:writer", ["write", "delete"], None),
    "admin": ("agent:admin", ["admin"], None),
    "narrowed": ("agent:writer", [*Scope], [YARD]),
    "revoked": ("agent:writer", [*Scope], None),
    "expired": ("agent:writer", [*Scope], None),
}
EVERYBODY: Final = ("owner", *ROLES, "nobody")


@dataclass
class GatewayHarness:
    app: FastAPI
    stack: Stack
    settings: Settings
    tokens: dict[str, str] = field(default_factory=dict)
    token_ids: dict[str, int] = field(default_factory=dict)
    doc_id: str = ""
    """A Markdown document of the vault, with its pages drawn."""
    pdf_id: str = ""
    chunk_id: str = ""
    job_id: int = 0
    """One of the vault's that is done."""
    upload_id: str = ""
    etag: str = ""
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def number(self) -> int:
        """Never the same twice."""
        return next(self._numbers)

    async def ask(
        self,
        role: str,
        method: str,
        path: str,
        *,
        body: Any = None,
        content: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        """Each from an address of its own: who has no valid token is told so, however often it is tried."""
        number = self.number()
        address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        sent = {"X-Request-Id": f"r{number}", **(headers or {})}
        if self.tokens[role]:
            sent["Authorization"] = f"Bearer {self.tokens[role]}"
        transport = httpx.ASGITransport(self.app, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as http:
            return await http.request(method, path, json=body, content=content, headers=sent)

    async def ask_json(self, role: str, method: str, path: str, **sent: Any) -> dict[str, Any]:
        """The body of an answer that must be a good one."""
        answer = await self.ask(role, method, path, **sent)
        assert answer.is_success, (method, path, answer.status_code, answer.text)
        answer_body: dict[str, Any] = orjson.loads(answer.content)
        return answer_body

    async def called(self, role: str, method: str, **params: Any) -> httpx.Response:
        """A lone request of MCP."""
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        accepted = {"Accept": "application/json, text/event-stream"}
        return await self.ask(role, "POST", "/mcp", body=body, headers=accepted)

    async def result(self, role: str, method: str, **params: Any) -> dict[str, Any]:
        """What such a request is answered: ``result`` or ``error`` of JSON-RPC."""
        answer = await self.called(role, method, **params)
        assert answer.status_code == 200, answer.text
        lines = [line for line in answer.text.splitlines() if line.startswith("data: ")]
        message = orjson.loads(lines[-1].removeprefix("data: ") if lines else answer.content)
        answer_body: dict[str, Any] = message.get("result") or message["error"]
        return answer_body

    async def upload(self, container_id: str, name: str, content: bytes) -> str:
        path = f"/v1/containers/{container_id}/uploads?filename={name}"
        answer = await self.ask_json("owner", "POST", path, content=content)
        return str(answer["upload"]["file_ref"])

    async def add(self, container_id: str, name: str, content: bytes) -> dict[str, Any]:
        upload = await self.upload(container_id, name, content)
        body = {"container_id": container_id, "file_ref": upload}
        return await self.ask_json("owner", "POST", "/v1/containers/add", body=body)

    async def make_token(self, role: str, principal: str, **body: Any) -> None:
        made = await self.ask_json(
            "owner", "POST", "/v1/tokens", body={"principal": principal, **body}
        )
        self.tokens[role], self.token_ids[role] = made["secret"], made["token"]["id"]


def manifest(container_id: str, owners: list[str], readers: list[str]) -> dict[str, Any]:
    return {
        "id": container_id,
        "name": f"{container_id} of {SECRET}" if container_id == VAULT else container_id,
        "embedder": "openai/test",
        "dims": 64,
        "dedup": {"semantic_threshold": 1.0},
        "acl": {"roles": {"owner": owners, "reader": readers}},
    }


VAULT_MANIFEST: Final = manifest(VAULT, ["local:you", "agent:writer"], ["agent:reader"])


@asynccontextmanager
async def furnished(folder: Path, **settings: Any) -> AsyncIterator[GatewayHarness]:
    """The vault filled, all jobs done, no worker running any more: what is queued stays so."""
    async with empty(folder, **settings) as harness:
        await _fill(harness)
        yield harness


@asynccontextmanager
async def empty(folder: Path, **settings: Any) -> AsyncIterator[GatewayHarness]:
    """A new installation without containers and tokens."""
    async with EmbeddingServer(dims=64) as server:
        given = Settings(
            _env_file=None,
            data_dir=folder,
            embed_base_url=server.base_url,
            embed_rate_limit_per_min=10**8,
            log_format="json",
            quota_requests_per_min=0,
            mcp_search_fetch=True,
            **_stores(),
            **settings,
        )
        async with Stack.open(given) as stack:
            app = create_app(given, stack)
            async with _lifespan(app):
                harness = GatewayHarness(app, stack, given)
                harness.tokens |= {"owner": stack.token, "nobody": ""}
                yield harness


def _stores() -> dict[str, Any]:
    """Servers, where the run is on them."""
    named = own_stores() if ON_SERVERS else {}
    return {name.removeprefix("LLC_").lower(): value for name, value in named.items()}


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """In one task from end to end, as a server runs it: a fixture begins in one and ends in another."""
    begun, over = asyncio.Event(), asyncio.Event()

    async def live() -> None:
        async with app.router.lifespan_context(app):
            begun.set()
            await over.wait()

    living = asyncio.create_task(live())
    await begun.wait()
    try:
        yield
    finally:
        over.set()
        await living


LATER_JOBS: Final = "ALTER TABLE jobs ALTER COLUMN id RESTART WITH 101"
"""So that the number of a job is no other word of an address, such as the 1 of v1."""


async def _fill(harness: GatewayHarness) -> None:
    async with harness.stack.db.transaction() as conn:
        await conn.execute(LATER_JOBS)
    yard = manifest(YARD, ["local:you"], [])
    await harness.ask_json("owner", "POST", "/v1/containers", body={"manifest": yard})
    for role, (principal, scopes, only) in ROLES.items():
        body = {"name": role, "scopes": scopes, **({"containers": only} if only else {})}
        await harness.make_token(role, principal, **body)
    await harness.ask_json("owner", "DELETE", f"/v1/tokens/{harness.token_ids['revoked']}")
    async with harness.stack.db.transaction() as conn:
        await conn.execute(EXPIRE, {"id": harness.token_ids["expired"]})
    for role, made in (("owner", VAULT_MANIFEST), ("other", manifest(PLAZA, ["agent:other"], []))):
        await harness.ask_json(role, "POST", "/v1/containers", body={"manifest": made})
    note = f"# The {SECRET} ledger\n\nWhoever keeps {SECRET} keeps it in glass.\n"
    async with working(harness.settings, harness.stack):
        added = await harness.add(VAULT, f"{SECRET}.md", note.encode())
        pdf = await harness.add(VAULT, "book.pdf", _book())
        await eventually(lambda: _quiet(harness), what="the queue to be empty")
    harness.doc_id, harness.job_id, harness.pdf_id = (
        added["doc_id"],
        int(added["job_id"]),
        pdf["doc_id"],
    )
    harness.upload_id = await harness.upload(VAULT, "pending.md", b"pending")
    chunks = await harness.ask_json(
        "owner", "GET", f"/v1/containers/{VAULT}/chunks?doc_id={harness.doc_id}"
    )
    harness.chunk_id = chunks["chunks"][0]["chunk_id"]
    described = await harness.ask_json(
        "owner", "GET", f"/v1/containers/describe?container_id={VAULT}"
    )
    harness.etag = described["etag"]


def _book() -> bytes:
    untyped: Any = pymupdf
    pages = untyped.open()
    pages.new_page().insert_text((72, 72), f"A chapter on {SECRET}.")
    data: bytes = pages.tobytes()
    return data


async def _quiet(harness: GatewayHarness) -> bool:
    jobs = await harness.ask_json("owner", "GET", f"/v1/jobs?container_id={VAULT}")
    waits = {"running", "queued"}
    return not any(job["state"] in waits and job["kind"] != "purge" for job in jobs["jobs"])


_OURS: ContextVar[bool] = ContextVar("ours", default=False)


@contextmanager
def statements() -> Iterator[list[str]]:
    """The SQL that the caller's requests send while the block lasts; that of tasks that ran before is not theirs."""
    sent: list[str] = []
    execute = psycopg.AsyncCursor.execute
    ours = _OURS.set(True)

    async def noting(self: Any, query: Any, *rest: Any, **more: Any) -> Any:
        if _OURS.get() and "pg_notify" not in str(query):  # that is told in the midst of anything
            sent.append(str(query))
        return await execute(self, query, *rest, **more)

    psycopg.AsyncCursor.execute = noting  # type: ignore[method-assign]
    try:
        yield sent
    finally:
        psycopg.AsyncCursor.execute = execute  # type: ignore[method-assign]
        _OURS.reset(ours)
