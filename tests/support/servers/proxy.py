"""A way to the database that can be shut, fall silent or slow, while tests look on."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo


class DatabaseProxy:
    """A proxy on the loopback before a server on a Unix socket; ``dsn`` leads through it."""

    def __init__(self, dsn: str) -> None:
        given = conninfo_to_dict(dsn)
        self._target = f"{given['host']}/.s.PGSQL.{given.get('port') or 5432}"
        self._dsn = dsn
        self._streams: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._open = True
        self._frozen = False
        self.delay_seconds = 0.0
        """Before each answer of the server."""
        self.dsn = ""
        self.refused = 0
        """Connections that were turned away."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.dsn = make_conninfo(
            self._dsn, host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable"
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        self.shut()

    def shut(self) -> None:
        """Every connection breaks, and none can be made."""
        self._open = False
        self._flowing.set()
        for stream in self._streams:
            stream.transport.abort()

    def open(self) -> None:
        self._open = True

    def silence(self) -> None:
        """Nothing passes any more, and nobody is told; no new connection can be made."""
        self._flowing.clear()

    def freeze(self) -> None:
        """As a stopped process: nothing passes any more, and new connections are accepted and never answered."""
        self._frozen = True
        self._flowing.clear()

    def speak(self) -> None:
        """After ``silence`` or ``freeze``."""
        self._frozen = False
        self._flowing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._open or not (self._frozen or self._flowing.is_set()):
            self.refused += 1
            writer.transport.abort()
            return
        await self._flowing.wait()
        up_reader, up_writer = await asyncio.open_unix_connection(self._target)
        self._streams |= {writer, up_writer}
        await asyncio.gather(
            self._pipe(reader, up_writer), self._pipe(up_reader, writer, answers=True)
        )
        self._streams -= {writer, up_writer}

    async def _pipe(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        answers: bool = False,
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await self._flowing.wait()
                if answers:
                    await asyncio.sleep(self.delay_seconds)
                writer.write(data)
                await writer.drain()
        writer.close()
