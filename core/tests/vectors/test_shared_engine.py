"""Several processes use one vector engine by the socket that its owner passed on (ADR 0069)."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest

from latent_core.domain.errors import Unavailable
from latent_core.domain.ids import PointId
from latent_core.runtime.socket_folder import listening_socket
from latent_core.vectors.edge.index import EdgeVectorIndex
from latent_core.vectors.edge.protocol import VectorOp, VectorRequest
from tests.support.oracles.vector_oracle import points_of, random_vectors

WAIT_SECONDS: Final = 30.0
POINTS = points_of(random_vectors(50, 4, seed=11))
WRITER: Final = """
import asyncio, sys
from pathlib import Path
from uuid import UUID
import numpy as np
from latent_core.vectors.edge.index import EdgeVectorIndex
from latent_core.vectors.port import Points

async def main():
    index = await EdgeVectorIndex.connect(Path(sys.argv[1]), Path(sys.argv[2]))
    for n in range(1000, 1_000_000):
        await index.upsert("c", Points([UUID(int=n)], np.eye(1, 4), [UUID(int=7)], [9], [n]))
        print(n, flush=True)

asyncio.run(main())
"""


@dataclass(frozen=True)
class SharedEngine:
    owner: EdgeVectorIndex
    other: EdgeVectorIndex
    address: Path


@asynccontextmanager
async def shared(folder: Path) -> AsyncIterator[SharedEngine]:
    with listening_socket(folder, "vectors") as (listening, address):
        owner = await EdgeVectorIndex.open(folder, listening=listening)
        other = await EdgeVectorIndex.connect(folder, address)
        try:
            yield SharedEngine(owner, other, address)
        finally:
            await other.close()
            await owner.close()
    assert not address.parent.exists()


async def test_what_one_process_stores_another_finds(tmp_path: Path) -> None:
    async with shared(tmp_path) as both:
        await both.other.create_collection("c", 4)
        await both.owner.upsert("c", POINTS)
        assert both.other.pid == both.owner.pid
        answers = await asyncio.gather(
            *(both.other.search("c", vector, 1) for vector in POINTS.vectors),
            *(both.owner.search("c", vector, 1) for vector in POINTS.vectors),
        )
        assert [hits.chunk_nos.tolist() for hits in answers] == [[n] for n in range(50)] * 2


async def test_calls_of_all_processes_are_repeated_when_the_engine_is_killed(
    tmp_path: Path,
) -> None:
    async with shared(tmp_path) as both:
        await both.owner.create_collection("c", 4)
        await both.other.upsert("c", POINTS)
        for restart in range(1, 4):
            assert both.owner.pid is not None
            os.kill(both.owner.pid, signal.SIGKILL)
            hits = await asyncio.gather(
                *(index.search("c", POINTS.vectors[7], 1) for index in (both.owner, both.other))
            )
            assert [one.chunk_nos.tolist() for one in hits] == [[7], [7]]
            assert both.owner.restarts == restart


async def test_another_process_closes_only_its_own_connection(tmp_path: Path) -> None:
    async with shared(tmp_path) as both:
        await both.owner.create_collection("c", 4)
        with socket.socket(socket.AF_UNIX) as rude:
            rude.connect(str(both.address))
            rude.sendall(VectorRequest(1, VectorOp.CLOSE, time.monotonic() + 9).encode())
            await asyncio.to_thread(_until_closed, rude)
        with socket.socket(socket.AF_UNIX) as noise:
            noise.connect(str(both.address))
            noise.sendall(b"GET / HTTP/1.1\r\n\r\n" * 8)
            await asyncio.to_thread(_until_closed, noise)
        await both.other.close()
        assert await both.owner.count("c") == 0
        assert both.owner.restarts == 0


def _until_closed(connection: socket.socket) -> None:
    connection.settimeout(WAIT_SECONDS)
    while connection.recv(65536):
        pass


async def test_a_process_that_is_killed_while_it_writes_leaves_the_others_and_what_was_stored(
    tmp_path: Path,
) -> None:
    async with shared(tmp_path) as both:
        await both.owner.create_collection("c", 4)
        writer = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", WRITER, str(tmp_path), str(both.address)), stdout=PIPE
        )
        assert writer.stdout is not None
        lines = [await writer.stdout.readline() for _ in range(20)]
        writer.kill()
        lines += (await writer.stdout.read()).splitlines()
        await writer.wait()
        stored = int(lines[-1])
        found = await both.owner.vectors("c", _ids(range(1000, stored + 1)))
        assert len(found) == stored - 999
        assert both.owner.restarts == 0


def _ids(numbers: range) -> list[PointId]:
    return [PointId(UUID(int=n)) for n in numbers]


async def test_without_its_owner_the_engine_cannot_be_reached(tmp_path: Path) -> None:
    async with shared(tmp_path) as both:
        address = both.address
    with pytest.raises(Unavailable, match="cannot be reached"):
        await EdgeVectorIndex.connect(tmp_path, address)
