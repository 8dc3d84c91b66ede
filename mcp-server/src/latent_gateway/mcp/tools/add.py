"""``documents_add``: a note, a web page or an uploaded file."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError

from latent_core.domain.conversation import MAX_MESSAGES
from latent_core.domain.errors import Invalid
from latent_core.domain.note import MAX_NAME_CHARS, MAX_TEXT_CHARS
from latent_core.domain.text import Meta, Text
from latent_core.wire.base import MAX_PATH, Moment
from latent_core.wire.documents import MAX_WAIT_SECONDS, AddAnswer, AddBody
from latent_gateway.api.ingest import accepted
from latent_gateway.mcp.calls import Scope, ToolCall
from latent_gateway.mcp.results import IssueSummary, ToolResult, issue_summary, problems
from latent_gateway.mcp.tools.containers import ContainerId
from latent_gateway.mcp.tools.port import UNTRUSTED, Arguments, DocId, Tool, UntrustedContent

SEARCHABLE: Final = "It is searchable now."
WAIT: Final = "It is stored and becomes searchable when its job is done: jobs_get waits for it."
NEAREST: Final = " nearest lists similar notes: if one of them is out of date, add this note again with supersedes."


class AddArguments(Arguments):
    container_id: ContainerId
    text: Annotated[
        str | None, Field(max_length=MAX_TEXT_CHARS, description="A note in Markdown.")
    ] = None
    messages: Annotated[
        list[dict[str, Any]] | None,
        Field(
            max_length=MAX_MESSAGES,
            description="Or a conversation: [{role, name, content, time}]. Under a known name they continue it.",
        ),
    ] = None
    title: Annotated[Text | None, Field(max_length=MAX_NAME_CHARS, description="Of the note.")] = (
        None
    )
    name: Annotated[
        Text | None,
        Field(
            max_length=MAX_NAME_CHARS,
            description="Key of the note: text under the same name replaces it.",
        ),
    ] = None
    uri: Annotated[
        Text | None, Field(max_length=MAX_PATH, description="Instead of text: a web address.")
    ] = None
    file_ref: Annotated[
        Text | None, Field(max_length=MAX_PATH, description="Instead of text: id of an upload.")
    ] = None
    supersedes: Annotated[
        DocId | None, Field(description="doc_id of the outdated document that this one replaces.")
    ] = None
    if_version: Annotated[
        int | None, Field(ge=0, description="Replace only this version; 0: only if new.")
    ] = None
    expires: Annotated[Moment | None, Field(description="Date after which it is deleted.")] = None
    session: Annotated[Text | None, Field(max_length=MAX_NAME_CHARS)] = None
    modality: Literal["auto", "text", "image"] = "auto"
    meta: Annotated[Meta, Field(description="Fields for filters.")] = {}


class NearestTitle(UntrustedContent):
    title: str


class NearestResult(ToolResult):
    doc_id: str
    written_at: str | None = None
    written_by: str | None = None
    untrusted_content: NearestTitle


class ToolAddResult(ToolResult):
    doc_id: str
    job_id: str
    source_uri: str
    searchable: bool
    version: int = 1
    replaced: str | None = None
    """The document that keeps the former text."""
    masked: dict[str, int] = {}
    nearest: list[NearestResult] = []
    notice: str | None = None
    issues: list[IssueSummary] = []
    advice: str


async def add(call: ToolCall, arguments: AddArguments) -> ToolAddResult:
    given = arguments.model_dump(exclude_unset=True, exclude_none=True)
    if "expires" in given:
        given["expires_at"] = given.pop("expires")
    try:
        body = AddBody.model_validate({**given, "wait_seconds": MAX_WAIT_SECONDS})
    except ValidationError as exc:
        raise Invalid(problems(exc)) from exc
    return _result(await accepted(body, call.shared, call.caller, call.request_id, call.links))


def _result(answer: AddAnswer) -> ToolAddResult:
    nearest = [
        NearestResult(
            doc_id=str(one.doc_id),
            written_at=one.written_at.isoformat(timespec="seconds") if one.written_at else None,
            written_by=one.written_by,
            untrusted_content=NearestTitle(title=one.title[:200]),
        )
        for one in answer.nearest
    ]
    advice = SEARCHABLE if answer.searchable else WAIT
    return ToolAddResult(
        doc_id=str(answer.doc_id),
        job_id=str(answer.job_id),
        source_uri=answer.source_uri,
        searchable=answer.searchable,
        version=answer.note_version,
        replaced=None if answer.replaced is None else str(answer.replaced),
        masked=answer.masked,
        nearest=nearest,
        notice=UNTRUSTED if nearest else None,
        issues=[issue_summary(issue) for issue in answer.issues],
        advice=advice + NEAREST if nearest else advice,
    )


ADD: Final = Tool(
    name="documents.add",
    title="Add a document",
    description=(
        "Remember something: add a note (text), or a web page or uploaded file, to a container. Waits up to 5 s and "
        "says whether it is searchable. Adding the same source or name again replaces it; former notes are kept as "
        "versions."
    ),
    scope=Scope.WRITE,
    arguments=AddArguments,
    answer=ToolAddResult,
    run=add,
    open_world=True,
    destructive=True,  # a text under the same name replaces the former one
)
