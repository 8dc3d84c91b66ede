from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from latent_core.domain.errors import IngestFailed, Unavailable
from latent_workers.sandbox import landlock
from latent_workers.sandbox.budget import MIB, Budget, Profile
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


def content(path: str) -> str:
    return Path(path).read_text("ascii")


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
        ("leave", "crash", "the odd parser exited without an answer (exit status 3)"),
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
    assert re.search("File too large|Permission denied", failed.message)
    assert not target.exists() or target.read_bytes() == b""


@pytest.fixture
async def blind(sandbox: Sandbox) -> Sandbox:
    """A sandbox on a machine whose kernel can deny the reading of files."""
    held = (await sandbox.layers())["file_reads"]
    if held is not True:
        pytest.skip(f"files stay readable here: {held}")
    return sandbox


async def test_no_file_can_be_read_but_the_one_that_is_given(
    blind: Sandbox, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"nobody may read this")
    own = f"/proc/{os.getpid()}"
    files = [str(secret), "/etc/passwd", f"{own}/environ", f"{own}/cmdline", f"{own}/root{secret}"]
    folders = [str(tmp_path), "/", "/etc", "/tmp", str(Path.home()), "/proc", own]
    found = await ask(blind, "look_into", files=[secret], places=[*files, *folders])
    assert found == dict.fromkeys([*files, *folders], "PermissionError")
    item = await blind.run("echo", {}, files=[secret], budget=SMALL)
    assert item.attachment == b"nobody may read this"


async def test_no_detour_leads_to_a_file(blind: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"nobody may read this")
    library = Path(os.__file__).parent
    ways = [f"{library}/{'../' * len(library.parts)}{secret}", f"/proc/self/root{secret}"]
    assert {content(way) for way in ways} == {"nobody may read this"}, "they lead there outside"
    found = await ask(blind, "look_into", places=ways)
    assert set(found.values()) == {"PermissionError"}, found


async def test_files_cannot_be_truncated_or_removed(blind: Sandbox, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_bytes(b"as it was")
    for task in ("empty_file", "remove_file"):
        failed = await failure(blind, task, path=str(kept))
        assert "PermissionError" in failed.message, task
    assert kept.read_bytes() == b"as it was"


async def test_python_its_packages_and_what_a_process_knows_of_itself_stay_readable(
    sandbox: Sandbox,
) -> None:
    files = [os.__file__, pytest.__file__, "/dev/urandom", "/dev/null"]
    folders = [sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")]
    own = ["/proc/self/statm"] if sys.platform.startswith("linux") else []
    found = await ask(sandbox, "look_into", places=[*files, *folders, *own])
    assert set(found.values()) == {"seen"}, found


async def test_what_a_profile_names_may_be_read(blind: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    named, other = tmp_path / "models/eng", tmp_path / "other"
    for file in (named, other):
        file.write_bytes(b"words")
    profile = Profile(reads=(tmp_path / "models", tmp_path / "not there"))
    async with make(profile=profile) as reading:
        found = await ask(reading, "look_into", places=[str(named), str(other)])
    assert found == {str(named): "seen", str(other): "PermissionError"}


@linux_only
async def test_no_signal_reaches_the_parent(sandbox: Sandbox) -> None:
    ways = ["signal_parent"]
    if (await sandbox.layers())["signals"] is True:
        ways.append("signal_thread_of_parent")
    for way in ways:
        assert "PermissionError" in (await failure(sandbox, way)).message, way


@linux_only
async def test_when_memory_ends_the_kernel_takes_the_child_and_not_the_worker(
    sandbox: Sandbox,
) -> None:
    pid = await pid_of_child(sandbox)
    assert content(f"/proc/{pid}/oom_score_adj") == "1000\n"
    assert content("/proc/self/oom_score_adj") != "1000\n"


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
    assert len(seen["open"]) <= 7, (
        "standard streams, socket, lifeline, the child's own folder in /proc, and the listing itself"
    )


async def test_what_a_child_prints_reaches_nobody(
    sandbox: Sandbox, capfd: pytest.CaptureFixture[str]
) -> None:
    assert await ask(sandbox, "print_much") == "done"
    assert capfd.readouterr() == ("", "")


async def test_other_tasks_continue_after_a_crash() -> None:
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


async def test_the_active_layers_are_reported(sandbox: Sandbox) -> None:
    layers = await sandbox.layers()
    assert layers["cpu_limit"] is True
    assert {"network_namespace", "network_filter", "memory_limit", "no_new_processes"} <= set(
        layers
    )
    assert layers["file_reads"] is True or isinstance(layers["file_reads"], str), "with the reason"
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


@linux_only
@pytest.mark.parametrize("path", ["{folder}/secret", "/proc/{parent}/environ"])
def test_the_denial_of_files_holds_without_a_namespace(tmp_path: Path, path: str) -> None:
    """As in most containers, where a child may not have one."""
    (tmp_path / "secret").write_bytes(b"nobody may read this")
    place = path.format(folder=tmp_path, parent=os.getpid())
    alone = (
        "import sys\n"
        "from latent_workers.sandbox import landlock\n"
        "from latent_workers.sandbox.confine import readable\n"
        "before = open(sys.argv[1], 'rb').read(1)\n"
        "held = landlock.restrict(readable((), programs=False))\n"
        "try:\n"
        "    open(sys.argv[1], 'rb').read(1)\n"
        "except PermissionError:\n"
        "    print(len(before), held)\n"
        "else:\n"
        "    print(len(before), isinstance(held, str))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", alone, place], capture_output=True, text=True, check=True
    )
    assert done.stdout == "1 True\n", "it was readable before; now it is denied, or the reason said"


@linux_only
def test_a_kernel_without_landlock_is_reported_and_denies_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landlock, "_CREATE_RULESET", 5000)  # no kernel has so many calls
    assert landlock.restrict({}) == "this kernel has no Landlock (Linux 5.13)"
    assert landlock.keeps_signals() == "this kernel's Landlock does not know signals (Linux 6.12)"
    assert os.listdir(tmp_path) == []


async def test_what_holds_is_written_to_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "latent_workers.sandbox.pool")
    async with make(tasks_per_child=1) as sandbox:
        assert await pid_of_child(sandbox) != await pid_of_child(sandbox)
        held = await sandbox.layers()
    (record_logged,) = [
        record for record in caplog.records if record.name == "latent_workers.sandbox.pool"
    ]
    assert vars(record_logged)["missing"] == {
        name: state for name, state in held.items() if state is not True
    }
