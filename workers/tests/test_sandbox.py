from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from latent_core.domain.errors import IngestFailed, Unavailable
from latent_workers.sandbox.budget import MIB, Budget
from latent_workers.sandbox.pool import Sandbox

HERE = Path(__file__).parent
SOURCE = (HERE / "sandbox_tasks.py").read_text(encoding="utf-8")
TASKS = {name: f"sandbox_tasks:{name}" for name in re.findall(r"^def (\w+)", SOURCE, re.M)}
SMALL = Budget(cpu_seconds=20, wall_seconds=20, memory_bytes=256 * MIB, output_bytes=MIB)
linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux confines this")


def make(**options: Any) -> Sandbox:
    return Sandbox(tasks=TASKS, import_paths=[HERE], **options)


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with make() as sandbox:
        yield sandbox


async def ask(
    sandbox: Sandbox, task: str, *, files: Any = (), budget: Budget = SMALL, **arguments: Any
) -> Any:
    item = await sandbox.run(task, arguments, files=files, budget=budget, label="the odd parser")
    return orjson.loads(item.value)


async def failure(
    sandbox: Sandbox, task: str, *, budget: Budget = SMALL, **arguments: Any
) -> IngestFailed:
    with pytest.raises(IngestFailed) as caught:
        await ask(sandbox, task, budget=budget, **arguments)
    return caught.value


async def pid_of_child(sandbox: Sandbox) -> int:
    pid = (await ask(sandbox, "echo"))["pid"]
    assert isinstance(pid, int)
    return pid


async def gone(pid: int) -> None:
    await asyncio.to_thread(wait_for_end, pid)


def wait_for_end(pid: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(timeout=20)


async def test_a_task_reads_its_files_and_answers_with_data_and_bytes(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(b"first ")
    (tmp_path / "b").write_bytes(b"second")
    with (tmp_path / "b").open("rb") as already_open:
        item = await sandbox.run(
            "echo", {"x": [1, "ü"]}, files=[tmp_path / "a", already_open.fileno()], budget=SMALL
        )
        assert not already_open.closed
    assert orjson.loads(item.value)["x"] == [1, "ü"]
    assert item.attachment == b"first second"


async def test_a_child_is_reused_and_ends_when_idle() -> None:
    async with make(idle_seconds=0.2) as sandbox:
        first = await pid_of_child(sandbox)
        assert await pid_of_child(sandbox) == first
        await gone(first)
        assert await pid_of_child(sandbox) != first


async def test_a_child_is_replaced_after_its_share_of_tasks() -> None:
    async with make(tasks_per_child=2) as sandbox:
        pids = [await pid_of_child(sandbox) for _ in range(4)]
        assert pids[0] == pids[1] != pids[2] == pids[3]
        await gone(pids[0])


async def test_a_child_that_was_killed_while_idle_is_replaced_without_a_failure(
    sandbox: Sandbox,
) -> None:
    first = await pid_of_child(sandbox)
    psutil.Process(first).kill()
    await gone(first)
    assert await pid_of_child(sandbox) != first


async def test_items_come_one_by_one_while_the_task_runs(sandbox: Sandbox) -> None:
    seen = []
    async with sandbox.stream("count", {"to": 300, "bytes": 10_000}) as items:
        async for item in items:
            seen.append(orjson.loads(item.value))
            assert len(item.attachment) == 10_000
    assert seen == list(range(300))


async def test_leaving_a_stream_early_ends_its_child(sandbox: Sandbox) -> None:
    async with sandbox.stream("wait_for_close", {}) as items:
        pid = orjson.loads((await anext(items)).value)
    await gone(pid)
    assert await pid_of_child(sandbox) != pid


async def test_a_refusal_keeps_its_words_and_its_child(sandbox: Sandbox) -> None:
    first = await pid_of_child(sandbox)
    refusal = await failure(sandbox, "refuse")
    assert refusal.message == "this file is not for me"
    assert refusal.details == {"kind": "odd"}
    assert await pid_of_child(sandbox) == first


@pytest.mark.parametrize(
    ("task", "reason", "words"),
    [
        ("raise_error", "error", "the odd parser failed: ValueError: a bug of the parser"),
        ("segfault", "crash", "the odd parser crashed (signal 11)"),
        ("leave", "crash", "the odd parser ended without an answer (exit status 3)"),
    ],
)
async def test_a_failing_task_is_named_and_its_child_replaced(
    sandbox: Sandbox, task: str, reason: str, words: str
) -> None:
    first = await pid_of_child(sandbox)
    failed = await failure(sandbox, task)
    assert failed.message == words
    assert failed.details["reason"] == reason
    assert await pid_of_child(sandbox) != first


async def test_an_endless_loop_ends_at_its_cpu_budget_even_in_a_used_child(
    sandbox: Sandbox,
) -> None:
    await pid_of_child(sandbox)
    budget = Budget(cpu_seconds=1, wall_seconds=60)
    failed = await failure(sandbox, "spin", budget=budget)
    assert failed.message == "the odd parser used more than 1 s of CPU"


async def test_a_task_that_sleeps_ends_at_its_wall_time(sandbox: Sandbox) -> None:
    failed = await failure(sandbox, "sleep", budget=Budget(wall_seconds=0.2))
    assert failed.message == "the odd parser took longer than 0.2 s"


@linux_only
@pytest.mark.parametrize("task", ["hoard", "hoard_in_c"])
async def test_a_hoarder_of_memory_is_stopped(sandbox: Sandbox, task: str) -> None:
    failed = await failure(sandbox, task)
    assert failed.message == "the odd parser needed more than 256 MB of memory"


async def test_output_over_the_budget_is_refused(sandbox: Sandbox) -> None:
    async def consume() -> None:
        async with sandbox.stream("count", {"to": 300, "bytes": 10_000}, budget=SMALL) as items:
            async for _ in items:
                pass

    with pytest.raises(IngestFailed, match="more than 1 MB of output"):
        await consume()


async def test_nothing_can_be_written_to_files(sandbox: Sandbox, tmp_path: Path) -> None:
    target = tmp_path / "written"
    failed = await failure(sandbox, "write_file", path=str(target))
    assert "File too large" in failed.message
    assert not target.exists() or target.read_bytes() == b""


async def test_the_input_is_read_only(sandbox: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"original")
    with pytest.raises(IngestFailed, match="Bad file descriptor"):
        await ask(sandbox, "write_input", files=[source])
    assert source.read_bytes() == b"original"


@linux_only
@pytest.mark.parametrize("task", ["fork", "execute"])
async def test_no_process_can_be_started(sandbox: Sandbox, task: str) -> None:
    failed = await failure(sandbox, task)
    assert "PermissionError" in failed.message


@linux_only
@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6", "AF_UNIX"])
async def test_no_socket_can_be_opened(sandbox: Sandbox, family: str) -> None:
    failed = await failure(sandbox, "connect", family=family, address=["127.0.0.1", 9])
    assert "PermissionError" in failed.message


async def test_no_secret_reaches_the_child(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLC_MCP_TOKEN", "secret")
    seen = await ask(sandbox, "environment")
    assert set(seen["names"]) <= {
        *("LANG", "LC_CTYPE", "MALLOC_ARENA_MAX", "OMP_NUM_THREADS"),
        *("ORT_DISABLE_TELEMETRY", "PYDANTIC_DISABLE_PLUGINS"),
        *("PYMUPDF_MESSAGE", "PYMUPDF_LOG", "__CF_USER_TEXT_ENCODING"),
    }
    assert seen["cwd"] == "/"
    assert len(seen["open"]) <= 6, "standard streams, socket, lifeline, and the listing itself"


async def test_what_a_child_prints_reaches_nobody(
    sandbox: Sandbox, capfd: pytest.CaptureFixture[str]
) -> None:
    assert await ask(sandbox, "print_much") == "done"
    assert capfd.readouterr() == ("", "")


async def test_other_tasks_go_on_beside_a_crash() -> None:
    async with make(children=3) as sandbox:
        fates = await asyncio.gather(
            *[ask(sandbox, "echo", number=number) for number in range(5)],
            *[ask(sandbox, "segfault") for _ in range(3)],
            ask(sandbox, "sleep", budget=Budget(wall_seconds=0.3)),
            *[ask(sandbox, "echo", number=number) for number in range(5, 10)],
            return_exceptions=True,
        )
    good = [fate["number"] for fate in fates if isinstance(fate, dict)]
    assert good == list(range(10))
    assert sum(isinstance(fate, IngestFailed) for fate in fates) == 4


async def test_no_more_children_run_than_allowed() -> None:
    async with make(children=2) as sandbox:
        answers = await asyncio.gather(*[ask(sandbox, "echo") for _ in range(12)])
    assert len({answer["pid"] for answer in answers}) <= 2


async def test_cancelling_a_task_ends_its_child() -> None:
    async with make() as sandbox:
        started: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def consume() -> None:
            async with sandbox.stream("wait_for_close", {}) as items:
                async for item in items:
                    started.set_result(orjson.loads(item.value))

        task = asyncio.create_task(consume())
        pid = await started
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await gone(pid)
        assert await pid_of_child(sandbox) != pid


async def test_closing_ends_every_child_and_refuses_new_tasks() -> None:
    sandbox = make()
    pid = await pid_of_child(sandbox)
    await sandbox.close()
    assert not psutil.pid_exists(pid)
    with pytest.raises(Unavailable, match="closed"):
        await pid_of_child(sandbox)


async def test_a_child_follows_its_parent_into_death(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import asyncio, os, orjson, signal\n"
        "from pathlib import Path\n"
        "from latent_workers.sandbox.pool import Sandbox\n"
        "async def main():\n"
        f"    tasks = {{'wait_for_close': 'sandbox_tasks:wait_for_close'}}\n"
        f"    sandbox = Sandbox(tasks=tasks, import_paths=[Path({str(HERE)!r})])\n"
        "    async with sandbox.stream('wait_for_close', {}) as items:\n"
        "        print((await anext(items)).value.decode(), flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n",
        encoding="utf-8",
    )
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, str(script)], capture_output=True, timeout=60, check=False
    )
    pid = int(done.stdout)
    await gone(pid)
    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize("bad", ["missing", "folder", "pipe"])
async def test_an_input_that_is_no_readable_file_is_named(
    sandbox: Sandbox, tmp_path: Path, bad: str
) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(IngestFailed, match=f"'{bad}'"):
        await ask(sandbox, "echo", files=[tmp_path / bad])


async def test_the_layers_that_hold_are_said_openly(sandbox: Sandbox) -> None:
    layers = await sandbox.layers()
    assert layers["cpu_limit"] is True
    assert {"network_namespace", "network_filter", "memory_limit", "no_new_processes"} <= set(
        layers
    )
    if sys.platform.startswith("linux"):
        assert layers["memory_limit"] is True
        assert layers["network_namespace"] or layers["network_filter"]
    else:
        assert all(isinstance(layers[name], str) for name in ("memory_limit", "network_filter"))


@linux_only
def test_each_network_layer_holds_alone() -> None:
    alone = (
        "import socket\n"
        "from latent_workers.sandbox import confine, seccomp\n"
        "held = {layer}\n"
        "try:\n"
        "    socket.create_connection(('127.0.0.1', 9), timeout=5)\n"
        "except OSError as error:\n"
        "    print(held, error.errno)\n"
    )
    outcomes = {
        layer: subprocess.run(
            [sys.executable, "-c", alone.replace("{layer}", layer)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for layer in ("confine.leave_network()", "seccomp.install()")
    }
    # 101: the empty network is unreachable; 1: the filter refuses. A machine may not allow the first.
    assert outcomes["confine.leave_network()"] in (["True", "101"], ["False", "111"])
    assert outcomes["seccomp.install()"] in (["True", "1"], ["False", "111"])
