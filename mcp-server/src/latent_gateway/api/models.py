"""Installed models of this gateway's machine, with the containers that use them. ``latent models`` changes them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping

from fastapi import APIRouter, Response

from latent_core.db.spaces import spaces
from latent_core.domain.manifest.model import is_installable
from latent_core.models.store.layout import ModelStore
from latent_core.models.store.record import InstalledModel
from latent_core.wire.models import InstalledModelView, MissingModel, ModelList, ModelUse
from latent_gateway.auth import access
from latent_gateway.context import Caller, RequestId, Shared
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["health"])


@router.get("/v1/models", response_model=ModelList)
async def list_models(shared: Shared, caller: Caller, request_id: RequestId) -> Response:
    """Installed models with their containers, and models that containers lack. Only for the installation's owner."""
    access.require_owner(caller, "list models")
    embedders = shared.stack.embedders
    async with shared.stack.db.transaction() as conn:
        used = await spaces.uses(conn)
    by_version: dict[tuple[str, str], list[ModelUse]] = defaultdict(list)
    for use in used:
        by_version[use.embedder, use.version].append(
            ModelUse(container_id=use.container_id, state=use.state)
        )
    views = await asyncio.to_thread(_views, embedders.store, by_version)
    missing = [
        MissingModel(name=name, version=version, message=message, used_by=uses)
        for (name, version), uses in sorted(by_version.items())
        if is_installable(name) and (message := embedders.lacking(name, version)) is not None
    ]
    return json_answer(ModelList(models=views, missing=missing), request_id)


def _views(
    store: ModelStore, by_version: Mapping[tuple[str, str], list[ModelUse]]
) -> list[InstalledModelView]:
    """Each use belongs to the model that makes its vectors here: of weights that count as one, the very ones."""
    by_model: dict[str, list[ModelUse]] = defaultdict(list)
    for (name, version), uses in by_version.items():
        made_by = store.of_version(version) if is_installable(name) else None
        if made_by is not None and made_by.name == name:
            by_model[made_by.version] += uses
    return [_view(model, by_model[model.version]) for model in store.models()]


def _view(model: InstalledModel, used_by: list[ModelUse]) -> InstalledModelView:
    return InstalledModelView(
        reference=model.reference,
        name=model.name,
        hub_id=model.hub_id,
        revision=model.revision,
        version=model.version,
        kind=model.kind,
        dims=model.dims,
        window=model.window,
        precision=model.precision,
        bytes=model.size,
        added_at=model.added_at,
        used_by=used_by,
    )
