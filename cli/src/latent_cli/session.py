"""Runs a command's requests against the configured gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from latent_cli.output import RetryNotes
from latent_client import AsyncClient
from latent_core.domain.errors import Unauthorized
from latent_core.runtime.process import remember_absent
from latent_core.settings import Settings, load_settings

T = TypeVar("T")


def ask(work: Callable[[AsyncClient], Awaitable[T]]) -> T:
    """The result of ``work``, called with a client of the configured gateway."""
    remember_absent()
    return asyncio.run(_ask(load_settings(), work))


def token_of(settings: Settings) -> str | None:
    """``LLC_MCP_TOKEN``, else the token that ``latent up`` stores in the data directory."""
    if settings.mcp_token is not None:
        return settings.mcp_token.get_secret_value()
    try:
        return (settings.data_dir / "token").read_text("utf-8").strip() or None
    except OSError:
        return None


async def _ask(settings: Settings, work: Callable[[AsyncClient], Awaitable[T]]) -> T:
    token = token_of(settings)
    async with AsyncClient(
        settings.gateway_url, token, on_retry=RetryNotes(), data_dir=settings.data_dir
    ) as client:
        try:
            return await work(client)
        except Unauthorized as exc:
            if token is not None:
                raise
            place = f"LLC_MCP_TOKEN is not set and {settings.data_dir / 'token'} cannot be read"
            raise Unauthorized(f"{exc.message} ({place})", **exc.details) from exc
