"""The gateway's composition root: routes, errors, telemetry."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain

from fastapi import FastAPI
from starlette.routing import Match

from latent_core.domain.errors import Invalid
from latent_core.domain.token import Api
from latent_core.models.providers.registry import Providers
from latent_core.runtime.data_directory import DataDirectory
from latent_core.runtime.secret_files import forget_secrets, secrets_in
from latent_core.runtime.stop import StopSignal, stop_signals
from latent_core.runtime.tasks import ended
from latent_core.search.limiter import SearchLimiter
from latent_core.settings import Settings, warn_of_unknown_variables
from latent_core.stack import Stack
from latent_core.telemetry.log_file import LogFile
from latent_core.telemetry.metrics import set_up_logs
from latent_core.telemetry.metrics_server import MetricsText, metrics_served
from latent_core.telemetry.tracing import tracing
from latent_gateway import envelope
from latent_gateway.api import (
    admin,
    audit,
    backups,
    blobs,
    chunks,
    containers,
    document_selections,
    documents,
    evaluation,
    extractions,
    generated,
    golden,
    health,
    ingest,
    installation,
    jobs,
    listing,
    models,
    operations,
    originals,
    originals_zip,
    page_boxes,
    page_pdfs,
    pages as page_images,
    processing,
    queries,
    refresh,
    resumable_uploads,
    saved_searches,
    search,
    sign_in_links,
    sources,
    summaries,
    tokens,
    transfers,
    understanding,
    uploads,
)
from latent_gateway.api.ask import routes as ask
from latent_gateway.auth.ask_limiter import AskLimiter
from latent_gateway.auth.call_counts import CallCounts
from latent_gateway.auth.quotas import Quotas
from latent_gateway.auth.shared_memory import SharedMemory
from latent_gateway.auth.sign_in_codes import SignInCodes, local_host
from latent_gateway.auth.tokens import FailedAttempts, TokenRegistry
from latent_gateway.backend_gauges import Gauges
from latent_gateway.console.on_demand import ConsoleOnDemand
from latent_gateway.context import Gateway, StreamLimiter
from latent_gateway.golden_files import adopt_golden
from latent_gateway.http_server import GatewayServer, listen, run_server, server_config
from latent_gateway.manifest_sync import read_folder, sync_manifests
from latent_gateway.mcp import on_demand
from latent_gateway.mcp.guard import CONNECTOR_PATH, PATH, GatewayNames, McpGuard
from latent_gateway.mcp.on_demand import MakeSurface, SurfaceOnDemand, surface_of
from latent_gateway.middleware.auth import AuthMiddleware
from latent_gateway.middleware.call_counts import CallCountMiddleware
from latent_gateway.middleware.requests import (
    CompressionMiddleware,
    RequestMetrics,
    ResponseHeaders,
    TelemetryMiddleware,
)
from latent_gateway.model_warmer import ModelWarmer
from latent_gateway.openapi import GatewayApi, documented_answers
from latent_gateway.processes.group import ProcessGroup
from latent_gateway.processes.handoff import Handoff, numbered
from latent_gateway.processes.metrics import GroupMetrics
from latent_gateway.query_log import PassOn, QueryLog
from latent_gateway.query_parameters import KNOWN_ONLY

logger = logging.getLogger(__name__)

ROUTERS = (
    search,  # routes are tried in this order
    ask,
    saved_searches,
    containers,
    uploads,
    resumable_uploads,
    ingest,
    listing,
    sources,
    document_selections,
    originals_zip,
    documents,
    chunks,
    page_images,
    page_boxes,
    page_pdfs,
    originals,
    jobs,
    evaluation,
    golden,
    queries,
    blobs,
    transfers,
    backups,
    installation,
    models,
    admin,
    operations,
    processing,
    summaries,
    understanding,
    extractions,
    generated,
    refresh,
    tokens,
    sign_in_links,
    audit,
    health,
    on_demand,
)


@dataclass(frozen=True, slots=True)
class StartedGateway:
    """A gateway that answers requests."""

    url: str
    token_place: str
    """Where users find the owner's token."""
    sign_in_link: Callable[[], str] | None = None
    """A new one-time link to the console, if a browser on this machine can reach it."""


Announce = Callable[[StartedGateway], None]
"""Called once the gateway answers requests."""
Companion = Callable[[Settings, Stack], AbstractAsyncContextManager[object]]
"""Something that runs in the same process on the same stack: a worker."""


def create_app(
    settings: Settings,
    stack: Stack,
    *,
    surface: MakeSurface = surface_of,
    memory: SharedMemory | None = None,
    metrics_text: MetricsText | None = None,
    pass_on: PassOn | None = None,
) -> FastAPI:
    """The HTTP application on an open stack, with the MCP server that ``surface`` makes.

    Of one of several processes: with the ``memory`` of all, the metrics of all, and a log of queries that another one
    keeps.
    """
    memory, processes = memory or SharedMemory(), settings.gateway_processes
    memory.serving[memory.number - 1] = True
    # The order is that of the memory's parts, the same in all processes.
    quotas = Quotas(settings, memory=memory)
    tokens = TokenRegistry(stack.token, stack.db, FailedAttempts(memory=memory))
    limiter = SearchLimiter.of_process(settings.search_wait_seconds, processes)
    calls = CallCounts(stack.db)
    shared = Gateway(
        settings,
        stack,
        memory,
        tokens,
        quotas,
        metrics_text or Gauges(stack).text,
        limiter,
        QueryLog(stack.db, pass_on),
        ModelWarmer(stack),
        calls,
        StreamLimiter(memory=memory),
        AskLimiter(memory=memory, processes=processes),
        SignInCodes(memory=memory),
    )
    agents = SurfaceOnDemand(shared, surface)
    app = GatewayApi(
        title="Latent Containers",
        version="1",
        description="Containers of documents that agents can search",
        lifespan=partial(_lifespan, agents, calls),
    )
    app.state.gateway = shared
    for module in ROUTERS:
        app.include_router(module.router, dependencies=[KNOWN_ONLY])
    agents.install(app)
    ConsoleOnDemand(app).install()
    envelope.install(app, stack.capacity.heard)
    requests = RequestMetrics(stack.metrics)
    routes = chain.from_iterable(module.router.routes for module in ROUTERS)
    requests.start_at_zero(documented_answers(routes))
    # The last one is the outermost.
    app.add_middleware(
        CallCountMiddleware,
        count=lambda caller, route, failed: calls.count(caller, Api.HTTP, route, failed=failed),
        skipped=(PATH, CONNECTOR_PATH),
    )
    app.add_middleware(
        AuthMiddleware,
        check=tokens.authenticate,
        count=quotas.take_request,
        known=lambda scope: any(r.matches(scope)[0] is not Match.NONE for r in app.router.routes),
        search_seconds=settings.search_seconds,
    )
    app.add_middleware(McpGuard, names=GatewayNames.of(settings))
    app.add_middleware(CompressionMiddleware)
    app.add_middleware(TelemetryMiddleware, metrics=requests)
    app.add_middleware(ResponseHeaders)  # around all answers, also those of unexpected errors
    return app


@asynccontextmanager
async def _lifespan(
    surface: SurfaceOnDemand, calls: CallCounts, app: FastAPI
) -> AsyncIterator[None]:
    counting = asyncio.create_task(calls.keep_flushed(), name="call counts")
    try:
        async with surface.lifespan(app):
            yield
    finally:
        await ended(counting)
        await calls.flush()


async def serve(
    settings: Settings,
    *,
    announce: Announce,
    companion: Companion | None = None,
    quiet: bool = False,
) -> None:
    """Run until SIGINT or SIGTERM. With a worker as ``companion`` this is ``latent up``, all in one process.

    The process that holds a data directory logs to a file there, too. ``quiet`` then shows only warnings on stderr.
    """
    log_file = LogFile() if settings.addresses_missing else None
    shown = logging.WARNING if quiet and log_file is not None else logging.NOTSET
    own = [*secrets_in(settings), *Providers.of(settings).secrets()]
    set_up_logs(settings.log_format, own=own, shown=shown, file=log_file)
    warn_of_unknown_variables()
    forget_secrets(Settings)
    if companion is None:
        _refuse_to_be_alone(settings)
    listening = listen(settings)
    try:
        with numbered(1, settings.gateway_processes):
            await _run(settings, listening, announce, companion, log_file, shown)
    finally:
        listening.close()
        if log_file is not None:
            log_file.close()


async def _run(
    settings: Settings,
    listening: socket.socket,
    announce: Announce,
    companion: Companion | None,
    log_file: LogFile | None,
    shown: int,
) -> None:
    with stop_signals() as stop:
        async with AsyncExitStack() as running:
            await running.enter_async_context(
                tracing(settings, "latent" if companion else "latent-gateway")
            )
            # Read while the services start: of a thousand files that takes as long as they do.
            reading = asyncio.create_task(asyncio.to_thread(read_folder, settings.manifests))
            running.push_async_callback(ended, reading)
            stack = await running.enter_async_context(
                Stack.open(settings, name="up" if companion else "gateway")
            )
            if log_file is not None:
                log_file.open(DataDirectory(settings.data_dir).log_file)
            gauges = Gauges(stack)
            metrics = GroupMetrics(stack.metrics.registry, gauges.refresh)
            summed = metrics.text if settings.gateway_processes > 1 else None
            running.enter_context(
                metrics_served(settings, stack.metrics, stack.readiness.answer, summed)
            )
            if settings.metrics_port is not None:
                fresh = asyncio.create_task(gauges.keep_fresh(), name="gauges")
                running.push_async_callback(ended, fresh)
            await sync_manifests(stack, await reading)
            await adopt_golden(stack, settings.manifests)
            if companion is not None:
                await running.enter_async_context(companion(settings, stack))
            path = log_file.path if log_file is not None else None
            handoff = Handoff(settings, stack.shared, path, shown)
            await _answer(handoff, stack, metrics, listening, announce, stop)


def _refuse_to_be_alone(settings: Settings) -> None:
    """A gateway in its own process may be one of several, so it needs the addresses of the shared services."""
    if settings.addresses_missing:
        missing = ", ".join(settings.addresses_missing)
        raise Invalid(
            f"a separate gateway needs all three servers. Missing: {missing}. 'latent up' needs none of them"
        )
    if settings.mcp_token is None:
        raise Invalid(
            "a separate gateway needs LLC_MCP_TOKEN, because all gateways on the same servers share the owner's "
            "token. Choose a long random one"
        )


async def _answer(
    handoff: Handoff,
    stack: Stack,
    metrics: GroupMetrics,
    listening: socket.socket,
    announce: Announce,
    stop: StopSignal,
) -> None:
    settings = handoff.settings
    size = settings.gateway_processes
    memory = SharedMemory.create(stack.tmp) if size > 1 else SharedMemory()
    metrics_text = metrics.refreshed if size > 1 else None
    app = create_app(settings, stack, memory=memory, metrics_text=metrics_text)
    shared: Gateway = app.state.gateway
    group = ProcessGroup(handoff, size, shared, metrics)

    server = GatewayServer(server_config(settings, app))

    def started() -> None:
        group.start(server, listening)
        announce(_started(settings, stack, app, listening.getsockname()[1]))

    sockets = [listening] if group.size == 1 else []
    try:
        await run_server(server, shared, sockets, stop, started=started, ending=group.begin_stop)
    finally:
        await group.close()
        await shared.query_log.close()


def _started(settings: Settings, stack: Stack, app: FastAPI, port: int) -> StartedGateway:
    shared: Gateway = app.state.gateway
    local = local_host(settings.bind)
    link = None
    if local is not None:
        link = partial(shared.sign_in_codes.link, f"http://{_in_url(local)}:{port}")
    return StartedGateway(f"http://{_in_url(settings.bind)}:{port}", stack.token_place, link)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
