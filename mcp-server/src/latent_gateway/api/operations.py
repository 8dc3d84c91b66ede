"""Operations of the whole installation: its state, the settings in force, providers of models, and tests of models."""

from __future__ import annotations

import asyncio
import shutil
from typing import Final

from fastapi import APIRouter, Response

from latent_core.db import audit, schedules
from latent_core.domain.errors import Conflict, TimedOut
from latent_core.models.embedding.measure import measure_embedder
from latent_core.models.llm.measure import measure_language_model
from latent_core.models.providers.entry import Kind
from latent_core.models.providers.facts import state_of
from latent_core.models.providers.registry import HAS_LANGUAGE_MODELS, Provider
from latent_core.queue import waiting
from latent_core.runtime.secret_files import is_secret
from latent_core.runtime.setting_sources import shown_value, variables_of
from latent_core.settings import Settings, given_variables, unknown_variables
from latent_core.wire.operations import (
    BackupState,
    DiskView,
    GatewayProcesses,
    ModelTestAnswer,
    ModelTestBody,
    ProviderList,
    ProviderView,
    SettingList,
    SettingView,
    StatusAnswer,
)
from latent_gateway.auth import access
from latent_gateway.auth.principal import Principal
from latent_gateway.context import Caller, Gateway, RequestId, Shared
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["admin"])

MODEL_TEST_SECONDS: Final = 600.0
"""A large model of this machine takes minutes to load."""


@router.get("/v1/admin/status", response_model=StatusAnswer)
async def status(shared: Shared, caller: Caller, request_id: RequestId) -> Response:
    """The services, the queue with the causes of waiting jobs, workers, the disk and scheduled backups."""
    access.require_operator(caller)
    return json_answer(await status_of(shared), request_id)


async def status_of(shared: Gateway) -> StatusAnswer:
    """The answer of ``status``."""
    stack = shared.stack
    services = await stack.readiness.states()
    answer = StatusAnswer(
        services=dict(services),
        queue=None,
        workers=[],
        connected_workers=0,
        gateway_processes=GatewayProcesses(
            configured=shared.settings.gateway_processes, serving=shared.serving_processes
        ),
        disk=await _disk(shared),
        backups=None,
    )
    if services["postgres"] == "down":
        return answer
    async with stack.db.reading() as conn:
        answer.queue = await waiting.queue_state(conn)
        answer.workers = await waiting.workers(conn)
        answer.connected_workers = await waiting.connected_workers(conn)
        found = await schedules.backups(conn)
    answer.backups = BackupState(
        scheduled=found.scheduled, failed=found.failed, overdue_seconds=found.overdue_seconds
    )
    return answer


async def _disk(shared: Gateway) -> DiskView:
    usage = await asyncio.to_thread(shutil.disk_usage, shared.stack.tmp)
    return DiskView(
        total_bytes=usage.total,
        free_bytes=usage.free,
        min_free_bytes=shared.settings.min_free_bytes,
    )


@router.get("/v1/admin/settings", response_model=SettingList)
async def settings(shared: Shared, caller: Caller, request_id: RequestId) -> Response:
    """The settings of this gateway as they are in force, each with the place that it comes from."""
    access.require_operator(caller)
    return json_answer(setting_list(shared.settings), request_id)


def setting_list(given: Settings) -> SettingList:
    """The answer of ``settings``."""
    views: list[SettingView] = []
    for key, field in Settings.model_fields.items():
        origin = given.origin_of(key)
        views.append(
            SettingView(
                name=variables_of(field)[0],
                value=shown_value(getattr(given, key)),
                secret=is_secret(field),
                source=origin.source.value,
                variable=origin.variable,
            )
        )
    return SettingList(settings=views, unknown=unknown_variables(given_variables()))


@router.get("/v1/admin/providers", response_model=ProviderList)
async def providers(shared: Shared, caller: Caller, request_id: RequestId) -> Response:
    """Servers of models: those of the settings, and those of LLC_PROVIDERS. Nothing is sent to them but a request
    without a key."""
    access.require_operator(caller)
    return json_answer(ProviderList(providers=await provider_views(shared)), request_id)


async def provider_views(shared: Gateway) -> list[ProviderView]:
    """All providers with what prevents their use."""
    found = list(shared.stack.embedders.providers)
    states = await asyncio.gather(*map(state_of, found))
    return [_provider_view(*pair) for pair in zip(found, states, strict=True)]


def _provider_view(provider: Provider, state: str | None) -> ProviderView:
    return ProviderView(
        name=provider.name,
        kind=provider.kind.value,
        address=None if provider.base_url is None else str(shown_value(provider.base_url)),
        from_file=provider.from_file,
        embeds=provider.kind is not Kind.ANTHROPIC,
        writes=provider.kind in HAS_LANGUAGE_MODELS,
        reads=sorted(provider.reads),
        rate_per_minute=provider.rate,
        window=provider.window,
        price_per_million=provider.price or None,
        input_price=provider.input_price or None,
        output_price=provider.output_price or None,
        state=state,
    )


@router.post("/v1/admin/model-test", response_model=ModelTestAnswer)
async def test_model(
    body: ModelTestBody, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Measure an embedder or a language model from this gateway: dims, window, latency, limits, price. It sends some
    short texts, and to servers with an unknown window texts of up to 8192 words. One test at a time."""
    return json_answer(await tested(shared, caller, body, request_id), request_id)


async def tested(
    shared: Gateway, caller: Principal, body: ModelTestBody, request_id: str
) -> ModelTestAnswer:
    """The answer of ``test_model``."""
    access.require_operator(caller)
    if shared.model_tests.locked():
        raise Conflict("another model is being tested on this gateway: wait until that has ended")
    async with shared.model_tests:
        async with shared.stack.db.transaction() as conn:
            await audit.note(
                conn,
                principal=caller.name,
                action="model.test",
                container_id=None,
                object_=body.model,
                request_id=request_id,
            )
        try:
            async with asyncio.timeout(MODEL_TEST_SECONDS):
                return await _measured(shared, body)
        except TimeoutError as exc:
            raise TimedOut(
                f"the model was not measured within {MODEL_TEST_SECONDS:g} s: check its server, then test it again"
            ) from exc


async def _measured(shared: Gateway, body: ModelTestBody) -> ModelTestAnswer:
    embedders = shared.stack.embedders
    found = embedders.providers.find(body.model)
    writes_only = found is not None and found.provider.kind is Kind.ANTHROPIC
    if body.language_model or writes_only:
        model = embedders.providers.language_model(body.model)
        return ModelTestAnswer(language_model=await measure_language_model(body.model, model))
    return ModelTestAnswer(embedder=await measure_embedder(embedders, body.model))
