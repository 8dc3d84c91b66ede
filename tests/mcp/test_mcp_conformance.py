"""The official MCP conformance suite and Inspector against our own HTTP stack, for both protocol eras.

Both run on Node 22 or newer and come from npm by name and version; without either the tests are skipped and say why.
The suite wants tools of its own making: those of ``mcp_fixtures`` stand in the place of ours.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from latent_core.settings import Settings
from latent_core.stack import Stack
from latent_gateway.app import create_app
from latent_gateway.mcp.server import Surface
from tests.support.harness.mcp_fixtures import Fixtures
from tests.support.harness.node_packages import program

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    # What the older era has and the newer one dropped is still asked for by the suite.
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

SUITE: Final = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
INSPECTOR: Final = "@modelcontextprotocol/inspector@2.12.0"
MIN_NODE: Final = 22
SECONDS: Final = 600.0
ERAS: Final = ("2026-07-28", "2025-11-25")
# Requests of the server to its client need a stream that stays open between two requests; we keep none, so that any
# gateway can answer the next request. In the era of 2026 the same is done by answering that input is required.
NO_BACK_CHANNEL: Final = (
    "tools-call-sampling",
    "tools-call-elicitation",
    "elicitation-sep1034-defaults",
    "elicitation-sep1330-enums",
    "server-sse-multiple-streams",  # a warning: no session id is given
)


class OwnerTokenProxy:
    """Gives every request the owner's token: the suite has no way to."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._header = (b"authorization", f"Bearer {token}".encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "headers": [*scope["headers"], self._header]}
        await self._app(scope, receive, send)


async def served(data: Path, surface: type[Surface]) -> AsyncIterator[str]:
    """The address of a gateway with this surface at /mcp, behind everything it stands behind in production."""
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    settings = Settings(_env_file=None, data_dir=data, port=port)
    async with Stack.open(settings) as stack:
        app = OwnerTokenProxy(create_app(settings, stack, surface=surface), stack.token)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            server.should_exit = True
            await task


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fixtures(install_root: Path) -> AsyncIterator[str]:
    async for address in served(install_root / "conformance", Fixtures):
        yield address


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ours(install_root: Path) -> AsyncIterator[str]:
    async for address in served(install_root / "inspected", Surface):
        yield address


async def run(command: list[str], folder: Path) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=folder,
    )
    async with asyncio.timeout(SECONDS):
        out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode("utf-8", "replace")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("era", ERAS)
async def test_the_suite_finds_no_fault_behind_our_http_stack(
    era: str, fixtures: str, tmp_path: Path
) -> None:
    suite = await asyncio.to_thread(program, SUITE, MIN_NODE)
    expected = tmp_path / "expected.yml"
    missing = NO_BACK_CHANNEL if era == "2025-11-25" else ()
    expected.write_text("server:\n" + "".join(f"  - {name}\n" for name in missing), "utf-8")
    given = ["--expected-failures", str(expected)] if missing else []
    code, output = await run(
        [*suite, "server", "--url", fixtures, "--requirements", era, *given], tmp_path
    )
    print(output[-6000:])
    assert code == 0, output[-6000:]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("era", ["modern", "legacy", "auto"])
async def test_the_inspector_finds_no_fault_in_our_own_tools(
    era: str, ours: str, tmp_path: Path
) -> None:
    inspector = await asyncio.to_thread(program, INSPECTOR, MIN_NODE)
    options = ["--transport", "http", "--protocol-era", era]
    for address, tool in ((ours, "containers_search"), (f"{ours}/connector", "search")):
        given = ["--cli", address, *options, "--strict", "--method", "tools/list"]
        code, output = await run([*inspector, *given], tmp_path)
        assert code == 0, output[-4000:]
        listed: Any = json.loads(output[output.index("{") :])
        assert tool in {offered["name"] for offered in listed["tools"]}
    failing = ["--tool-name", "containers_describe", "--tool-args-json", '{"container_id": "none"}']
    given = ["--cli", ours, *options, "--method", "tools/call", *failing]
    _, output = await run([*inspector, *given], tmp_path)
    answer: Any = json.JSONDecoder().raw_decode(output[output.index("{") :])[0]
    assert answer["isError"], output
    assert answer["content"][0]["text"].startswith("NOT_FOUND: container 'none'"), output
    assert "schema" not in output.lower(), output
