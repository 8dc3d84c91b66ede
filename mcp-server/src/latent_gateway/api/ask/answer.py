"""One question, from search to citations (ADR 0057)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final, Literal, NamedTuple

from latent_core.ask.prompt import PROMPT, NumberedSource, completion
from latent_core.ask.reader import AnswerReader
from latent_core.ask.relevance_gate import refusal
from latent_core.db.containers import Container
from latent_core.domain.errors import Forbidden, Invalid, Issue, IssueCode, TimedOut
from latent_core.domain.manifest.language_models import ModelBlock
from latent_core.models.llm.calls import Call
from latent_core.models.llm.port import AnswerPart, Completion, LanguageModel, Stop
from latent_core.wire.ask import AskAnswer, AskRequest, AskSource, AskUsage, Citation
from latent_core.wire.search import Hit, SearchRequest
from latent_gateway.api.ask.page_files import PageFiles, is_pictured
from latent_gateway.api.search import find
from latent_gateway.auth import access
from latent_gateway.auth.principal import Principal
from latent_gateway.context import BlobLinks, Gateway

logger = logging.getLogger(__name__)

PURPOSE: Final = "ask"
PASSAGES: Final = 3
"""Of one document."""
MAX_SOURCES: Final = 24
MAX_SOURCE_CHARS: Final = 60_000
"""Of all texts together."""
MAX_ANSWER_CHARS: Final = 40_000

EventName = Literal["sources", "text", "citations", "end"]


class AskEvent(NamedTuple):
    name: EventName
    data: dict[str, Any]
    """As JSON."""


@dataclass
class Question:
    """A question of one caller. ``answer`` grows while ``events`` are read."""

    request: AskRequest
    shared: Gateway
    caller: Principal
    request_id: str
    links: BlobLinks
    answer: AskAnswer = field(init=False)
    _block: ModelBlock = field(init=False, default=ModelBlock())

    def __post_init__(self) -> None:
        self.answer = AskAnswer(request_id=self.request_id, answered=False)

    async def events(self) -> AsyncGenerator[AskEvent]:
        """``sources``, ``text`` (many), ``citations`` and ``end``; only ``end`` if nothing relevant is found. Raises
        ``LatentError``."""
        begun = perf_counter()
        until = asyncio.get_running_loop().time() + self.shared.settings.ask_seconds
        model = await self._model()
        found = await find(self._search(), self.shared, self.caller, self.request_id, self.links)
        self._note(*(one for one in found.issues if one.code is not IssueCode.NO_HITS))
        self.answer.partial = found.partial
        self._lap("search", begun)
        refused = refusal(found.hits)
        if refused is not None:
            self.answer.refused_by = "search"
            self._note(refused)
            yield self._end(begun)
            return
        sources = await self._sources(found.hits, model)
        await self._check_rights()
        self.answer.sources = [source.about for source in sources]
        yield AskEvent("sources", {"sources": _json(self.answer.sources)})
        self._lap("sources", begun)
        async with aclosing(self._texts(sources, model, until)) as texts:
            async for text in texts:
                self.answer.text += text
                yield AskEvent("text", {"text": text})
        await self._check_rights()
        yield AskEvent("citations", {"citations": _json(self.answer.citations)})
        yield self._end(begun)

    async def _model(self) -> LanguageModel:
        """The model that all containers name for questions."""
        async with self.shared.stack.db.reading() as conn:
            readable = await access.searchable(conn, self.caller, self.request.containers)
        self._block = common_block(readable)
        return self.shared.stack.model_calls.model(self._block)

    def _search(self) -> SearchRequest:
        return SearchRequest(
            containers=self.request.containers,
            query=self.request.question,
            top_k=self.request.top_k,
            filters=self.request.filters,
            passages=PASSAGES,
            mark_weak=False,
            diagnostics=False,
            max_chars=MAX_SOURCE_CHARS,
        )

    async def _sources(self, hits: Sequence[Hit], model: LanguageModel) -> list[NumberedSource]:
        chosen = distinct(hits)[:MAX_SOURCES]
        sources = [
            NumberedSource(_source(n, hit), hit.text or hit.snippet)
            for n, hit in enumerate(chosen, start=1)
        ]
        files = PageFiles(self.shared, self.caller, self.links, model)
        attached = await files.attached(sources, chosen)
        self._note(*files.issues)
        return attached

    async def _check_rights(self) -> None:
        """The caller's rights now: they may be revoked while the answer is made."""
        self.caller = await self.shared.tokens.renewed(self.caller)
        async with self.shared.stack.db.reading() as conn:
            await access.readable(conn, self.caller, self.request.containers)

    async def _texts(
        self, sources: Sequence[NumberedSource], model: LanguageModel, until: float
    ) -> AsyncGenerator[str]:
        """The safe text of the answer, piece by piece. Afterwards ``answer`` has all but the text."""
        seconds = until - asyncio.get_running_loop().time()
        if seconds <= 0:
            raise _late(self.shared.settings.ask_seconds)
        self.answer.model, self.answer.prompt_version = model.name, PROMPT
        reader = AnswerReader([source.about.n for source in sources])
        request = completion(self.request.question, sources, seconds=seconds)
        stop, length = Stop.END, 0
        async with aclosing(self._parts(sources, request)) as parts:
            while (part := await _next(parts, until, self.shared.settings.ask_seconds)) is not None:
                if part.usage is not None:
                    self.answer.usage = AskUsage(
                        input_tokens=part.usage.input_tokens, output_tokens=part.usage.output_tokens
                    )
                stop = part.stop or stop
                length += len(part.text)
                if text := reader.feed(part.text):
                    yield text
                if length > MAX_ANSWER_CHARS:
                    stop = Stop.LENGTH
                    break
        if text := reader.finish():
            yield text
        self._judge(reader, stop)

    def _parts(
        self, sources: Sequence[NumberedSource], request: Completion
    ) -> AsyncGenerator[AnswerPart]:
        """Of the model's answer, whose tokens count for the containers of its sources."""
        first, *others = dict.fromkeys(source.about.container_id for source in sources)
        call = Call(
            container_id=first,
            purpose=PURPOSE,
            block=self._block,
            prompt_version=PROMPT,
            request=request,
            input_hash="",  # no answer to a question is stored
        )
        return self.shared.stack.model_calls.stream(call, others=others)

    def _judge(self, reader: AnswerReader, stop: Stop) -> None:
        """What the answer is worth, after its text."""
        answer = self.answer
        cited = [source for source in answer.sources if source.n in reader.cited]
        answer.citations = [Citation(**source.model_dump(include=CITED)) for source in cited]
        if reader.refused or stop is Stop.REFUSAL:
            answer.refused_by = "model"
            self._note(_refused_by_model(reader))
            return
        answer.answered = bool(answer.text.strip())
        if stop is Stop.LENGTH:
            answer.partial = True
            self._note(_policy("The answer was cut at its maximum length."))
        if not answer.answered:
            self._note(_policy("The language model gave no answer. Ask again, or in other words."))
        elif not cited:
            self._note(_policy("The answer names no source, so nothing in it can be checked."))

    def _note(self, *issues: Issue) -> None:
        self.answer.issues = [*self.answer.issues, *issues]

    def _lap(self, stage: str, begun: float) -> None:
        """Milliseconds from the start until the end of the stage."""
        spent = round((perf_counter() - begun) * 1000, 3)
        self.answer.timings = {**self.answer.timings, stage: spent}

    def _end(self, begun: float) -> AskEvent:
        self._lap("total", begun)
        logger.info(
            "question_answered",
            extra={
                "request_id": self.request_id,
                "containers": self.request.containers,
                "answered": self.answer.answered,
                "refused_by": self.answer.refused_by,
                "sources": len(self.answer.sources),
                "citations": len(self.answer.citations),
                "latency_ms": self.answer.timings["total"],
            },
        )
        return AskEvent("end", self.answer.model_dump(mode="json", exclude=STREAMED))


CITED: Final = set(Citation.model_fields)
STREAMED: Final = {"text", "citations", "sources"}
"""Fields of the answer that have events of their own."""


def common_block(containers: Mapping[str, Container]) -> ModelBlock:
    """The one language model that all these containers permit for questions."""
    named: dict[str, str] = {}
    for container_id, container in containers.items():
        block = container.manifest.ask
        if not block.enabled or block.provider is None:
            raise Forbidden(
                f"container '{container_id}' permits no language model to answer questions: its owner sets ask.enabled and "
                "ask.provider in its manifest. A search needs none",
                container_id=container_id,
            )
        named[container_id] = block.provider
    providers = sorted(set(named.values()))
    if len(providers) > 1:
        raise Invalid(
            f"these containers permit different language models ({', '.join(providers)}): ask them one by one",
            providers=named,
        )
    return ModelBlock(enabled=True, provider=providers[0])


def distinct(hits: Sequence[Hit]) -> list[Hit]:
    """The hits without those on a page that goes as a file for an earlier one."""
    seen: set[tuple[Any, ...]] = set()
    found = []
    for hit in hits:
        key = (hit.doc_id, hit.provenance.page if is_pictured(hit) else hit.chunk_id)
        if key not in seen:
            found.append(hit)
        seen.add(key)
    return found


def _source(n: int, hit: Hit) -> AskSource:
    return AskSource(
        n=n,
        container_id=hit.container_id,
        doc_id=hit.doc_id,
        chunk_id=hit.chunk_id,
        title=hit.title,
        page=hit.provenance.page,
        place=hit.place,
        source_uri=hit.source_uri,
        page_uri=hit.page_uri,
        page_pdf_uri=hit.page_pdf_uri,
        generated=hit.generated,
        relevance=hit.relevance,
    )


async def _next(
    parts: AsyncIterator[AnswerPart], until: float, seconds: float
) -> AnswerPart | None:
    """The next part; None at the end."""
    try:
        async with asyncio.timeout_at(until):
            return await anext(parts, None)
    except TimeoutError as exc:
        raise _late(seconds) from exc


def _late(seconds: float) -> TimedOut:
    return TimedOut(
        f"the answer was not complete within {seconds:g} s: ask for less, lower top_k, or set LLC_ASK_SECONDS higher"
    )


def _refused_by_model(reader: AnswerReader) -> Issue:
    if reader.refused:
        message = "The sources do not answer the question, says the language model."
        return Issue(code=IssueCode.NO_HITS, message=message)
    return _policy("The language model, or a filter of its server, refused to answer.")


def _policy(message: str) -> Issue:
    return Issue(code=IssueCode.POLICY, message=message)


def _json(models: Sequence[AskSource] | Sequence[Citation]) -> list[dict[str, Any]]:
    return [model.model_dump(mode="json") for model in models]
