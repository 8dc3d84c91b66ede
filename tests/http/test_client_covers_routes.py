"""The Python client has a method for every route that is served."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest

from latent_client import AsyncClient, SyncClient
from latent_core.domain.errors import LatentError, NotFound
from latent_core.domain.generated import GeneratedGroup
from latent_core.domain.golden import GoldenQuery, GoldenSet
from latent_core.domain.manifest.model import Manifest
from latent_core.wire.ask import AskRequest
from latent_core.wire.containers import ContainerState
from latent_core.wire.evaluation import EvalRequest
from latent_core.wire.installation import RestoreRecordsBody
from latent_core.wire.refresh import RefreshRequest, Strategy
from latent_core.wire.search import SearchRequest
from latent_gateway.app import ROUTERS
from latent_gateway.openapi import GatewayApi, operations
from tests.support.fake_gateway.http import (
    FakeRequest,
    Message,
    Receive,
    Send,
    failure,
    read_request,
    send_answer,
    staged,
)

DOC: Final = UUID(int=7)
SHA: Final = "a" * 64
GOLDEN: Final = GoldenQuery(id="lamp", query="lamp", expect=["lamp"])
ALIASES: Final = {"POST /v1/search": "POST /v1/containers/search"}
"""Routes that answer what another one answers."""

Call = Callable[[AsyncClient, Path], Awaitable[Any] | AsyncIterator[Any]]
CALLS: Final[dict[str, Call]] = {
    "POST /v1/admin/sign-in-link": lambda c, _: c.sign_in_link(),
    "GET /v1/containers/list": lambda c, _: c.containers(),
    "GET /v1/containers/describe": lambda c, _: c.describe("art"),
    "POST /v1/containers": lambda c, _: c.create(Manifest(id="art", name="Art")),
    "PUT /v1/containers/{container_id}": lambda c, _: c.update(
        Manifest(id="art", name="Art"), if_match="e"
    ),
    "POST /v1/containers/{container_id}/plan": lambda c, _: c.plan(Manifest(id="art", name="Art")),
    "GET /v1/containers/{container_id}/sizes": lambda c, _: c.store_sizes("art"),
    "DELETE /v1/containers/{container_id}": lambda c, _: c.delete("art"),
    "PUT /v1/containers/{container_id}/state": lambda c, _: c.set_state(
        "art", ContainerState.READONLY
    ),
    "POST /v1/containers/{container_id}/uploads": lambda c, file: c.upload("art", file),
    "POST /v1/containers/{container_id}/resumable-uploads": lambda c, _: c.create_resumable_upload(
        "art", "a.pdf", 9
    ),
    "GET /v1/containers/{container_id}/resumable-uploads/{upload_id}": lambda c, _: (
        c.resumable_upload("art", str(DOC))
    ),
    "PATCH /v1/containers/{container_id}/resumable-uploads/{upload_id}": lambda c, file: (
        c.append_to_upload("art", str(DOC), file, start=0, length=4)
    ),
    "DELETE /v1/containers/{container_id}/resumable-uploads/{upload_id}": lambda c, _: (
        c.delete_resumable_upload("art", str(DOC))
    ),
    "POST /v1/containers/add": lambda c, _: c.add("art", file_ref="x"),
    "POST /v1/containers/{container_id}/listing": lambda c, _: c.listing("art", "root", []),
    "GET /v1/containers/{container_id}/sources": lambda c, _: c.sources("art"),
    "POST /v1/containers/{container_id}/sources": lambda c, _: c.create_source(
        "art", "root", host="h", folder="/f"
    ),
    "POST /v1/containers/{container_id}/sources/match": lambda c, _: c.match_sources(
        "art", "root", [SHA]
    ),
    "PUT /v1/containers/{container_id}/sources/{source_id}": lambda c, _: c.take_over_source(
        "art", DOC, host="h", folder="/f"
    ),
    "DELETE /v1/containers/{container_id}/sources/{source_id}": lambda c, _: c.forget_source(
        "art", DOC
    ),
    "GET /v1/containers/{container_id}/documents": lambda c, _: c.documents("art"),
    "GET /v1/containers/{container_id}/documents/{doc_id}": lambda c, _: c.document("art", DOC),
    "GET /v1/containers/{container_id}/documents/{doc_id}/outline": lambda c, _: c.outline(
        "art", DOC
    ),
    "POST /v1/containers/{container_id}/documents/reingest": lambda c, _: c.reingest_documents(
        "art", [DOC]
    ),
    "POST /v1/containers/{container_id}/documents/delete": lambda c, _: c.delete_documents(
        "art", [DOC]
    ),
    "GET /v1/containers/{container_id}/originals": lambda c, file: c.originals(
        "art", [DOC], file.with_suffix(".zip")
    ),
    "GET /v1/containers/{container_id}/trash": lambda c, _: c.trash("art"),
    "POST /v1/containers/{container_id}/documents/{doc_id}/restore": lambda c, _: (
        c.restore_document("art", DOC)
    ),
    "DELETE /v1/containers/{container_id}/documents/{doc_id}": lambda c, _: c.delete_document(
        "art", DOC
    ),
    "GET /v1/containers/{container_id}/chunks": lambda c, _: c.chunks("art"),
    "GET /v1/containers/{container_id}/chunks/stats": lambda c, _: c.chunk_sizes("art"),
    "GET /v1/containers/{container_id}/chunks/{chunk_id}": lambda c, _: c.chunk("art", DOC),
    "POST /v1/containers/{container_id}/eval": lambda c, _: c.evaluate("art", EvalRequest()),
    "GET /v1/containers/{container_id}/eval": lambda c, _: c.eval_runs("art"),
    "GET /v1/containers/{container_id}/eval/runs": lambda c, _: c.eval_history("art"),
    "GET /v1/containers/{container_id}/eval/runs/{run_id}": lambda c, _: c.eval_run("art", 1),
    "GET /v1/containers/{container_id}/eval/runs/{run_id}/difference": lambda c, _: (
        c.eval_difference("art", 2, since=1)
    ),
    "GET /v1/containers/{container_id}/golden": lambda c, _: c.golden_list("art"),
    "PUT /v1/containers/{container_id}/golden": lambda c, _: c.replace_golden(
        "art", GoldenSet(queries=[GOLDEN]), if_match="0"
    ),
    "DELETE /v1/containers/{container_id}/golden": lambda c, _: c.clear_golden("art", if_match="1"),
    "POST /v1/containers/{container_id}/golden": lambda c, _: c.add_golden("art", GOLDEN),
    "PUT /v1/containers/{container_id}/golden/{query_id}": lambda c, _: c.change_golden(
        "art", GOLDEN, if_match="1"
    ),
    "DELETE /v1/containers/{container_id}/golden/{query_id}": lambda c, _: c.remove_golden(
        "art", "lamp"
    ),
    "GET /v1/containers/{container_id}/queries": lambda c, _: c.logged_queries("art"),
    "DELETE /v1/containers/{container_id}/queries": lambda c, _: c.clear_logged_queries("art"),
    "GET /v1/documents/{doc_id}/pages": lambda c, _: c.pages(DOC),
    "GET /v1/documents/{doc_id}/pages/{page}": lambda c, _: c.page(DOC, 1),
    "GET /v1/documents/{doc_id}/pages/{page}/boxes": lambda c, _: c.page_boxes(DOC, 1),
    "GET /v1/documents/{doc_id}/pages/{page}/pdf": lambda c, _: c.page_pdf(DOC, 1),
    "GET /v1/documents/{doc_id}/original": lambda c, _: c.original(DOC),
    "POST /v1/containers/ask": lambda c, _: c.ask(
        AskRequest(containers=["art"], question="who painted it?")
    ),
    "POST /v1/containers/search": lambda c, _: c.search(
        SearchRequest(containers=["art"], query="q", top_k=1)
    ),
    "POST /v1/doc_search": lambda c, _: c.doc_search("q"),
    "GET /v1/saved-searches": lambda c, _: c.saved_searches(),
    "POST /v1/saved-searches": lambda c, _: c.save_search("s", SearchRequest(query="q", top_k=1)),
    "DELETE /v1/saved-searches/{saved_id}": lambda c, _: c.delete_saved_search(1),
    "GET /v1/jobs": lambda c, _: c.jobs(),
    "GET /v1/job-groups": lambda c, _: c.job_groups(),
    "GET /v1/job-groups/{group_id}": lambda c, _: c.job_group(1),
    "GET /v1/jobs/{job_id}": lambda c, _: c.job(1),
    "GET /v1/jobs/{job_id}/events": lambda c, _: c.events(1),
    "POST /v1/jobs/{job_id}/cancel": lambda c, _: c.cancel(1),
    "POST /v1/jobs/{job_id}/requeue": lambda c, _: c.requeue(1),
    "POST /v1/requeue": lambda c, _: c.requeue_failed("art"),
    "POST /v1/containers/export": lambda c, _: c.export("art"),
    "GET /v1/exports/{archive_id}": lambda c, _: c.exported(1),
    "POST /v1/imports": lambda c, file: c.import_archive(file),
    "GET /v1/backups": lambda c, _: c.backups(),
    "POST /v1/backups": lambda c, _: c.backup("art"),
    "GET /v1/backups/{backup_id}": lambda c, _: c.backup_link(1),
    "DELETE /v1/backups/{backup_id}": lambda c, _: c.delete_backup(1),
    "POST /v1/backups/{backup_id}/verify": lambda c, _: c.verify_backup(1),
    "POST /v1/backups/{backup_id}/restore": lambda c, _: c.restore_backup(1),
    "POST /v1/tokens": lambda c, _: c.create_token("agent:x"),
    "GET /v1/tokens": lambda c, _: c.tokens(),
    "GET /v1/tokens/{token_id}": lambda c, _: c.token(1),
    "GET /v1/tokens/{token_id}/calls": lambda c, _: c.token_calls(1),
    "GET /v1/tokens/{token_id}/changes": lambda c, _: c.token_changes(1),
    "DELETE /v1/tokens/{token_id}": lambda c, _: c.revoke_token(1),
    "GET /v1/audit": lambda c, _: c.audit(),
    "POST /v1/admin/refresh": lambda c, _: c.refresh(
        "art", RefreshRequest(strategy=Strategy.REPARSE)
    ),
    "POST /v1/admin/rollback": lambda c, _: c.rollback("art"),
    "GET /v1/admin/pdf-status": lambda c, _: c.pdf_status("art"),
    "POST /v1/admin/process-selected": lambda c, _: c.process_selected("art", [DOC]),
    "GET /v1/admin/understanding": lambda c, _: c.understanding("art"),
    "POST /v1/admin/extract": lambda c, _: c.extract("art", [DOC]),
    "POST /v1/admin/summarise": lambda c, _: anext(c.summarise("art", [DOC])),
    "POST /v1/admin/drop-generated": lambda c, _: c.drop_generated(
        "art", GeneratedGroup.SUMMARIES, [DOC]
    ),
    "GET /v1/containers/{container_id}/documents/{doc_id}/summary": lambda c, _: c.summary(
        "art", DOC
    ),
    "GET /v1/containers/{container_id}/pages": lambda c, _: c.find_pages("art", page=1),
    "GET /v1/documents/{doc_id}/pages/{page}/extraction": lambda c, _: c.page_extraction(DOC, 1),
    "GET /v1/models": lambda c, _: c.models(),
    "GET /v1/admin/installation": lambda c, _: c.installation(),
    "POST /v1/admin/installation": lambda c, _: c.restore_installation(RestoreRecordsBody()),
    "GET /v1/admin/status": lambda c, _: c.status(),
    "GET /v1/admin/settings": lambda c, _: c.settings(),
    "GET /v1/admin/providers": lambda c, _: c.providers(),
    "POST /v1/admin/model-test": lambda c, _: c.test_model("local"),
    "POST /v1/admin/doctor": lambda c, _: c.doctor(),
    "GET /v1/blobs/{sha256}": lambda c, _: c.fetch(f"{c.url}/v1/blobs/{SHA}?sig=x"),
    "GET /healthz": lambda c, _: c.healthy(),
    "GET /readyz": lambda c, _: c.readiness(),
    "GET /metrics": lambda c, _: c.metrics(),
    "GET /mcp/tools": lambda c, _: c.tools(),
}


def served() -> set[str]:
    app = GatewayApi(title="t", version="1")
    for module in ROUTERS:
        app.include_router(module.router)
    return {f"{verb.upper()} {path}" for path, verb, _ in operations(app.openapi())}


def test_every_route_that_is_served_has_a_method_and_nothing_else_has() -> None:
    assert served() - set(ALIASES) == set(CALLS)


class Recorder:
    """Notes what is asked and finds nothing."""

    def __init__(self) -> None:
        self.requests: list[FakeRequest] = []

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        self.requests.append(await read_request(scope, receive))
        await send_answer(failure(NotFound("nothing is here")), send)


@pytest.fixture(scope="module")
def recorder() -> Iterator[tuple[str, Recorder]]:
    recording = Recorder()
    with staged() as stage:
        stage.app = recording
        yield stage.url, recording


@pytest.mark.parametrize("route", sorted(CALLS))
async def test_the_method_asks_that_very_route(
    route: str, recorder: tuple[str, Recorder], tmp_path: Path
) -> None:
    url, recording = recorder
    recording.requests.clear()
    file = tmp_path / "a.md"
    file.write_text("text", encoding="utf-8")
    async with AsyncClient(url, "token", timeout_seconds=10) as client:
        with suppress(LatentError):
            called = CALLS[route](client, file)
            await (anext(called) if isinstance(called, AsyncIterator) else called)
    verb, template = route.split(" ")
    pattern = re.sub(r"\{\w+\}", "[^/]+", template)
    request = recording.requests[0]
    assert request.method == verb
    assert re.fullmatch(pattern, request.path), request.path


def test_the_blocking_client_has_every_method_of_the_asynchronous_one() -> None:
    methods = {
        name
        for name, _ in inspect.getmembers(AsyncClient, inspect.isfunction)
        if not name.startswith("_")
    }
    assert methods <= set(dir(SyncClient))
