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
        int | None, Field(ge=1, le=65_536, description="Required for a remote embedder.")
    ] = None


class RefreshArguments(Arguments):
    container_id: ContainerId
    strategy: Annotated[
        Strategy,
        Field(
            description="parallel (default): build a new space next to the live one; inplace: rebuild the live space; drift: an adapter; "
            "reparse: from the originals."
        ),
    ] = Strategy.PARALLEL
    to: Annotated[
        TargetArguments | None,
        Field(description="The new embedder; default: the current one. Required for drift."),
    ] = None
    way: Annotated[Way | None, Field(description="For drift: what the adapter maps.")] = None
    dry_run: Annotated[
        bool, Field(description="Return the cost and change nothing; default false.")
    ] = False
    force: Annotated[bool, Field(description="Switch even if a gate fails; default false.")] = False
    keep_days: Annotated[
        float | None,
        Field(ge=0, le=3650, description="How long a rollback is possible, up to 3650."),
    ] = None


class ToolRefresh(ToolResult):
    container_id: str
    status: str
    job_id: str | None = None
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
            advice="Nothing was changed. Run it without dry_run to start.",
        )
    return ToolRefresh(
        container_id=arguments.container_id,
        status=answer.status,
        job_id=str(answer.job_id),
        advice="Searches continue in the meantime. jobs_get with wait_seconds shows its state, and why it was not switched.",
    )


REFRESH: Final = Tool(
    name="admin.refresh",
    title="Refresh a container's vectors",
    description=(
        "Change a container's embedder, or create its vectors or chunks again, by a job. Run it with dry_run first. "
        "Searches switch to the new space only when it is complete and not worse. For owners."
    ),
    scope=Scope.ADMIN,
    arguments=RefreshArguments,
    answer=ToolRefresh,
    run=refresh,
    check_with="containers_describe",
)
