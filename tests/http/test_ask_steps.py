"""The steps of a question within one process: rights and time that end between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from latent_core.wire.search import SearchResponse
from latent_gateway.api.ask import answer, page_files
from latent_gateway.api.ask.routes import AskStream
from latent_gateway.api.search import find
from tests.support.harness.gateway_harness import (
    SECRET,
    VAULT,
    VAULT_MANIFEST,
    GatewayHarness,
    furnished,
)
from tests.support.servers.llm_server import MODEL, LanguageModelServer, Lie

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUESTION: Final = {"containers": [VAULT], "question": f"Who keeps {SECRET} in glass?"}
ASK: Final = "/v1/containers/ask"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model() -> AsyncIterator[LanguageModelServer]:
    async with LanguageModelServer(answer=lambda _: "The keeper does [1].") as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(install_root: Path, model: LanguageModelServer) -> AsyncIterator[GatewayHarness]:
    file = install_root / "steps-providers.yaml"
    file.write_text(
        f"providers: [{{name: m, kind: openai, base_url: '{model.base_url}/v1', reads: [pdf]}}]\n",
        encoding="utf-8",
    )
    async with furnished(install_root / "ask-steps", providers=file) as one:
        ask = {"enabled": True, "provider": f"m/{MODEL}"}
        body = {"manifest": {**VAULT_MANIFEST, "ask": ask}}
        headers = {"If-Match": one.etag}
        await one.ask_json("owner", "PUT", f"/v1/containers/{VAULT}", body=body, headers=headers)
        yield one


@pytest.fixture(autouse=True)
def unspoken(model: LanguageModelServer) -> None:
    model.seen.clear()
    model.script.clear()


async def test_a_reader_is_answered(harness: GatewayHarness, model: LanguageModelServer) -> None:
    body = await harness.ask_json("reader", "POST", ASK, body=QUESTION)
    assert body["text"] == "The keeper does [1]."
    assert len(model.seen) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_rights_that_end_after_the_search_keep_the_sources_from_model_and_caller(
    harness: GatewayHarness,
    model: LanguageModelServer,
    monkeypatch: pytest.MonkeyPatch,
    stream: bool,
) -> None:
    role = f"leaving-{stream}"
    await harness.make_token(role, "agent:reader", name=role, scopes=["read"])

    async def found_and_revoked(*request: Any) -> SearchResponse:
        found = await find(*request)
        assert found.hits
        await harness.ask_json("owner", "DELETE", f"/v1/tokens/{harness.token_ids[role]}")
        return found

    monkeypatch.setattr(answer, "find", found_and_revoked)
    refused = await harness.ask(role, "POST", ASK, body={**QUESTION, "stream": stream})
    assert refused.status_code == 401
    assert SECRET not in refused.text
    assert model.seen == []


async def test_a_container_that_is_closed_after_the_search_is_not_read(
    harness: GatewayHarness, model: LanguageModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def found_and_forbidden(*request: Any) -> SearchResponse:
        found = await find(*request)
        await change(harness, acl={"roles": {"owner": ["local:you"]}})
        return found

    monkeypatch.setattr(answer, "find", found_and_forbidden)
    try:
        refused = await harness.ask("reader", "POST", ASK, body=QUESTION)
        assert refused.status_code == 404
        assert model.seen == []
    finally:
        await change(harness, acl=VAULT_MANIFEST["acl"])


async def test_a_manifest_that_withdraws_its_model_after_the_search_reaches_none(
    harness: GatewayHarness, model: LanguageModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def found_and_withdrawn(*request: Any) -> SearchResponse:
        found = await find(*request)
        await change(harness, ask={"enabled": False})
        return found

    monkeypatch.setattr(answer, "find", found_and_withdrawn)
    try:
        refused = await harness.ask("reader", "POST", ASK, body=QUESTION)
        assert refused.status_code == 403
        assert model.seen == []
    finally:
        await change(harness, ask={"enabled": True, "provider": f"m/{MODEL}"})


async def change(harness: GatewayHarness, **keys: Any) -> None:
    path = f"/v1/containers/describe?container_id={VAULT}"
    described = await harness.ask_json("owner", "GET", path)
    body = {"manifest": {**described["manifest"], **keys}}
    headers = {"If-Match": described["etag"]}
    await harness.ask_json("owner", "PUT", f"/v1/containers/{VAULT}", body=body, headers=headers)


async def test_a_page_whose_pdf_is_not_made_in_time_goes_as_text_with_an_issue(
    harness: GatewayHarness, model: LanguageModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def pictures(*request: Any) -> SearchResponse:
        found = await find(*request)
        hits = [hit.model_copy(update={"read_as": "image"}) for hit in found.hits]
        return found.model_copy(update={"hits": hits})

    monkeypatch.setattr(answer, "find", pictures)
    monkeypatch.setattr(page_files, "PDF_SECONDS", 0.05)  # no worker runs here
    question = {"containers": [VAULT], "question": f"a chapter on {SECRET}"}
    body = await harness.ask_json("owner", "POST", ASK, body=question)
    source = next(one for one in body["sources"] if one["doc_id"] == harness.pdf_id)
    assert source["read_as"] == "text"
    issue = next(one for one in body["issues"] if one["details"].get("n") == source["n"])
    assert "as text: its PDF was not made within 0.05 s" in issue["message"]
    assert f"A chapter on {SECRET}" in model.seen[0].text
    assert model.seen[0].pdfs == ()


async def test_a_model_that_never_answers_ends_at_the_deadline(
    harness: GatewayHarness, model: LanguageModelServer
) -> None:
    usual = harness.app.state.gateway
    hurried = usual.settings.model_copy(update={"ask_seconds": 2.0})
    harness.app.state.gateway = replace(usual, settings=hurried)
    model.script.append(Lie.SLOW)
    try:
        late = await harness.ask("owner", "POST", ASK, body=QUESTION)
    finally:
        harness.app.state.gateway = usual
    assert late.status_code == 504
    assert late.json()["issues"][0]["code"] == "TIMEOUT"


async def test_the_log_has_no_question_and_no_answer(
    harness: GatewayHarness, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        await harness.ask_json("reader", "POST", ASK, body=QUESTION)
    (logged,) = [one for one in caplog.records if one.msg == "question_answered"]
    assert vars(logged)["answered"] is True
    assert vars(logged)["containers"] == [VAULT]
    texts = "".join(str(vars(one)) for one in caplog.records)
    assert "in glass" not in texts
    assert "The keeper does" not in texts


async def test_a_client_that_does_not_read_its_answer_is_cut_off_and_gives_its_slot_back() -> None:
    held, given_back = AsyncExitStack(), asyncio.Event()
    held.callback(given_back.set)

    async def words() -> AsyncGenerator[bytes]:
        yield b"data: {}\n\n"

    async def never(_: Any = None) -> Any:
        await asyncio.Event().wait()

    stream = AskStream(words(), held, 0.01)
    await stream({"type": "http", "asgi": {"spec_version": "2.3"}}, never, never)
    assert given_back.is_set()
