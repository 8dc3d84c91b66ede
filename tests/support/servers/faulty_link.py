"""A TCP link to a server that can be cut, frozen or slowed while tests watch."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from enum import StrEnum
from typing import Final, Self

SLOW_SECONDS: Final = 2.0


class LinkState(StrEnum):
    OPEN = "open"
    KILLED = "killed"
    """Connections break, and new ones are accepted and broken at once, as by a proxy without a server."""
    FROZEN = "frozen"
    """Connections are accepted, and nothing passes."""
    SLOW = "slow"
    """Every piece of data takes two seconds longer, in one direction."""


class FaultyLink:
    """Listens on the loopback and passes data to ``host``:``port``, or to the Unix socket that psycopg finds in the folder
    ``host``."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._state = LinkState.OPEN
        self._passing = asyncio.Event()
        self._passing.set()
        self._streams: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        self.become(LinkState.KILLED)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def lead_to(self, host: str, port: int) -> None:
        """Another server, for new connections."""
        self._target = (host, port)

    def become(self, state: LinkState) -> None:
        self._state = state
        if state is LinkState.FROZEN:
            self._passing.clear()
        else:
            self._passing.set()
        if state is LinkState.KILLED:
            for stream in self._streams:
                stream.transport.abort()

    def _is_cut(self) -> bool:
        return self._state is LinkState.KILLED

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if self._is_cut() or task is None:
            writer.transport.abort()
            return
        self._tasks.add(task)
        self._streams.add(writer)
        try:
            await self._passing.wait()
            if self._is_cut():
                return
            with suppress(OSError):
                up_reader, up_writer = await self._connect()
                self._streams.add(up_writer)
                await asyncio.gather(
                    self._pipe(reader, up_writer, slows=True), self._pipe(up_reader, writer)
                )
        finally:
            self._tasks.discard(task)
            self._streams.discard(writer)
            writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self._target
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, port)

    async def _pipe(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, slows: bool = False
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if slows and self._state is LinkState.SLOW:
                    await asyncio.sleep(SLOW_SECONDS)
                await self._passing.wait()
                writer.write(data)
                await writer.drain()
        writer.close()
