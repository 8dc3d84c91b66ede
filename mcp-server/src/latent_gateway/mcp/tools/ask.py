"""``containers_ask``: an answer by the containers' language model. Only by ``LLC_MCP_ASK``, since agents answer
themselves from what a search finds."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field

from latent_core.domain.text import Text
from latent_core.wire.ask import (
    DEFAULT_TOP_K,
    MAX_QUESTION_CHARS,
    MAX_TOP_K,
    AskAnswer,
    AskRequest,
    Citation,
)
from latent_core.wire.search import MAX_CONTAINERS
from latent_gateway.api.ask.routes import answered
from latent_gateway.mcp.calls import Scope, ToolCall
from latent_gateway.mcp.results import IssueSummary, ToolResult, issue_summary
from latent_gateway.mcp.tools.arguments import CLAMPED
from latent_gateway.mcp.tools.port import UNTRUSTED, Arguments, Tool, UntrustedContent
from latent_gateway.mcp.tools.search import Listed

SECONDS: Final = 240.0


class AskArguments(Arguments):
    containers: Annotated[
        Annotated[list[Text], Field(min_length=1, max_length=MAX_CONTAINERS)], Listed
    ]
    question: Annotated[str, Field(min_length=1, max_length=MAX_QUESTION_CHARS)]
    top_k: Annotated[int, Field(ge=1, le=MAX_TOP_K), CLAMPED] = DEFAULT_TOP_K
    filters: dict[str, Any] = {}


class CitedContent(UntrustedContent):
    title: str
    source: str
    section: str = ""


class CompactCitation(ToolResult):
    n: int
    container_id: str
    doc_id: str
    page: int | None = None
    content: CitedContent
    page_uri: str | None = None
    page_pdf_uri: str | None = None


class AnswerContent(UntrustedContent):
    text: str


class ToolAnswer(ToolResult):
    answered: bool
    content: AnswerContent
    citations: list[CompactCitation] = []
    notice: str = ""
    issues: list[IssueSummary] = []


async def ask(call: ToolCall, arguments: AskArguments) -> ToolAnswer:
    request = AskRequest.model_validate(arguments.model_dump(exclude_unset=True))
    answer = await answered(request, call.shared, call.caller, call.request_id, call.links)
    return _compact(answer)


def _compact(answer: AskAnswer) -> ToolAnswer:
    return ToolAnswer(
        answered=answer.answered,
        content=AnswerContent(text=answer.text),
        citations=[_citation(one) for one in answer.citations],
        notice=UNTRUSTED,
        issues=[issue_summary(issue) for issue in answer.issues],
    )


def _citation(one: Citation) -> CompactCitation:
    return CompactCitation(
        n=one.n,
        container_id=one.container_id,
        doc_id=str(one.doc_id),
        page=one.page,
        content=CitedContent(
            title=one.title, source=one.source_uri, section=one.place.heading_path
        ),
        page_uri=one.page_uri,
        page_pdf_uri=one.page_pdf_uri,
    )


ASK: Final = Tool(
    name="containers.ask",
    title="Ask containers",
    description="Answer from containers by their language model, with citations.",
    scope=Scope.READ,
    arguments=AskArguments,
    answer=ToolAnswer,
    run=ask,
    seconds=SECONDS,
    open_world=True,
)
