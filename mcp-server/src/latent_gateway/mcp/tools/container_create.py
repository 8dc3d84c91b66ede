"""``containers_create``."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from latent_core.domain.manifest.model import new_manifest
from latent_core.domain.text import Text
from latent_gateway.api.containers import created
from latent_gateway.auth.principal import OWNER
from latent_gateway.mcp.calls import Scope, ToolCall
from latent_gateway.mcp.results import ToolResult
from latent_gateway.mcp.tools.port import Arguments, Tool


class CreateArguments(Arguments):
    id: Annotated[Text, Field(max_length=63, description="Lowercase letters, digits and hyphens.")]
    name: Annotated[Text | None, Field(max_length=200, description="Default: the id.")] = None
    theme: Annotated[Text, Field(max_length=200, description="What it is about.")] = ""


class ToolContainerCreated(ToolResult):
    container_id: str
    advice: str


async def create(call: ToolCall, arguments: CreateArguments) -> ToolContainerCreated:
    manifest = new_manifest(
        {
            "id": arguments.id,
            "name": arguments.name or arguments.id,
            "theme": arguments.theme,
            "acl": {"roles": {"owner": sorted({OWNER, call.caller.name})}},
        }
    )
    answer, _ = await created(manifest, call.shared, call.caller, call.request_id)
    return ToolContainerCreated(
        container_id=answer.container.id, advice="Add notes and files with documents_add."
    )


CREATE: Final = Tool(
    name="containers.create",
    title="Create a container",
    description="Create a container: a collection of documents on one theme, such as a project's notes.",
    scope=Scope.CREATE,
    arguments=CreateArguments,
    answer=ToolContainerCreated,
    run=create,
    idempotent=False,
    check_with="containers_list",
)
