"""``latent mcp``"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Final
from urllib.parse import urlsplit

import httpx

from latent_cli.mcp_bridge import CONNECT_SECONDS, SILENCE_SECONDS, Bridge
from latent_cli.options import command_app
from latent_cli.session import token_of
from latent_client.transport import is_loopback
from latent_core.domain.errors import Invalid
from latent_core.settings import Settings, load_settings

app = command_app()

MAX_LINE_BYTES: Final = 4 * 1024 * 1024


@app.command()
def mcp() -> None:
    """Serve MCP on stdin and stdout for agents that start a command.

    It forwards to the running gateway at LLC_URL, with the token in LLC_MCP_TOKEN or in the data directory.
    """
    asyncio.run(_bridge(load_settings()))


async def _bridge(settings: Settings) -> None:
    timeout = httpx.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
    near = is_loopback(urlsplit(settings.gateway_url).hostname or "")
    # Ignore proxies of the environment for a loopback address.
    async with httpx.AsyncClient(timeout=timeout, trust_env=not near) as http:
        url = f"{settings.gateway_url}/mcp"
        await Bridge(http, url, lambda: _authorization(settings), _write).run(_lines())


def _authorization(settings: Settings) -> Mapping[str, str]:
    token = token_of(settings)
    return {"Authorization": f"Bearer {token}"} if token else {}


async def _lines() -> AsyncIterator[bytes]:
    if stat.S_ISREG(
        os.fstat(sys.stdin.fileno()).st_mode
    ):  # `latent mcp < file`: a file is not a pipe
        for line in sys.stdin.buffer:
            yield line
        return
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while True:
        try:
            line = await reader.readline()
        except ValueError as exc:
            raise Invalid(
                f"a message is larger than {MAX_LINE_BYTES} bytes; send a smaller one"
            ) from exc
        if not line:
            return
        if line.strip():
            yield line


def _write(message: bytes) -> None:
    sys.stdout.buffer.write(message + b"\n")
    sys.stdout.buffer.flush()
