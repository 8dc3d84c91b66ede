"""Runs a command's requests against the configured gateway."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import uuid4

from latent_cli.output import RetryNotes
from latent_client.searches import SearchClient
from latent_client.transport import GatewayClient
from latent_core.domain.errors import LatentError, NotFound, Unauthorized
from latent_core.runtime.imports import quick_imports, remember_absent, without_packages
from latent_core.settings import Settings, load_settings

if TYPE_CHECKING:
    from latent_client import AsyncClient

C = TypeVar("C", bound=GatewayClient)
T = TypeVar("T")
API_REMEDY: Final = "/v1/containers/list names those that can"
"""In the message about a container that the token may not read. People at a terminal need names."""
NAMES_SHOWN: Final = 10
UNUSED: Final = ("h2",)
"""Packages that the HTTP client imports if they are installed, for protocols that this one does not speak."""


def ask(work: Callable[[AsyncClient], Awaitable[T]], *, endless: bool = False) -> T:
    """The result of ``work``, called with a client of the configured gateway. The jobs of one command are one group,
    unless it is ``endless``."""
    from latent_client import AsyncClient

    batch = None if endless else uuid4().hex

    def opened(settings: Settings, token: str | None) -> AsyncClient:
        return AsyncClient(
            settings.gateway_url,
            token,
            on_retry=RetryNotes(),
            batch=batch,
            data_dir=settings.data_dir,
        )

    return ask_by(opened, work)


def ask_by(opened: Callable[[Settings, str | None], C], work: Callable[[C], Awaitable[T]]) -> T:
    """The same with the client that ``opened`` returns: one for fewer requests is loaded sooner."""
    remember_absent()
    return asyncio.run(_ask(load_settings(), opened, work))


def search_client(settings: Settings, token: str | None) -> SearchClient:
    return SearchClient(settings.gateway_url, token, on_retry=RetryNotes())


def token_of(settings: Settings) -> str | None:
    """``LLC_MCP_TOKEN``, else the token that ``latent up`` stores in the data directory."""
    if settings.mcp_token is not None:
        return settings.mcp_token.get_secret_value()
    try:
        return (settings.data_dir / "token").read_text("utf-8").strip() or None
    except OSError:
        return None


async def _ask(
    settings: Settings,
    opened: Callable[[Settings, str | None], C],
    work: Callable[[C], Awaitable[T]],
) -> T:
    token = token_of(settings)
    with quick_imports(), without_packages(*UNUSED):
        client = opened(settings, token)
    async with client:
        try:
            return await work(client)
        except NotFound as exc:
            if API_REMEDY not in exc.message:
                raise
            raise await _unknown_container(settings, token, exc) from exc
        except Unauthorized as exc:
            if token is not None:
                raise
            place = f"LLC_MCP_TOKEN is not set and {settings.data_dir / 'token'} cannot be read"
            raise Unauthorized(f"{exc.message} ({place})", **exc.details) from exc


async def _unknown_container(settings: Settings, token: str | None, error: NotFound) -> NotFound:
    """The error with the nearest name, or with the names that there are."""
    from latent_client import AsyncClient

    try:
        async with AsyncClient(settings.gateway_url, token) as client:
            known = [container.id for container in await client.containers()]
    except LatentError:
        return error
    near = difflib.get_close_matches(str(error.details.get("container_id", "")), known, n=1)
    shown = ", ".join(known[:NAMES_SHOWN]) + (", …" if len(known) > NAMES_SHOWN else "")
    remedy = f"there are: {shown}" if known else "there is none yet: latent container create ID"
    if near:
        remedy = f"did you mean '{near[0]}'?"
    return NotFound(error.message.replace(API_REMEDY, remedy), **error.details)
