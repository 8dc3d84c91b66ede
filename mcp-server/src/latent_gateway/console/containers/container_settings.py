"""The settings of a container: its manifest as a form and as YAML, the plan of a change, its state, its sizes."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

from fastapi import Query, Request, Response

from latent_core.db import container_sizes
from latent_core.domain.errors import PreconditionFailed
from latent_core.domain.manifest.changes import ChangeEffect
from latent_core.models.store.layout import ModelStore
from latent_core.search.readable import Readable
from latent_core.wire.refresh import RefreshAnswer, RefreshBody
from latent_gateway.api.containers import changed
from latent_gateway.api.refresh import refreshed
from latent_gateway.auth import access
from latent_gateway.console.containers.manifest_draft import (
    AS_FORM,
    AS_YAML,
    ManifestDraft,
    SentManifest,
    opened,
    received,
    without_embedder,
)
from latent_gateway.console.containers.manifest_form import GROUPS
from latent_gateway.console.containers.sizes_chart import sizes_chart
from latent_gateway.console.frame.console_session import ConsoleSession, SignedIn
from latent_gateway.console.frame.rights import rights_of
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import done, page, wants_part
from latent_gateway.context import Gateway, RequestId, Shared

router = pages()

DAYS_SHOWN: Final = 90
BUILT_IN: Final = ("local", "local-int8", "local-multilingual")


@router.get("/console/containers/{container_id}/settings")
async def settings_page(
    container_id: str,
    shared: Shared,
    session: SignedIn,
    mode: Annotated[str, Query(alias="as", max_length=8)] = AS_FORM,
) -> Response:
    """Owners edit here; readers see what is in force."""
    async with shared.stack.db.reading() as conn:
        container = await access.readable_one(conn, session.principal, container_id)
    draft = opened(container, AS_YAML if mode == AS_YAML else AS_FORM)
    return await shown(shared, session, container, draft)


async def shown(
    shared: Gateway,
    session: ConsoleSession,
    container: Readable,
    draft: ManifestDraft,
    status: int = 200,
) -> Response:
    """The page with this draft."""
    async with shared.stack.db.reading() as conn:
        sizes = await container_sizes.history(conn, container.id, DAYS_SHOWN)
    space = container.space
    return page(
        "containers/settings.html",
        session,
        status=status,
        container=container,
        rights=rights_of(session.principal, container),
        tab="settings",
        draft=draft,
        groups=GROUPS,
        embedders=await asyncio.to_thread(known_embedders, shared),
        sizes=sizes,
        last=sizes[-1] if sizes else None,
        chart=sizes_chart(sizes),
        missing=shared.stack.embedders.lacking(space.embedder, space.version),
        effects=ChangeEffect,
    )


@router.post("/console/containers/{container_id}/settings")
async def save(
    container_id: str,
    request: Request,
    shared: Shared,
    session: SignedIn,
    request_id: RequestId,
) -> Response:
    """Show the plan of what was typed; save it if the person saw that very plan."""
    async with shared.stack.db.reading() as conn:
        container = await access.owned(conn, session.principal, container_id)
    sent = await received(request, shared, session, container)
    if wants_part(request):
        return page(
            "containers/plan.html",
            session,
            container=container,
            draft=sent.draft,
            effects=ChangeEffect,
        )
    form = await request.form()
    seen = form.get("planned") == sent.draft.planned
    if sent.manifest is None or form.get("do") != "save" or not seen:
        status = 422 if sent.manifest is None else 409 if sent.draft.meanwhile else 200
        return await shown(shared, session, container, sent.draft, status)
    try:
        notice = await _saved(
            shared, session, container, sent, request_id, follows=form.get("follow") == "1"
        )
    except PreconditionFailed:  # within the last milliseconds: the form is merged and shown again
        async with shared.stack.db.reading() as conn:
            container = await access.owned(conn, session.principal, container_id)
        again = await received(request, shared, session, container)
        return await shown(shared, session, container, again.draft, 409)
    mode = f"?as={AS_YAML}" if sent.draft.mode == AS_YAML else ""
    return done(f"/console/containers/{container_id}/settings{mode}", notice)


async def _saved(
    shared: Gateway,
    session: ConsoleSession,
    container: Readable,
    sent: SentManifest,
    request_id: str,
    *,
    follows: bool,
) -> str:
    """Store the manifest and start the refresh that the plan names; returns the notice."""
    plan, manifest = sent.draft.plan, sent.manifest
    if plan is None or manifest is None:
        raise RuntimeError("only a planned manifest is saved")
    reembeds = plan.effect is ChangeEffect.REEMBED
    await changed(
        shared,
        session.principal,
        container.id,
        without_embedder(manifest, container) if reembeds else manifest,
        container.etag,
        request_id,
    )
    if plan.refresh is None or not (follows or reembeds):
        return "The manifest was saved."
    body = RefreshBody(container_id=container.id, **plan.refresh.model_dump(exclude_none=True))
    begun = await refreshed(shared, session.principal, body, request_id)
    job = f" Job {begun.job_id} is running." if isinstance(begun, RefreshAnswer) else ""
    return f"The manifest was saved, and the {plan.refresh.strategy.value} refresh has begun.{job}"


def known_embedders(shared: Gateway) -> list[str]:
    """Embedders of this machine, for suggestions."""
    embedders = shared.stack.embedders
    store: ModelStore = embedders.store
    installed = [model.name for model in store.models() if model.kind == "embedder"]
    return [name for name in (*BUILT_IN, *dict.fromkeys(installed)) if not embedders.lacking(name)]
