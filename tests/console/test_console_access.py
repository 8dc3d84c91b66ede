"""Every route of the console, as every kind of visitor: a table, and no route may be missing from it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import httpx
import pytest
import pytest_asyncio
from starlette.routing import Route

from latent_client import AsyncClient
from latent_core.domain.manifest.model import Acl, Manifest, Roles
from latent_gateway.console import site
from tests.conftest import DIMS
from tests.http.test_http_surface import ingest, settled
from tests.support.harness.console_http import sign_in, stranger
from tests.support.harness.installation import Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET: Final = "the lamp is lit at dusk"
NAMED: Final = re.compile(r"vault|never|job \d+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""What was asked for, as an answer repeats it."""
SIGN_IN: Final = {"nobody": 303, "revoked": 303}
"""Led to the sign-in page."""
ANYBODY: Final = SIGN_IN | {"owner": 200, "reader": 200, "other": 200, "ingester": 403}
READ: Final = SIGN_IN | {"owner": 200, "reader": 200, "other": 404, "ingester": 403}
JOBS: Final = SIGN_IN | {"owner": 200, "reader": 200, "other": 404, "ingester": 200}
STEER: Final = SIGN_IN | {"owner": 409, "reader": 403, "other": 404, "ingester": 409}
"""A job that is done is neither cancelled nor tried again."""
SIGNED_IN: Final = SIGN_IN | dict.fromkeys(("owner", "reader", "other", "ingester"), 200)
SEND: Final = SIGN_IN | {"owner": 303, "reader": 403, "other": 404, "ingester": 303}
OPERATE: Final = SIGN_IN | {"owner": 200, "reader": 403, "other": 403, "ingester": 403}
"""Scope admin is needed, and for some pages a token of the whole installation."""
UNFILLED: Final = SIGN_IN | dict.fromkeys(("owner", "reader", "other", "ingester"), 400)
"""A form without its fields."""
NO_FILE: Final = OPERATE | {"owner": 400}
NO_ARCHIVE: Final = OPERATE | {"owner": 404}
START: Final = OPERATE | {"owner": 303}
OWNED: Final = SIGN_IN | {"owner": 200, "reader": 403, "other": 403, "ingester": 403}
REFRESH: Final = OWNED | {"owner": 303}
"""One is begun, and the way back ends it."""
DOWNLOAD: Final = READ | {"owner": 303, "reader": 303}
"""To the link, which is signed for a few minutes."""
NO_SEARCH: Final = SIGN_IN | dict.fromkeys(("owner", "reader", "other", "ingester"), 400)
"""The form is empty."""
NO_MODEL: Final = SIGN_IN | dict.fromkeys(("owner", "reader", "other", "ingester"), 404)
FORM: Final = SIGN_IN | dict.fromkeys(("owner", "reader", "other", "ingester"), 303)
FORM_ITSELF: Final = FORM | {"nobody": 200, "revoked": 200}
SCRIPT: Final = {
    "nobody": 401,
    "revoked": 401,
    "owner": 200,
    "reader": 403,
    "other": 404,
    "ingester": 200,
}
"""Routes that the script calls: no page to sign in at."""
ADD: Final = SIGN_IN | {"owner": 200, "reader": 403, "other": 404, "ingester": 403}
"""The tab shows the container, which the ingester may not read."""
BODIES: Final[dict[str, Any]] = {"selection": {"paths": ["a.md"]}, "progress": {"jobs": [1]}}
UPLOAD: Final = {
    "Upload-Length": "0",
    "Upload-Offset": "0",
    "Upload-Metadata": "filename YS5tZA==",
    "Content-Type": "application/offset+octet-stream",
}
FIRST: Final = SIGN_IN | {"owner": 422, "reader": 422, "other": 422, "ingester": 403}
"""Without a name."""
ROLES: Final = tuple(ANYBODY)
GRANT: Final = SIGN_IN | {"owner": 422, "reader": 403, "other": 403, "ingester": 403}
"""An empty form: the owner learns what is missing."""
TOKEN: Final = SIGN_IN | {"owner": 200, "reader": 403, "other": 403, "ingester": 403}
"""That of somebody else."""
INCOMPLETE: Final = SIGN_IN | dict.fromkeys(("owner", "reader", "other", "ingester"), 400)


def everybody(status: int) -> Mapping[str, int]:
    return dict.fromkeys(ROLES, status)


TABLE: Final[dict[tuple[str, str], tuple[Mapping[str, int], str]]] = {
    ("GET", "/"): (ANYBODY, "/"),
    ("GET", "/login"): (FORM_ITSELF, "/login"),
    ("POST", "/login"): (everybody(401), "/login"),
    ("GET", "/login/link"): (everybody(401), "/login/link?code=guessed"),
    ("POST", "/login/link"): (everybody(401), "/login/link"),
    ("POST", "/logout"): (everybody(303), "/logout"),
    ("GET", "/console/static/{name}"): (everybody(200), "/console/static/console.css"),
    ("GET", "/console/search"): (READ, "/console/search?q=lamp&c=vault"),
    ("GET", "/console/search/facets"): (FORM, "/console/search/facets?q=lamp&c=vault"),
    ("GET", "/console/search/panel"): (READ, "/console/search/panel?c=vault&chunk={chunk_id}"),
    ("POST", "/console/search/saved"): (NO_SEARCH, "/console/search/saved"),
    ("POST", "/console/search/saved/{saved_id}/delete"): (
        SIGN_IN | {"owner": 404, "reader": 404, "other": 404, "ingester": 403},
        "/console/search/saved/999999999/delete",
    ),
    # No language model is configured here; with one: tests/console/searching/test_console_ask.py.
    ("GET", "/console/ask"): (NO_MODEL, "/console/ask"),
    ("POST", "/console/ask"): (NO_MODEL, "/console/ask"),
    ("POST", "/console/ask/events"): (NO_SEARCH, "/console/ask/events"),
    ("GET", "/console/containers/{container_id}"): (READ, "/console/containers/vault"),
    ("GET", "/console/documents/{doc_id}"): (READ, "/console/documents/{doc_id}"),
    ("GET", "/console/documents/{doc_id}/original"): (
        DOWNLOAD,
        "/console/documents/{doc_id}/original",
    ),
    ("GET", "/console/documents/{doc_id}/boxes"): (
        READ,
        "/console/documents/{doc_id}/boxes?page=1",
    ),
    ("POST", "/console/containers/{container_id}/documents"): (
        {role: 400 if status == 200 else status for role, status in SIGNED_IN.items()},
        "/console/containers/vault/documents",
    ),
    ("GET", "/console/jobs"): (JOBS, "/console/jobs?container=vault"),
    ("GET", "/console/jobs/live"): (JOBS, "/console/jobs/live?container=vault"),
    ("GET", "/console/job-groups/{group_id}"): (JOBS, "/console/job-groups/{group_id}"),
    ("GET", "/console/job-groups/{group_id}/live"): (JOBS, "/console/job-groups/{group_id}/live"),
    ("POST", "/console/requeue"): (FORM, "/console/requeue"),
    ("GET", "/console/operations"): (OPERATE, "/console/operations"),
    ("GET", "/console/operations/live"): (OPERATE, "/console/operations/live"),
    ("GET", "/console/operations/settings"): (OPERATE, "/console/operations/settings"),
    ("GET", "/console/operations/audit"): (OPERATE, "/console/operations/audit"),
    ("GET", "/console/operations/backups"): (OPERATE, "/console/operations/backups"),
    ("POST", "/console/operations/backups"): (UNFILLED, "/console/operations/backups"),
    ("GET", "/console/operations/backups/live"): (OPERATE, "/console/operations/backups/live"),
    ("GET", "/console/operations/backups/{backup_id}/file"): (
        NO_ARCHIVE,
        "/console/operations/backups/7/file",
    ),
    ("POST", "/console/operations/backups/{backup_id}/verify"): (
        NO_ARCHIVE,
        "/console/operations/backups/7/verify",
    ),
    ("POST", "/console/operations/backups/{backup_id}/restore"): (
        UNFILLED,
        "/console/operations/backups/7/restore",
    ),
    ("POST", "/console/operations/backups/{backup_id}/delete"): (
        UNFILLED,
        "/console/operations/backups/7/delete",
    ),
    ("GET", "/console/operations/transfers"): (OPERATE, "/console/operations/transfers"),
    ("GET", "/console/operations/transfers/live"): (OPERATE, "/console/operations/transfers/live"),
    ("POST", "/console/operations/transfers/export"): (
        UNFILLED,
        "/console/operations/transfers/export",
    ),
    ("POST", "/console/operations/transfers/import"): (
        NO_FILE,
        "/console/operations/transfers/import",
    ),
    ("GET", "/console/operations/transfers/{archive_id}/file"): (
        NO_ARCHIVE,
        "/console/operations/transfers/7/file",
    ),
    ("GET", "/console/operations/doctor"): (OPERATE, "/console/operations/doctor"),
    ("POST", "/console/operations/doctor"): (START, "/console/operations/doctor"),
    ("GET", "/console/operations/doctor/live"): (OPERATE, "/console/operations/doctor/live"),
    ("GET", "/console/operations/models"): (OPERATE, "/console/operations/models"),
    ("POST", "/console/operations/models"): (UNFILLED, "/console/operations/models"),
    ("GET", "/console/operations/models/live"): (OPERATE, "/console/operations/models/live"),
    ("GET", "/console/containers/{container_id}/processing"): (
        OWNED,
        "/console/containers/vault/processing",
    ),
    ("GET", "/console/containers/{container_id}/processing/live"): (
        OWNED,
        "/console/containers/vault/processing/live",
    ),
    ("POST", "/console/containers/{container_id}/processing"): (
        UNFILLED,
        "/console/containers/vault/processing",
    ),
    ("POST", "/console/containers/{container_id}/processing/extract"): (
        UNFILLED,
        "/console/containers/vault/processing/extract",
    ),
    ("POST", "/console/containers/{container_id}/processing/summarise"): (
        UNFILLED,
        "/console/containers/vault/processing/summarise",
    ),
    ("GET", "/console/containers/{container_id}/refresh"): (
        OWNED,
        "/console/containers/vault/refresh",
    ),
    ("GET", "/console/containers/{container_id}/refresh/live"): (
        OWNED,
        "/console/containers/vault/refresh/live",
    ),
    ("POST", "/console/containers/{container_id}/refresh"): (
        REFRESH,
        "/console/containers/vault/refresh",
    ),
    ("POST", "/console/containers/{container_id}/rollback"): (
        REFRESH,
        "/console/containers/vault/rollback",
    ),
    ("GET", "/console/jobs/{job_id}"): (JOBS, "/console/jobs/{job_id}"),
    ("GET", "/console/jobs/{job_id}/live"): (JOBS, "/console/jobs/{job_id}/live"),
    ("POST", "/console/jobs/{job_id}/cancel"): (STEER, "/console/jobs/{job_id}/cancel"),
    ("POST", "/console/jobs/{job_id}/requeue"): (STEER, "/console/jobs/{job_id}/requeue"),
    ("POST", "/console/containers/{container_id}/uploads"): (
        SEND,
        "/console/containers/vault/uploads",
    ),
    ("GET", "/console/start"): (ANYBODY, "/console/start?container=vault"),
    ("POST", "/console/start"): (FIRST, "/console/start"),
    ("GET", "/console/start/live"): (READ, "/console/start/live?container=vault"),
    ("GET", "/console/api"): (SIGNED_IN, "/console/api"),
    ("GET", "/console/api/{operation_id}"): (SIGNED_IN, "/console/api/{operation_id}"),
    ("GET", "/console/containers/{container_id}/add"): (ADD, "/console/containers/vault/add"),
    ("GET", "/console/containers/{container_id}/add/live"): (
        JOBS,
        "/console/containers/vault/add/live?job={job_id}",
    ),
    ("POST", "/console/containers/{container_id}/add/text"): (
        ADD | {"owner": 422},
        "/console/containers/vault/add/text",
    ),
    ("POST", "/console/containers/{container_id}/add/address"): (
        ADD | {"owner": 422},
        "/console/containers/vault/add/address",
    ),
    ("POST", "/console/containers/{container_id}/resumable-uploads"): (
        SCRIPT,
        "/console/containers/vault/resumable-uploads?path=a.md",
    ),
    ("PATCH", "/console/containers/{container_id}/resumable-uploads/{upload_id}"): (
        SCRIPT | {"owner": 404, "ingester": 404},
        f"/console/containers/vault/resumable-uploads/{UUID(int=7)}?path=a.md",
    ),
    ("GET", "/console/containers/{container_id}/resumable-uploads/{upload_id}"): (
        SCRIPT | {"owner": 404, "ingester": 404},
        f"/console/containers/vault/resumable-uploads/{UUID(int=7)}",
    ),
    ("POST", "/console/containers/{container_id}/selection"): (
        SCRIPT,
        "/console/containers/vault/selection",
    ),
    ("POST", "/console/containers/{container_id}/progress"): (
        SCRIPT | {"reader": 200},
        "/console/containers/vault/progress",
    ),
    ("GET", "/console/agents"): (SIGNED_IN, "/console/agents"),
    ("GET", "/console/containers/{container_id}/agents"): (
        READ,
        "/console/containers/vault/agents",
    ),
    ("POST", "/console/agents/tokens"): (GRANT, "/console/agents/tokens"),
    ("GET", "/console/agents/tokens/{token_id}"): (TOKEN, "/console/agents/tokens/{token_id}"),
    ("POST", "/console/agents/tokens/{token_id}/revoke"): (
        TOKEN | {"owner": 303},
        "/console/agents/tokens/{token_id}/revoke",
    ),
    ("POST", "/console/agents/tokens/{token_id}/restore"): (
        INCOMPLETE,
        "/console/agents/tokens/{token_id}/restore",
    ),
    ("GET", "/console/new"): (OPERATE, "/console/new"),
    ("POST", "/console/new"): (GRANT, "/console/new"),
    ("GET", "/console/containers/{container_id}/quality"): (
        READ,
        "/console/containers/vault/quality",
    ),
    ("GET", "/console/containers/{container_id}/quality/compare"): (
        READ | {"owner": 404, "reader": 404},
        "/console/containers/vault/quality/compare?before=1&after=1",
    ),
    ("GET", "/console/containers/{container_id}/quality/measuring/{job_id}"): (
        READ,
        "/console/containers/vault/quality/measuring/{job_id}",
    ),
    ("GET", "/console/containers/{container_id}/quality/query"): (
        READ,
        "/console/containers/vault/quality/query?q=lamp",
    ),
    ("GET", "/console/containers/{container_id}/quality/runs"): (
        READ,
        "/console/containers/vault/quality/runs",
    ),
    ("GET", "/console/containers/{container_id}/quality/runs/{run_id}"): (
        READ | {"owner": 404, "reader": 404},
        "/console/containers/vault/quality/runs/1",
    ),
    ("GET", "/console/containers/{container_id}/queries"): (
        ADD,
        "/console/containers/vault/queries",
    ),
    ("GET", "/console/containers/{container_id}/settings"): (
        READ,
        "/console/containers/vault/settings",
    ),
    ("POST", "/console/containers/{container_id}/quality/mark"): (
        UNFILLED,
        "/console/containers/vault/quality/mark",
    ),
    ("POST", "/console/containers/{container_id}/quality/save"): (
        READ | {"owner": 422, "reader": 422},
        "/console/containers/vault/quality/save",
    ),
    ("POST", "/console/containers/{container_id}/quality/remove"): (
        UNFILLED,
        "/console/containers/vault/quality/remove",
    ),
    ("POST", "/console/containers/{container_id}/quality/measure"): (
        OWNED | {"owner": 400},
        "/console/containers/vault/quality/measure",
    ),
    ("POST", "/console/containers/{container_id}/queries/clear"): (
        REFRESH,
        "/console/containers/vault/queries/clear",
    ),
    ("POST", "/console/containers/{container_id}/queries/golden"): (
        UNFILLED,
        "/console/containers/vault/queries/golden",
    ),
    ("POST", "/console/containers/{container_id}/queries/switch"): (
        REFRESH,
        "/console/containers/vault/queries/switch",
    ),
    ("POST", "/console/containers/{container_id}/settings"): (
        GRANT,
        "/console/containers/vault/settings",
    ),
    ("POST", "/console/containers/{container_id}/state"): (
        UNFILLED,
        "/console/containers/vault/state",
    ),
    ("POST", "/console/containers/{container_id}/delete"): (
        OWNED | {"owner": 400},
        "/console/containers/vault/delete",
    ),
    ("GET", "/console/{path:path}"): (everybody(404), "/console/nowhere"),
}


@dataclass
class Visitors:
    """Their browsers, by role, and what is looked at."""

    browsers: dict[str, httpx.AsyncClient]
    names: dict[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def visitors(installation: Installation) -> AsyncIterator[Visitors]:
    async with installation.client() as client:
        names = await _furnish(client)
        browsers = {role: stranger(installation.url) for role in ROLES}
        tokens = await _tokens(installation)
        for role, token in tokens.items():
            await sign_in(browsers[role], token)
        await _revoke(installation, tokens["revoked"])
    try:
        yield Visitors(browsers, names)
    finally:
        for browser in browsers.values():
            await browser.aclose()


async def _furnish(client: AsyncClient) -> dict[str, str]:
    roles = Roles(owner=["local:you", "agent:ingester"], reader=["agent:reader", "agent:gone"])
    more: dict[str, Any] = {"embedder": "openai/test", "dims": DIMS}
    await client.create(Manifest(id="vault", name="Vault", acl=Acl(roles=roles), **more))
    job = await ingest(client, "vault", "lamp.md", SECRET.encode())
    await settled(client, "vault")
    document = await anext(client.documents("vault"))
    chunk = await anext(client.chunks("vault"))
    await client.create_source("vault", "notes & more", host="keeper", folder="/home/keeper/notes")
    group = await anext(client.job_groups(container_id="vault"))
    spare = await client.create_token("agent:spare", name="revoked by the table")
    return {
        "token_id": str(spare.token.id),
        "job_id": str(job),
        "doc_id": str(document.doc_id),
        "chunk_id": str(chunk.chunk_id),
        "group_id": str(group.group_id),
        "operation_id": "get-v1-containers-list",
    }


async def _tokens(installation: Installation) -> dict[str, str]:
    """Of the roles that have signed in."""
    made = {"owner": installation.token}
    required = {
        "reader": {"principal": "agent:reader", "scopes": ["read", "write", "delete"]},
        "other": {"principal": "agent:other", "scopes": ["read", "write", "delete"]},
        "ingester": {"principal": "agent:ingester", "scopes": ["write", "delete"]},
        "revoked": {"principal": "agent:gone"},
    }
    async with _owner(installation) as http:
        for role, body in required.items():
            answer = await http.post("/v1/tokens", json=body)
            made[role] = answer.json()["secret"]
    return made


def _owner(installation: Installation) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {installation.token}"}
    return httpx.AsyncClient(base_url=installation.url, headers=headers, trust_env=False)


async def _revoke(installation: Installation, secret: str) -> None:
    async with _owner(installation) as http:
        listed = (await http.get("/v1/tokens?principal=agent:gone")).json()["tokens"]
        answer = await http.delete(f"/v1/tokens/{listed[0]['id']}")
    assert answer.is_success, secret


async def test_every_route_of_the_console_stands_in_the_table() -> None:
    routers = [*site.ROUTERS, site.rest]
    served = {
        (method, route.path)
        for router in routers
        for route in router.routes
        if isinstance(route, Route)
        for method in route.methods or ()
    }
    assert served - {("HEAD", path) for _, path in served} == set(TABLE)


@pytest.mark.parametrize(("method", "route"), TABLE, ids=lambda part: str(part).strip("/"))
async def test_each_role_sees_exactly_what_the_table_says(
    method: str, route: str, visitors: Visitors
) -> None:
    expected, path = TABLE[method, route]
    for role in ROLES:
        if route == "/logout" and role not in SIGN_IN:
            continue  # they stay for the rest of the table
        browser = visitors.browsers[role]
        files = [("files", ("a.txt", b"words"))] if route.endswith("/uploads") else None
        data = {"token": "wrong"} if route == "/login" and method == "POST" else None
        headers = UPLOAD if "resumable" in route and method != "GET" else None
        body = BODIES.get(route.rpartition("/")[2])
        request = browser.build_request(
            method,
            path.format(**visitors.names),
            files=files,
            data=data,
            json=body,
            headers=headers,
        )
        answer = await browser.send(request, stream=True)
        try:
            allowed = {expected[role]}
            if route.endswith("/rollback") and role == "owner":
                allowed.add(409)  # the refresh may have ended already
            assert answer.status_code in allowed, role
            if answer.status_code == 303 and expected is not SEND and role in SIGN_IN:
                assert answer.headers["location"].startswith("/login"), role
            if answer.status_code not in (200, 303):
                assert SECRET not in (await answer.aread()).decode(), role
        finally:
            await answer.aclose()


WITHOUT_A_SESSION: Final = frozenset({"/login", "/login/link"})


@pytest.mark.parametrize(
    ("method", "route"),
    [(m, r) for m, r in TABLE if m != "GET" and r not in WITHOUT_A_SESSION],
)
async def test_no_change_is_made_without_the_token_of_the_session(
    method: str, route: str, visitors: Visitors
) -> None:
    """Neither without one nor with that of another session."""
    owner, other = visitors.browsers["owner"], visitors.browsers["other"]
    path = TABLE[method, route][1].format(**visitors.names)
    for token in ("", other.headers["X-CSRF-Token"], "é"):
        headers = {"X-CSRF-Token": token.encode()}
        for sent in ({"data": {"csrf": token}}, {"files": [("files", ("a.txt", b"words"))]}):
            answer = await owner.request(method, path, headers=headers, **sent)  # type: ignore[arg-type]
            assert answer.status_code == 403, (route, token)
            assert "older than your session" in answer.text


async def test_what_may_not_be_seen_looks_like_what_is_not_there(visitors: Visitors) -> None:
    other = visitors.browsers["other"]
    names = visitors.names
    gone = {"doc_id": "0" * 8 + names["doc_id"][8:], "job_id": str(int(names["job_id"]) + 10**6)}
    gone["chunk_id"] = "0" * 8 + names["chunk_id"][8:]
    for path in (
        "/console/containers/{c}",
        "/console/search?q=lamp&c={c}",
        "/console/search/panel?c={c}&chunk={chunk_id}",
        "/console/documents/{doc_id}",
        "/console/jobs/{job_id}",
        "/console/jobs?container={c}",
    ):
        message = []
        for values in ({"c": "vault", **names}, {"c": "never", **gone}):
            answer = await other.get(path.format(**values))
            message.append((answer.status_code, NAMED.sub("X", answer.text)))
        assert message[0] == message[1], path
        assert message[0][0] == 404


async def test_synced_folders_are_shown_to_those_who_may_write(visitors: Visitors) -> None:
    """They are paths of other people's computers."""
    shown = (await visitors.browsers["owner"].get("/console/containers/vault")).text
    assert "/home/keeper/notes" in shown
    assert 'href="?prefix=file%3A///notes%20%26%20more/"' in shown
    hidden = (await visitors.browsers["reader"].get("/console/containers/vault")).text
    assert "/home/keeper" not in hidden


async def test_a_session_of_somebody_else_is_not_made_by_hand(installation: Installation) -> None:
    async with stranger(installation.url) as browser:
        for cookie in ("token:1", f"token:1.9999999999.{'0' * 64}", "owner:", "x" * 5000):
            answer = await browser.get("/", headers={"Cookie": f"latent_session={cookie}"})
            assert (answer.status_code, answer.headers["location"]) == (303, "/login")
