"""``admin_refresh``."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, ValidationError

from latent_core.domain.errors import Invalid
from latent_core.wire.refresh import PlanAnswer, RefreshBody, RefreshPlan, Strategy, Way
from latent_gateway.api.refresh import refreshed
from latent_gateway.mcp.calls import Scope, ToolCall
from latent_gateway.mcp.results import ToolResult, problems
from latent_gateway.mcp.tools.containers import ContainerId
from latent_gateway.mcp.tools.port import Arguments, Tool

MAX_NAME: Final = 512


class TargetArguments(Arguments):
    embedder: Annotated[str, Field(max_length=MAX_NAME, description="As in a manifest.")]
    version: Annotated[str | None, Field(max_length=128)] = None
    dims: Annotated[
        int | None, Field(ge=1, le=65_536, description="A remote embedder's must be given.")
    ] = None


class RefreshArguments(Arguments):
    container_id: ContainerId
    strategy: Annotated[
        Strategy,
        Field(
            description="parallel: a new space beside the live one; inplace: the same space again; drift: an adapter; "
            "reparse: from the originals."
        ),
    ]
    to: Annotated[
        TargetArguments | None,
        Field(description="The embedder to change to; default: the one it has. Drift needs it."),
    ] = None
    way: Annotated[Way | None, Field(description="Of drift: what the adapter maps.")] = None
    dry_run: Annotated[bool, Field(description="Tell what it would cost, change nothing.")] = False
    force: Annotated[bool, Field(description="Switch though a gate fails.")] = False
    keep_days: Annotated[
        float | None, Field(ge=0, le=3650, description="How long there is a way back.")
    ] = None


class ToolRefresh(ToolResult):
    container_id: str
    status: str
    job_id: int | None = None
    plan: RefreshPlan | None = None
    advice: str


async def refresh(call: ToolCall, arguments: RefreshArguments) -> ToolRefresh:
    try:
        body = RefreshBody.model_validate(
            arguments.model_dump(mode="json", exclude_unset=True, exclude_none=True)
        )
    except ValidationError as exc:
        raise Invalid(problems(exc)) from exc
    answer = await refreshed(call.shared, call.caller, body, call.request_id)
    if isinstance(answer, PlanAnswer):
        return ToolRefresh(
            container_id=arguments.container_id,
            status=answer.status,
            plan=answer.plan,
            advice="Nothing was changed. Without dry_run it begins.",
        )
    return ToolRefresh(
        container_id=arguments.container_id,
        status=answer.status,
        job_id=answer.job_id,
        advice="Search goes on meanwhile. jobs_get with wait_seconds tells how it stands, and why it was not taken.",
    )


REFRESH: Final = Tool(
    name="admin.refresh",
    title="Refresh a container's vectors",
    description=(
        "Change a container's embedder, or make its vectors or chunks anew, by a job; ask with dry_run first. "
        "What is searched is switched only when the new space is complete and no worse. For owners."
    ),
    scope=Scope.ADMIN,
    arguments=RefreshArguments,
    answer=ToolRefresh,
    run=refresh,
)
