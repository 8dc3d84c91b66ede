"""`latent mcp` as a process: how newest clients begin, what it costs, and when it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import orjson
import psutil
import pytest
import pytest_asyncio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import LATEST_PROTOCOL_VERSION

from tests.support.harness.installation import LATENT, Installation, eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

BRIDGES: Final = 20
MAX_RSS_BYTES: Final = 40_000_000
META: Final = "io.modelcontextprotocol"
SPAWN: Final = """
import subprocess, sys, time
child = subprocess.Popen(sys.argv[1:])
print(child.pid, flush=True)
time.sleep(600)
"""
"""A parent that starts a bridge on its own input and waits."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stocked(install_root: Path) -> AsyncIterator[Installation]:
    one = Installation(install_root / "mcp-bridge")
    await one.start()
    try:
        yield one
    finally:
        await one.stop()


async def bridge(one: Installation) -> Process:
    return await asyncio.create_subprocess_exec(
        *(str(LATENT), "mcp"), stdin=PIPE, stdout=PIPE, env=one.environment(), cwd=one.folder
    )


async def answer_to(process: Process, **message: Any) -> dict[str, Any]:
    """The answer to one message."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(orjson.dumps({"jsonrpc": "2.0", "id": 1, **message}) + b"\n")
    async with asyncio.timeout(60):
        answer: dict[str, Any] = orjson.loads(await process.stdout.readline())
    return answer


async def closed(*processes: Process) -> list[int]:
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    async with asyncio.timeout(60):
        return [await process.wait() for process in processes]


async def test_discovery_before_anything_else_is_answered(stocked: Installation) -> None:
    version = "2026-07-28"
    meta = {
        f"{META}/protocolVersion": version,
        f"{META}/clientInfo": {"name": "newest", "version": "1"},
        f"{META}/clientCapabilities": {},
    }
    process = await bridge(stocked)
    answer = await answer_to(process, method="server/discover", params={"_meta": meta})
    assert version in answer["result"]["supportedVersions"]
    listed = await answer_to(process, method="tools/list", params={"_meta": meta})
    assert listed["result"]["tools"]
    assert await closed(process) == [0]


async def test_discovery_without_a_version_is_refused_so_that_a_client_falls_back(
    stocked: Installation,
) -> None:
    process = await bridge(stocked)
    refused = await answer_to(process, method="server/discover", params={})
    assert refused["id"] == 1
    assert refused["error"]["code"] in (-32601, -32602)
    client = {"name": "old", "version": "1"}
    given = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    begun = await answer_to(process, method="initialize", params=given)
    assert begun["result"]["protocolVersion"] == "2025-11-25"
    assert await closed(process) == [0]


async def test_a_client_that_probes_the_era_finds_the_newest(stocked: Installation) -> None:
    server = StdioServerParameters(
        command=str(LATENT), args=["mcp"], env=stocked.environment(), cwd=stocked.folder
    )
    async with Client(server, mode="auto", read_timeout_seconds=60) as client:
        assert client.protocol_version == LATEST_PROTOCOL_VERSION
        assert (await client.list_tools()).tools


async def test_twenty_bridges_at_once_are_small_and_all_answer(stocked: Installation) -> None:
    processes = [await bridge(stocked) for _ in range(BRIDGES)]
    call = {"name": "containers_list", "arguments": {}}
    answers = await asyncio.gather(
        *(answer_to(process, method="tools/call", params=call) for process in processes)
    )
    assert all(answer["result"]["structuredContent"]["containers"] == [] for answer in answers)
    sizes = [psutil.Process(process.pid).memory_info().rss for process in processes]
    assert max(sizes) < MAX_RSS_BYTES, sizes
    assert await closed(*processes) == [0] * BRIDGES


async def test_a_bridge_ends_with_its_parent_although_its_input_stays_open(
    stocked: Installation,
) -> None:
    reading, writing = os.pipe()
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SPAWN, str(LATENT), "mcp"),
        stdin=reading,
        stdout=PIPE,
        stderr=DEVNULL,
        env=stocked.environment(),
        cwd=stocked.folder,
    )
    try:
        assert parent.stdout is not None
        child = psutil.Process(int(await parent.stdout.readline()))
        os.write(writing, b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        async with asyncio.timeout(60):
            assert "result" in orjson.loads(await parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
        await parent.wait()

        async def ended() -> bool:
            return not child.is_running() or child.status() == psutil.STATUS_ZOMBIE

        await eventually(ended)
    finally:
        os.close(reading)
        os.close(writing)


async def test_a_module_of_the_working_folder_is_not_imported(
    stocked: Installation, tmp_path: Path
) -> None:
    (tmp_path / "orjson.py").write_text("raise SystemExit(7)")
    process = await asyncio.create_subprocess_exec(
        *(str(LATENT), "mcp"), stdin=PIPE, stdout=PIPE, env=stocked.environment(), cwd=tmp_path
    )
    assert "result" in await answer_to(process, method="ping")
    assert await closed(process) == [0]
