"""``containers_export``."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from latent_core.wire.transfers import ExportBody
from latent_gateway.api.transfers import exported
from latent_gateway.mcp.calls import Scope, ToolCall
from latent_gateway.mcp.results import ToolResult
from latent_gateway.mcp.tools.containers import ContainerId
from latent_gateway.mcp.tools.port import Arguments, Tool


class ExportArguments(Arguments):
    container_id: ContainerId
    vectors: Annotated[
        bool, Field(description="Default true; without them an import embeds everything again.")
    ] = True
    blobs: Annotated[
        bool,
        Field(
            description="Originals and page images, default true; without them the file has only their names."
        ),
    ] = True


class ToolExport(ToolResult):
    container_id: str
    status: str
    url: str | None = None
    """Of the archive, valid for some minutes."""
    bytes: int | None = None
    sha256: str | None = None
    totals: dict[str, int] = {}
    job_id: str | None = None
    advice: str | None = None


async def export(call: ToolCall, arguments: ExportArguments) -> ToolExport:
    body = ExportBody(
        container_id=arguments.container_id, vectors=arguments.vectors, blobs=arguments.blobs
    )
    answer = await exported(call.shared, call.caller, body, call.links, call.request_id)
    archive = answer.archive
    if archive is None:
        return ToolExport(
            container_id=arguments.container_id,
            status=answer.status,
            job_id=str(answer.job_id),
            advice="It is being created: wait with jobs_get and wait_seconds, then export again for the link.",
        )
    return ToolExport(
        container_id=arguments.container_id,
        status=answer.status,
        url=answer.url,
        bytes=archive.bytes,
        sha256=archive.sha256,
        totals=archive.totals,
    )


EXPORT: Final = Tool(
    name="containers.export",
    title="Export a container",
    description=(
        "Export a whole container as one file, for backups and other installations. Returns the link if the file exists, "
        "else the job that creates it. For owners."
    ),
    scope=Scope.ADMIN,
    arguments=ExportArguments,
    answer=ToolExport,
    run=export,
    check_with="containers_describe",
)
