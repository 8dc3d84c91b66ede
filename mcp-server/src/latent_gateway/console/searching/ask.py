"""The page that asks: a question, its answer while it is written, what was read, and what the answer cites."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import urlencode

import orjson
from fastapi import Form, Query, Response
from markupsafe import Markup
from pydantic import ValidationError

from latent_core.domain.errors import Invalid, LatentError, NotFound, Unavailable
from latent_core.models.llm.port import Usage
from latent_core.search.readable import Readable
from latent_core.wire.ask import MAX_QUESTION_CHARS, AskAnswer, AskRequest, AskSource, Citation
from latent_gateway.api.ask.answer import Question
from latent_gateway.api.ask.routes import READ_SECONDS, AskStream, RunningEvents, answered
from latent_gateway.api.sse import KEEP_ALIVE
from latent_gateway.auth import access
from latent_gateway.console.frame.console_session import ConsoleSession, SignedIn
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import draw, page
from latent_gateway.console.searching.answer_text import formatted
from latent_gateway.context import Gateway, Shared

router = pages()
logger = logging.getLogger(__name__)

PATH: Final = "/console/ask"
MAX_CONTAINERS: Final = 50
MAX_FORM_CHARS: Final = 4 * MAX_QUESTION_CHARS

Ids = Annotated[list[str], Form(max_length=MAX_CONTAINERS)]
Text = Annotated[str, Form(max_length=MAX_FORM_CHARS)]


@dataclass(frozen=True, slots=True)
class ShownSource:
    source: AskSource | Citation
    panel: str
    """Address of the panel that shows it."""


@dataclass(frozen=True, slots=True)
class ShownQuestion:
    answer: AskAnswer
    text: Markup
    citations: Sequence[ShownSource]
    sources: Sequence[ShownSource]
    cost: float | None
    """In the currency of the provider's prices; None if it has none."""


@router.get(PATH)
async def form(
    shared: Shared,
    session: SignedIn,
    q: Annotated[str, Query(max_length=MAX_QUESTION_CHARS)] = "",
    c: Annotated[tuple[str, ...], Query(max_length=MAX_CONTAINERS)] = (),
) -> Response:
    """The form. A question in the address is not asked: a model costs money, and others can make links."""
    return await _page(shared, session, q, c)


@router.post(PATH)
async def ask(shared: Shared, session: SignedIn, q: Text = "", c: Ids = []) -> Response:  # noqa: B006
    """The whole answer as a page, for browsers without scripts."""
    try:
        request = _request(q, c)
        answer = await answered(
            request, shared, session.principal, session.request_id, session.links
        )
    except LatentError as error:
        return await _page(shared, session, q, c, trouble=error)
    return await _page(shared, session, q, c, shown=_shown(answer, shared))


@router.post(f"{PATH}/events")
async def events(shared: Shared, session: SignedIn, q: Text = "", c: Ids = []) -> Response:  # noqa: B006
    """The answer while it is written, as server-sent events whose data is JSON: ``sources`` and ``end`` with HTML,
    ``text`` with the next piece, ``error`` with a message. Who closes the connection ends the call of the model."""
    question = Question(
        _request(q, c), shared, session.principal, session.request_id, session.links
    )
    async with AsyncExitStack() as held:
        await held.enter_async_context(shared.questions.slot(session.principal))
        running = RunningEvents(question)
        held.push_async_callback(running.close)
        await running.begin()
        seconds = shared.settings.ask_seconds + READ_SECONDS
        return AskStream(_written(running, question), held.pop_all(), seconds)


async def _written(running: RunningEvents, question: Question) -> AsyncGenerator[bytes]:
    try:
        async with aclosing(running.events()) as found:
            async for event in found:
                if event is None:
                    yield KEEP_ALIVE
                elif event.name == "sources":
                    sources = [_source(one) for one in question.answer.sources]
                    yield _event("sources", draw("searching/sources.html", sources=sources))
                elif event.name == "text":
                    yield _event("text", event.data["text"])
                elif event.name == "end":
                    shown = _shown(question.answer, question.shared)
                    yield _event("end", draw("searching/asked.html", shown=shown))
    except LatentError as exc:
        yield _event("error", exc.message)
    except Exception:  # the outermost frame of a stream: it logs and answers
        logger.exception("ask_failed", extra={"request_id": question.request_id})
        cause = Unavailable(
            f"internal error: the gateway's log has the cause under request {question.request_id}"
        )
        yield _event("error", cause.message)


def _event(name: str, data: str) -> bytes:
    return f"event: {name}\ndata: ".encode() + orjson.dumps(data) + b"\n\n"


def _request(question: str, containers: Sequence[str]) -> AskRequest:
    given: dict[str, Any] = {"question": question.strip(), "containers": list(containers)}
    if not given["question"]:
        raise Invalid("the question is empty: write one")
    if not containers:
        raise Invalid("choose at least one container to ask")
    try:
        return AskRequest.model_validate(given)
    except ValidationError as exc:
        message = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in exc.errors())
        raise Invalid(message) from exc


async def _page(
    shared: Gateway,
    session: ConsoleSession,
    question: str,
    chosen: Sequence[str],
    *,
    shown: ShownQuestion | None = None,
    trouble: LatentError | None = None,
) -> Response:
    if shared.settings.providers is None:
        raise NotFound("no language model is configured for questions: docs/how-to/ask.md says how")
    async with shared.stack.db.reading() as conn:
        readable = await access.all_searchable(conn, session.principal)
    permitted = [one for one in readable if _permits(one)]
    return page(
        "searching/ask.html",
        session,
        status=200 if trouble is None else trouble.status,
        question=question,
        permitted=permitted[:MAX_CONTAINERS],
        chosen=list(chosen) or _of_first_model(permitted),
        max_chars=MAX_QUESTION_CHARS,
        shown=shown,
        trouble=trouble,
    )


def _permits(container: Readable) -> bool:
    block = container.manifest.ask
    return block.enabled and block.provider is not None


def _of_first_model(permitted: Sequence[Readable]) -> list[str]:
    """One question has one model."""
    first = next((one.manifest.ask.provider for one in permitted), None)
    return [one.id for one in permitted if one.manifest.ask.provider == first][:MAX_CONTAINERS]


def _shown(answer: AskAnswer, shared: Gateway) -> ShownQuestion:
    citations = [_source(one) for one in answer.citations]
    links = {one.source.n: one.panel for one in citations}
    sources = [_source(one) for one in answer.sources]
    text = formatted(answer.text, links)
    return ShownQuestion(answer, text, citations, sources, _cost(answer, shared))


def _cost(answer: AskAnswer, shared: Gateway) -> float | None:
    if answer.model is None or answer.usage is None:
        return None
    used = Usage(answer.usage.input_tokens, answer.usage.output_tokens)
    return shared.stack.language_models.cost(answer.model, used)


def _source(source: AskSource | Citation) -> ShownSource:
    at = {"page": source.page} if source.page else {}
    address = {"c": source.container_id, "chunk": source.chunk_id, **at}
    return ShownSource(source, f"/console/search/panel?{urlencode(address)}")
