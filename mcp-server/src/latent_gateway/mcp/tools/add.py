"""``containers_add``."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, ValidationError

from latent_core.domain.errors import Invalid
from latent_core.domain.text import Meta, Text
from latent_core.wire.base import MAX_PATH
from latent_core.wire.documents import AddBody
from latent_gateway.api.ingest import accept_source
from latent_gateway.mcp.calls import Scope, ToolCall
from latent_gateway.mcp.results import ToolResult, problems
from latent_gateway.mcp.tools.containers import ContainerId
from latent_gateway.mcp.tools.port import Arguments, Tool


class AddArguments(Arguments):
    container_id: ContainerId
    uri: Annotated[
        Text | None, Field(max_length=MAX_PATH, description="http(s) address of a page or file.")
    ] = None
    file_ref: Annotated[
        Text | None,
        Field(
            max_length=MAX_PATH,
            description="Instead of uri: id of an upload, or path below an ingest root.",
        ),
    ] = None
    modality: Literal["auto", "text", "image"] = "auto"
    meta: Annotated[Meta, Field(description="Fields for filters.")] = {}


class ToolAddResult(ToolResult):
    job_id: int
    doc_id: str
    status: str
    source_uri: str
    advice: str


async def add(call: ToolCall, arguments: AddArguments) -> ToolAddResult:
    try:
        body = AddBody.model_validate(arguments.model_dump(exclude_unset=True, exclude_none=True))
    except ValidationError as exc:
        raise Invalid(problems(exc)) from exc
    added = await accept_source(body, call.shared, call.caller, call.request_id)
    return ToolAddResult(
        job_id=added.job_id,
        doc_id=str(added.doc_id),
        status=added.status,
        source_uri=added.source_uri,
        advice="It is searchable when its job is done: wait with jobs_get and wait_seconds.",
    )


ADD: Final = Tool(
    name="containers.add",
    title="Add to a container",
    description=(
        "Add one page or file to a container. A job fetches, parses and indexes it; the answer has its job_id. "
        "Adding the same source again replaces its earlier version."
    ),
    scope=Scope.WRITE,
    arguments=AddArguments,
    answer=ToolAddResult,
    run=add,
    open_world=True,
)
