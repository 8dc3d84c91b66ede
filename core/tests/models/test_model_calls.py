"""Calls of language models for containers: who permits them, what is stored, what they may cost, what is logged."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import pytest

from latent_core.db import containers, model_answers, model_usage
from latent_core.db.connection import Database
from latent_core.db.model_usage import ModelUsage
from latent_core.domain.errors import (
    Forbidden,
    InputRefused,
    LatentError,
    LimitReached,
    MalformedAnswer,
    NotFound,
    UpstreamError,
    UpstreamTimeout,
)
from latent_core.domain.ids import JobId
from latent_core.domain.job import JobLanguageModels
from latent_core.domain.manifest.language_models import ModelBlock, ModelBudget, Summaries
from latent_core.domain.manifest.model import Manifest
from latent_core.models.embedding.rate import TextRate
from latent_core.models.llm.calls import Call, ModelCalls, ModelRetryPolicy, answer_key
from latent_core.models.llm.port import (
    AudioPart,
    Completion,
    JsonSchema,
    PdfPart,
    Stop,
    TextPart,
)
from latent_core.models.llm.resolve import LanguageModels
from latent_core.models.llm.transcription import Transcript
from latent_core.models.providers.registry import Providers
from latent_core.queue import admin
from latent_core.runtime import failpoint
from latent_core.settings import Settings
from tests.support import REPOSITORY
from tests.support.servers.llm_dialects import RefusalError, SeenRequest
from tests.support.servers.llm_server import MODEL, Fault, LanguageModelServer, Lie

KEY: Final = "sk-very-secret-key-0123456789"
TEXT: Final = "The harbour lamp was mended by Ottilie in the winter of 1911."
SUMMARIES: Final = Summaries(enabled=True, provider=f"work/{MODEL}")
NOTE: Final = {
    "type": "object",
    "properties": {"note": {"type": "string"}},
    "required": ["note"],
    "additionalProperties": False,
}
CHANGE: Final = "UPDATE containers SET manifest = %(manifest)s::jsonb WHERE id = 'notes'"
JOB: Final = """
INSERT INTO jobs (kind, container_id, principal) VALUES ('extract', 'notes', 'you') RETURNING id
"""
DOCUMENT: Final = """
INSERT INTO documents (id, container_id, uri) VALUES (%(id)s, 'notes', 'file:///a')
"""


def providers_at(url: str, folder: Path, **keys: Any) -> Providers:
    (folder / "key").write_text(KEY, encoding="utf-8")
    entry = {"kind": "openai", "base_url": url, "key_file": "key", "name": "work", **keys}
    lines = "".join(f"    {name}: {value}\n" for name, value in entry.items())
    path = folder / "providers.yaml"
    path.write_text(f"providers:\n  -\n{lines}", encoding="utf-8")
    return Providers.of(Settings.model_construct(providers=path))


@dataclass
class Bench:
    """Calls for a container that permits its summaries."""

    db: Database
    server: LanguageModelServer
    folder: Path
    naps: list[float] = field(default_factory=list)
    on_nap: Callable[[], Awaitable[None]] | None = None
    models: LanguageModels = field(init=False)
    calls: ModelCalls = field(init=False)

    def __post_init__(self) -> None:
        self.provide()

    def provide(self, **keys: Any) -> None:
        """With another entry of the provider."""
        prices = {"input_price": 2.0, "output_price": 10.0, **keys}
        found = providers_at(self.server.base_url, self.folder, **prices)
        self.models = LanguageModels(found, lambda _, n: TextRate(n, sleep=self.nap))
        self.calls = ModelCalls(
            self.db,
            self.models,
            retry_policy=ModelRetryPolicy(attempts=3, first_wait=0.5),
            sleep=self.nap,
            jitter=lambda _, high: high,
        )

    async def nap(self, seconds: float) -> None:
        self.naps.append(seconds)
        if self.on_nap is not None:
            await self.on_nap()

    async def permit(self, **keys: Any) -> None:
        manifest = Manifest(id="notes", name="Notes", **{"summaries": SUMMARIES, **keys})
        async with self.db.transaction() as conn:
            await conn.execute(CHANGE, {"manifest": manifest.model_dump_json()})

    async def usage(self, job_id: int | None = None) -> list[ModelUsage]:
        async with self.db.transaction() as conn:
            return await model_usage.totals(
                conn, "notes", JobId(job_id) if job_id is not None else None
            )


@pytest.fixture
async def bench(database: Database, tmp_path: Path) -> AsyncIterator[Bench]:
    async with LanguageModelServer(key=KEY) as server:
        async with database.transaction() as conn:
            manifest = Manifest(id="notes", name="Notes", summaries=SUMMARIES)
            await containers.insert(conn, manifest, "e")
        bench = Bench(database, server, tmp_path)
        yield bench
        await bench.models.close()


def call(text: str = TEXT, **changes: Any) -> Call:
    request = Completion(
        "Summarise.", [TextPart(text)], JsonSchema("note", 1, NOTE), max_tokens=100, seconds=30.0
    )
    given: dict[str, Any] = {
        "container_id": "notes",
        "purpose": "summaries",
        "block": SUMMARIES,
        "prompt_version": "summary-1",
        "request": request,
        "input_hash": text,
        "job_id": JobId(7),
    }
    return Call(**{**given, **changes})


async def test_an_equal_call_is_answered_from_what_is_stored(bench: Bench) -> None:
    first = await bench.calls.complete(call())
    again = await bench.calls.complete(call(job_id=JobId(8)))
    assert len(bench.server.seen) == 1
    assert (first.cached, again.cached) == (False, True)
    assert replace(first, cached=True) == again
    assert await bench.usage(8) == []


@pytest.mark.parametrize(
    "other",
    [
        {"prompt_version": "summary-2"},
        {"input_hash": "another"},
        {"purpose": "extraction"},
        {"block": ModelBlock(enabled=True, provider="work/other")},
        {"request": Completion("", [], JsonSchema("note", 2, NOTE), 1, 1.0)},
    ],
)
def test_another_prompt_input_purpose_model_or_schema_is_another_call(
    other: Mapping[str, Any],
) -> None:
    assert answer_key(call(**other)) != answer_key(call())


async def test_a_forced_call_replaces_what_is_stored(bench: Bench) -> None:
    bench.server.script = ['{"note": "old"}', '{"note": "new"}']
    await bench.calls.complete(call())
    assert (await bench.calls.complete(call(force=True))).answer.text == '{"note": "new"}'
    assert (await bench.calls.complete(call())).answer.text == '{"note": "new"}'
    assert len(bench.server.seen) == 2


async def test_equal_calls_at_the_same_time_are_made_once(bench: Bench) -> None:
    answers = await asyncio.gather(*(bench.calls.complete(call()) for _ in range(5)))
    assert len(bench.server.seen) == 1
    assert sorted(answer.cached for answer in answers) == [False, True, True, True, True]


async def test_refusals_and_cut_answers_are_stored_like_others(bench: Bench) -> None:
    bench.server.script = [Lie.REFUSAL, Lie.LENGTH]
    for text, stop in (("a", Stop.REFUSAL), ("b", Stop.LENGTH)):
        first = await bench.calls.complete(call(text))
        again = await bench.calls.complete(call(text))
        assert (first.answer.stop, again.answer) == (stop, first.answer)
    assert len(bench.server.seen) == 2


async def test_tokens_and_cost_are_counted_per_job_and_container(bench: Bench) -> None:
    bench.server.usage = lambda *_: (1_000_000, 100_000)
    await bench.calls.complete(call("a"))
    await bench.calls.complete(call("b"))
    await bench.calls.complete(call("c", job_id=None))
    name = f"work/{MODEL}"
    assert await bench.usage(7) == [ModelUsage("summaries", name, 2, 2_000_000, 200_000, 6.0)]
    assert await bench.usage() == [ModelUsage("summaries", name, 3, 3_000_000, 300_000, 9.0)]


async def test_speech_is_transcribed_stored_and_counted_like_other_calls(bench: Bench) -> None:
    speech = ModelBlock(enabled=True, provider=f"work/{MODEL}")
    await bench.permit(speech=speech)
    bench.server.answer = lambda _: "Hello there."
    request = replace(call().request, parts=[AudioPart(b"RIFF", "a.wav", "audio/wav")])
    spoken = call(purpose="speech", block=speech, request=request)
    first = await bench.calls.complete(spoken)
    assert (await bench.calls.complete(spoken)).answer == first.answer
    (segment,) = Transcript.model_validate_json(first.answer.text).segments
    assert (segment.begin, segment.end) == (0.0, 2.0)
    assert len(bench.server.seen) == 1
    assert [(one.purpose, one.calls) for one in await bench.usage()] == [("speech", 1)]


async def test_documents_are_read_by_messages_of_anthropic(bench: Bench) -> None:
    bench.provide(kind="anthropic")
    model = bench.calls.model(SUMMARIES)
    assert (model.reads_pdf, model.reads_images) == (True, True)
    request = replace(call().request, parts=[PdfPart(b"%PDF-1.7")])
    await bench.calls.complete(call(request=request))
    (seen,) = bench.server.seen
    assert (seen.path, seen.pdfs) == ("/v1/messages", (b"%PDF-1.7",))


async def test_a_job_shows_what_its_models_used(bench: Bench) -> None:
    bench.server.usage = lambda *_: (1_000_000, 100_000)
    async with bench.db.transaction() as conn:
        row = await (await conn.execute(JOB)).fetchone()
        assert row is not None
    for text in ("a", "b", "a"):
        await bench.calls.complete(call(text, job_id=JobId(row["id"])))
    async with bench.db.transaction() as conn:
        view = await admin.get(conn, row["id"])
    assert view.language_models == JobLanguageModels(
        calls=2, input_tokens=2_000_000, output_tokens=200_000, cost=6.0
    )


# -- Permission


@pytest.mark.parametrize(
    "manifest",
    [
        {"summaries": Summaries()},
        {"summaries": Summaries(enabled=False, provider=f"work/{MODEL}")},
        {"summaries": Summaries(enabled=True, provider="work/other")},
        {"summaries": Summaries(), "ask": ModelBlock(enabled=True, provider=f"work/{MODEL}")},
    ],
)
async def test_nothing_is_sent_unless_the_stored_manifest_names_the_model_for_this_purpose(
    bench: Bench, manifest: Mapping[str, Any]
) -> None:
    await bench.calls.complete(call())
    await bench.permit(**manifest)
    for forbidden in (call(), call("other")):  # what is stored is not shown either
        with pytest.raises(Forbidden, match="does not permit"):
            await bench.calls.complete(forbidden)
        with pytest.raises(Forbidden, match="does not permit"):
            [part async for part in bench.calls.stream(forbidden)]
    assert len(bench.server.seen) == 1


async def test_a_block_that_permits_nothing_calls_nothing(bench: Bench) -> None:
    for block in (ModelBlock(), ModelBlock(provider=f"work/{MODEL}")):
        with pytest.raises(Forbidden, match="permits no language model"):
            await bench.calls.complete(call(block=block))
        with pytest.raises(Forbidden, match="permits no language model"):
            bench.calls.model(block)
    assert bench.server.seen == []


async def test_a_permission_that_ends_while_a_call_waits_ends_the_call(bench: Bench) -> None:
    bench.server.script = [Fault(Lie.RATE_LIMITED, "3")]

    async def forbid() -> None:
        await bench.permit(summaries=Summaries())

    bench.on_nap = forbid
    with pytest.raises(Forbidden):
        await bench.calls.complete(call())
    assert len(bench.server.seen) == 1


async def test_a_deleted_container_is_read_by_no_model(bench: Bench) -> None:
    async with bench.db.transaction() as conn:
        await conn.execute("UPDATE containers SET deleted_at = now()")
    with pytest.raises(NotFound):
        await bench.calls.complete(call())
    assert bench.server.seen == []


OUR_SOURCES: Final = [
    path
    for package in ("core", "workers", "mcp-server", "cli")
    for path in (REPOSITORY / package / "src").rglob("*.py")
]
CLIENTS: Final = re.compile(
    r"language_models\.named\(|_models\.named\(|client_of\(|OpenAiChat\(|AnthropicMessages\(|Transcriber\(|ModelWire\("
)
MAY_CALL: Final = {
    "calls.py",
    "resolve.py",
    "measure.py",  # sends its own texts
    "openai_chat.py",
    "anthropic_messages.py",
    "transcription.py",
}


def test_no_other_code_reaches_a_language_model(bench: Bench) -> None:
    found = {path for path in OUR_SOURCES if CLIENTS.search(path.read_text("utf-8"))}
    assert {path.name for path in found} == MAY_CALL
    assert {path.parent.name for path in found} == {"llm"}
    assert not hasattr(bench.calls.model(SUMMARIES), "complete")


# -- Budget


@pytest.mark.parametrize(
    ("budget", "key"),
    [
        ({"job_tokens": 150}, "job_tokens"),
        ({"tokens": 150}, "tokens"),
        ({"cost": 0.0005}, "cost"),
    ],
)
async def test_a_budget_ends_the_job_and_keeps_what_is_done(
    bench: Bench, budget: Mapping[str, Any], key: str
) -> None:
    await bench.permit(model_budget=ModelBudget(**budget))
    bench.server.usage = lambda *_: (90, 10)
    for text in ("a", "b", "c"):
        if text == "c":
            with pytest.raises(Forbidden, match=rf"model_budget\.{key} of 'notes' is") as raised:
                await bench.calls.complete(call(text))
            assert raised.value.details["key"] == f"model_budget.{key}"
        else:
            await bench.calls.complete(call(text))
    assert len(bench.server.seen) == 2
    assert (await bench.calls.complete(call("a"))).cached
    other = bench.calls.complete(call("c", job_id=JobId(8)))
    if key == "job_tokens":
        assert not (await other).cached
    else:
        with pytest.raises(Forbidden):
            await other


async def test_a_budget_is_exceeded_by_calls_in_flight_only(bench: Bench) -> None:
    bench.provide(concurrency=2)
    await bench.permit(model_budget=ModelBudget(tokens=1))
    bench.server.usage = lambda *_: (90, 10)
    results = await asyncio.gather(
        *(bench.calls.complete(call(str(n))) for n in range(10)), return_exceptions=True
    )
    assert len(bench.server.seen) <= 2
    assert sum(isinstance(result, Forbidden) for result in results) == 10 - len(bench.server.seen)


# -- Limits and retries


async def test_a_provider_gets_no_more_requests_at_once_than_its_entry_says(bench: Bench) -> None:
    bench.provide(concurrency=2)
    bench.server.delay = 0.02
    await asyncio.gather(*(bench.calls.complete(call(str(n))) for n in range(6)))
    assert bench.server.peak == 2


async def test_a_question_does_not_wait_for_jobs(bench: Bench) -> None:
    bench.provide(concurrency=1)
    asking = ModelBlock(enabled=True, provider=f"work/{MODEL}")
    await bench.permit(ask=asking)
    bench.server.rules = [("slow", Lie.SLOW)]
    job = asyncio.create_task(bench.calls.complete(call("slow")))
    await bench.server.received(1)
    waiting = call("b", request=replace(call("b").request, seconds=0.3))
    with pytest.raises(LimitReached, match=r"other requests to the provider of work/.* took"):
        await bench.calls.complete(waiting)
    question = call(purpose="ask", block=asking, job_id=None)
    *_, last = [part async for part in bench.calls.stream(question)]
    assert last.usage is not None
    assert not job.done()
    job.cancel()
    await asyncio.wait([job])
    assert not (await bench.calls.complete(call("b"))).cached  # the place is free again


async def test_a_rate_is_waited_for_and_named_when_it_is_used_up(bench: Bench) -> None:
    bench.provide(rate=1)
    await bench.calls.complete(call("a"))
    with pytest.raises(LimitReached, match="1 requests a minute of the provider of work"):
        await bench.calls.complete(call("b"))
    assert len(bench.server.seen) == 1


@pytest.mark.parametrize("lie", [Lie.RATE_LIMITED, Lie.OVERLOADED, Lie.SERVER_ERROR, Lie.HUNG_UP])
async def test_what_was_not_answered_is_tried_again(bench: Bench, lie: Lie) -> None:
    bench.server.script = [lie, Fault(lie, "7")]
    answer = await bench.calls.complete(call())
    assert answer.answer.stop is Stop.END
    assert len(bench.server.seen) == 3
    assert bench.naps[-1] == (1.0 if lie is Lie.HUNG_UP else 7.0)
    assert [one.calls for one in await bench.usage()] == [1]


@pytest.mark.parametrize(
    ("lie", "error"),
    [
        (Lie.WRONG_CONTENT_TYPE, MalformedAnswer),
        (Lie.TRUNCATED, MalformedAnswer),
        (Lie.UNREADABLE_REQUEST, InputRefused),
        (Lie.SLOW, UpstreamTimeout),
    ],
)
async def test_what_was_answered_is_not_tried_again(
    bench: Bench, lie: Lie, error: type[LatentError]
) -> None:
    bench.server.script = [lie]
    given = call()
    with pytest.raises(error):
        await bench.calls.complete(replace(given, request=replace(given.request, seconds=0.5)))
    assert len(bench.server.seen) == 1
    assert await bench.usage() == []
    assert not (await bench.calls.complete(given)).cached


async def test_a_server_that_asks_for_a_long_pause_gets_it_from_all_calls(bench: Bench) -> None:
    bench.server.script = [Fault(Lie.RATE_LIMITED, "900")]
    with pytest.raises(LimitReached) as raised:
        await bench.calls.complete(call())
    assert raised.value.details["retry_after"] == 900.0
    assert not raised.value.counts_as_attempt
    with pytest.raises(LimitReached, match="used up"):
        await bench.calls.complete(call("other"))
    assert len(bench.server.seen) == 1


async def test_retries_end(bench: Bench) -> None:
    bench.server.script = [Lie.SERVER_ERROR] * 3
    with pytest.raises(UpstreamError):
        await bench.calls.complete(call())
    assert len(bench.server.seen) == 3


# -- Streams


async def test_a_stream_is_counted_but_not_stored(bench: Bench) -> None:
    bench.server.script = [Lie.SERVER_ERROR]
    *pieces, last = [part async for part in bench.calls.stream(call())]
    assert "".join(piece.text for piece in pieces) == bench.server.answer(bench.server.seen[-1])
    assert last.usage is not None
    (used,) = await bench.usage(7)
    assert (used.calls, used.input_tokens) == (1, last.usage.input_tokens)
    assert not (await bench.calls.complete(call())).cached


async def test_a_stream_that_is_closed_early_is_counted_by_estimate(bench: Bench) -> None:
    stream = bench.calls.stream(call())
    await anext(stream)
    await anext(stream)
    await stream.aclose()
    (used,) = await bench.usage(7)
    assert used.input_tokens > 10
    assert used.output_tokens > 0


async def test_a_stream_that_breaks_after_its_first_part_is_not_repeated(bench: Bench) -> None:
    bench.server.script = [Lie.TRUNCATED]
    with pytest.raises(MalformedAnswer, match="cut off"):
        [part async for part in bench.calls.stream(call())]
    assert len(bench.server.seen) == 1
    assert len(await bench.usage()) == 1


# -- The log


async def test_calls_are_logged_without_content_and_key(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    bench.server.answer = lambda _: '{"note": "Ottilie mended it"}'
    bench.server.script = [Lie.SERVER_ERROR]
    await bench.calls.complete(call())
    [part async for part in bench.calls.stream(call())]
    ours = [r.__dict__ for r in caplog.records if r.name == "latent_core.models.llm.calls"]
    assert [one["message"] for one in ours] == ["model_call_failed", "model_called", "model_called"]
    (done,) = ours[1:2]
    assert (done["purpose"], done["model"], done["job_id"]) == ("summaries", f"work/{MODEL}", 7)
    assert (done["stop"], len(done["prompt_hash"])) == ("end", 64)
    assert done["input_tokens"] > 0
    assert done["ms"] >= 0
    everything = repr([record.__dict__ for record in caplog.records])
    for secret in (KEY, "Ottilie", "Summarise."):
        assert secret not in everything


async def test_an_error_does_not_quote_what_the_model_was_shown(bench: Bench) -> None:
    def refuse(seen: SeenRequest) -> str:
        raise RefusalError(400, f"cannot parse: {seen.text} (called with {KEY})")

    bench.server.answer = refuse
    with pytest.raises(InputRefused, match="cannot parse:…") as raised:
        await bench.calls.complete(call())
    assert "Ottilie" not in raised.value.message
    assert KEY not in raised.value.message
    assert "Ottilie" not in repr(raised.value)


# -- Crashes


def _crash(dsn: str, url: str, folder: str, point: str) -> None:
    """A worker that ends at ``point`` of its call."""

    async def run() -> None:
        async with await Database.open(dsn, max_size=2, name="crash") as db:
            models = LanguageModels(providers_at(url, Path(folder)), lambda _, n: TextRate(n))
            failpoint.arm(point)
            await ModelCalls(db, models).complete(call())

    asyncio.run(run())


@pytest.mark.parametrize(("point", "made"), [("model.before_answer", 2), ("model.after_answer", 1)])
async def test_a_crash_repeats_no_call_whose_answer_is_stored(
    bench: Bench, dsn: str, point: str, made: int
) -> None:
    worker = multiprocessing.get_context("spawn").Process(
        target=_crash, args=(dsn, bench.server.base_url, str(bench.folder), point)
    )
    worker.start()
    await asyncio.to_thread(worker.join, 60)
    assert worker.exitcode == failpoint.KILLED
    answer = await bench.calls.complete(call())
    assert answer.cached is (made == 1)
    assert len(bench.server.seen) == made
    assert [one.calls for one in await bench.usage()] == [1]


# -- What goes with whom


async def test_answers_go_with_their_document_their_container_and_after_90_days_unused(
    bench: Bench,
) -> None:
    doc_id = uuid4()
    async with bench.db.transaction() as conn:
        await conn.execute(DOCUMENT, {"id": doc_id})
    await bench.calls.complete(call("a", doc_id=doc_id))
    await bench.calls.complete(call("b"))
    await bench.calls.complete(call("c", doc_id=UUID(int=1)))  # deleted meanwhile: not stored
    assert await stored(bench) == 2
    async with bench.db.transaction() as conn:
        await conn.execute("DELETE FROM documents")
    assert await stored(bench) == 1
    async with bench.db.transaction() as conn:
        await conn.execute("UPDATE model_answers SET used_at = now() - interval '89 days'")
        assert await model_answers.forget(conn) == 0
    assert (await bench.calls.complete(call("b"))).cached
    async with bench.db.transaction() as conn:
        await conn.execute("UPDATE model_answers SET used_at = used_at - interval '80 days'")
        assert await model_answers.forget(conn) == 0
        await conn.execute("UPDATE model_answers SET used_at = now() - interval '91 days'")
        assert await model_answers.forget(conn) == 1


async def stored(bench: Bench) -> int:
    async with bench.db.transaction() as conn:
        row = await (await conn.execute("SELECT count(*) AS n FROM model_answers")).fetchone()
    return 0 if row is None else int(row["n"])
