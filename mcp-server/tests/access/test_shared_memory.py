"""Counts that several processes share: they add up, a process that ends or stops does no harm."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from latent_core.domain.errors import RateLimited, Unauthorized
from latent_gateway.auth.principal import Principal
from latent_gateway.auth.shared_memory import (
    MAX_PROCESSES,
    DecayingCounts,
    Limit,
    OpenCounts,
    SharedMemory,
)
from latent_gateway.auth.sign_in_codes import SignInCodes
from latent_gateway.context import StreamLimiter

LIMIT: Final = 1500
TAKER: Final = f"""
import sys
from latent_gateway.auth.shared_memory import DecayingCounts, SharedMemory
counts = DecayingCounts(SharedMemory(int(sys.argv[1]), 2), 100)
print(sum(not counts.take("key", 0.0, limit={LIMIT}, per_second=1.0) for _ in range(1000)))
"""
HOLDER: Final = """
import sys
from latent_gateway.auth.shared_memory import SharedMemory
memory = SharedMemory(int(sys.argv[1]), 2)
with memory.locked():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[SharedMemory]:
    with closing(SharedMemory.create(tmp_path)) as created:
        yield created


def other(memory: SharedMemory, number: int = 2) -> SharedMemory:
    """The same memory as another process sees it."""
    return SharedMemory(memory.descriptor, number)


def run(program: str, memory: SharedMemory) -> subprocess.Popen[str]:
    assert memory.descriptor is not None
    return subprocess.Popen(
        [sys.executable, "-c", program, str(memory.descriptor)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=[memory.descriptor],
    )


def test_processes_that_count_at_the_same_time_stay_within_the_limit(memory: SharedMemory) -> None:
    counts = DecayingCounts(memory, 100)
    processes = [run(TAKER, memory) for _ in range(2)]
    taken = [int(process.communicate(timeout=60)[0]) for process in processes]
    assert sum(taken) == LIMIT
    assert counts.over("key", 0.0, limit=LIMIT, per_second=1.0) == 1


def test_a_process_that_is_stopped_while_it_counts_does_not_stop_others(
    memory: SharedMemory, holder: subprocess.Popen[str]
) -> None:
    holder.send_signal(signal.SIGSTOP)
    counts = DecayingCounts(memory, 100)
    assert not counts.take("key", 0.0, limit=1, per_second=1.0)
    assert counts.take("key", 0.0, limit=1, per_second=1.0)


@pytest.fixture
def holder(memory: SharedMemory) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock."""
    with run(HOLDER, memory) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_streams_of_a_principal_are_limited_over_all_processes_and_end_with_theirs(
    memory: SharedMemory,
) -> None:
    here = StreamLimiter(10, 3, memory)
    there = StreamLimiter(10, 3, other(memory))
    ada, bob = Principal("agent:ada", token_id=1), Principal("agent:bob", token_id=2)
    for limiter in (here, there, there):
        limiter.take(ada)
    for limiter in (here, there):
        with pytest.raises(RateLimited, match="3 of your event streams"):
            limiter.take(ada)
        limiter.take(bob)
    here.open.forget_process(2)  # with two of Ada's
    for limiter in (here, there):
        limiter.take(ada)
    with pytest.raises(RateLimited, match="3 of your event streams"):
        here.take(ada)
    there.give_back(ada)
    here.take(ada)


def test_all_open_things_are_limited_together(memory: SharedMemory) -> None:
    counts = [OpenCounts(memory), OpenCounts(other(memory, MAX_PROCESSES))]
    for number in range(6):
        assert counts[number % 2].take(f"agent:{number}", of_key=None, of_all=6) is None
    assert [one.take("agent:0", of_key=1, of_all=6) for one in counts] == [Limit.ALL] * 2
    assert [one.take("agent:0", of_key=1, of_all=7) for one in counts] == [Limit.KEY] * 2


def test_a_sign_in_code_of_one_process_is_redeemed_once_by_any(memory: SharedMemory) -> None:
    here, there = SignInCodes(time.time, memory), SignInCodes(time.time, other(memory))
    code = here.issue()
    assert there.is_valid(code)
    there.redeem(code)
    for codes in (here, there):
        assert not codes.is_valid(code)
        with pytest.raises(Unauthorized):
            codes.redeem(code)
