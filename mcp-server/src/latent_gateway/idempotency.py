"""``Idempotency-Key`` on writes: a request that is sent again is answered again, and done once.

What is kept are answers of 2xx: an error changed nothing, so its key is free again. A key belongs to its
principal and its request (method, target, body); with another request it is a ``Conflict``. An answer is told
again only to who still has the rights that it was given by. Searches are no writes, though they are sent as POST.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final
from uuid import UUID

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from latent_core.background import ended
from latent_core.domain.errors import Conflict, Invalid, LatentError, TimedOut, TooLarge
from latent_core.registry import idempotency
from latent_core.registry.connection import Database
from latent_core.registry.idempotency import KeptAnswer, KeyedRequest
from latent_gateway.admission import SECONDS_BETWEEN_PIECES, streamed
from latent_gateway.auth import access, rights
from latent_gateway.auth.principal import Principal
from latent_gateway.auth.quotas import identity

logger = logging.getLogger(__name__)

HEADER: Final = "idempotency-key"
REPLAYED: Final = "Idempotency-Replayed"
KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
METHODS: Final = frozenset({"POST", "PUT", "DELETE"})
BELOW: Final = "/v1/"
READS: Final = frozenset(
    {"/v1/search", "/v1/containers/search", "/v1/doc_search", "/v1/admin/doctor"}
)
"""Sent as POST, and change nothing; what doctor repairs is whole when it is asked again."""
MOST_KEYS: Final = 1000
"""Answers kept for one principal; of more, the oldest are forgotten before their day is over."""
OF_THE_REQUEST: Final = ("content-type", "if-match")
"""Headers that make it another request."""
OF_THE_ANSWER: Final = ("content-type", "etag", "location")
CLAIM_SECONDS: Final = 60.0
"""How long a crashed request locks its key; renewed as long as it runs."""
WAIT_SECONDS: Final = 10.0
"""How long a duplicate waits for the answer to the first."""
SHORTEST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 0.5
MOST_KEPT_BYTES: Final = 1024 * 1024
"""Of an answer; a longer one is given and not kept."""


class Idempotency:
    """ASGI middleware behind the door: the principal is known, the body is bounded."""

    def __init__(
        self, app: ASGIApp, db: Database, max_bytes: int, serves: Callable[[Scope], bool]
    ) -> None:
        """``serves`` tells whether a route takes the request: else that is its answer, whatever its key."""
        self._app = app
        self._db = db
        self._max_bytes = max_bytes
        self._serves = serves

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = _key(scope)
        if key is None or not self._serves(scope):
            await self._app(scope, receive, send)
            return
        body = _Body(receive)
        if not streamed(scope):
            await body.read()
        request = KeyedRequest(
            principal=_principal(scope),
            key=key,
            request_hash=_request_hash(scope),
            body_hash=body.digest() if body.complete else None,
        )
        held = await self._claim(request)
        if isinstance(held, UUID):
            await self._run(scope, body, send, request, held)
            return
        async with self._db.transaction() as conn:
            await access.check_still(conn, scope["latent.principal"], held.rights)
        if not body.complete:
            await self._same_upload(body, request)
        await _replay(held, send)

    async def _claim(self, request: KeyedRequest) -> UUID | KeptAnswer:
        """The right to answer, or what was answered; ``Conflict`` when the key is another request's, or when
        the first is not answered in time."""
        loop = asyncio.get_running_loop()
        until, pause = loop.time() + WAIT_SECONDS, SHORTEST_PAUSE
        while True:
            async with self._db.transaction() as conn:
                held = await idempotency.claim(conn, request, seconds=CLAIM_SECONDS)
                if held is not None:
                    await idempotency.forget_oldest(conn, request.principal, most=MOST_KEYS)
                    return held
                known = await idempotency.look(conn, request.principal, request.key)
            if known is not None and not known.is_of(request):
                raise _other_request()
            if known is not None and known.answer is not None:
                return known.answer
            if loop.time() + pause > until:
                raise Conflict(
                    "the first request with this Idempotency-Key is still being answered; ask again later",
                    retry_after=round(WAIT_SECONDS),
                )
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _same_upload(self, body: _Body, request: KeyedRequest) -> None:
        """Read what was sent again, and compare."""
        await body.drain(self._max_bytes)
        async with self._db.transaction() as conn:
            known = await idempotency.look(conn, request.principal, request.key)
        if known is not None and known.body_hash != body.digest():
            raise _other_request()

    async def _run(
        self, scope: Scope, body: _Body, send: Send, request: KeyedRequest, held: UUID
    ) -> None:
        """Do it, and keep the answer; else the key is free again. The claim is renewed meanwhile."""
        kept = False

        async def keep(answer: KeptAnswer) -> None:
            nonlocal kept
            answer = replace(answer, rights=dict(relied))
            # The work is done, and its answer must go out.
            with _bearable("idempotent_answer_not_kept"):
                async with self._db.transaction() as conn:
                    kept = await idempotency.keep(conn, request, held, body.digest(), answer)

        renewing = asyncio.create_task(self._renew(request, held), name="idempotency-claim")
        try:
            with rights.noted() as relied:
                await self._app(scope, body.replayed, _Keeping(send, keep))
        finally:
            await ended(renewing)
            if not kept:
                with _bearable("idempotency_key_not_released"):
                    async with self._db.transaction() as conn:
                        await idempotency.release(conn, request, held)

    async def _renew(self, request: KeyedRequest, held: UUID) -> None:
        while True:
            await asyncio.sleep(CLAIM_SECONDS / 3)
            with _bearable("idempotency_key_not_renewed"):
                async with self._db.transaction() as conn:
                    await idempotency.renew(conn, request, held, seconds=CLAIM_SECONDS)


@contextmanager
def _bearable(what: str) -> Iterator[None]:
    """What fails in here is logged: claims pass by themselves."""
    try:
        yield
    except LatentError as exc:
        logger.warning(what, extra={"cause": exc.message})


class _Body:
    """A request's body, hashed as it is read."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._hash = hashlib.sha256()
        self._read: list[Message] = []
        self.complete = False
        self._gone = False
        """The sender went away."""

    def digest(self) -> str:
        return self._hash.hexdigest()

    async def read(self) -> None:
        """To its end, to be handed on afterwards; the door has bounded it."""
        while not self.complete and not self._gone:
            self._read.append(await self._next())

    async def drain(self, most: int) -> None:
        """To its end, without keeping it."""
        size = 0
        while not self.complete:
            try:
                async with asyncio.timeout(SECONDS_BETWEEN_PIECES):
                    size += len((await self._next()).get("body", b""))
            except TimeoutError as exc:
                raise TimedOut("the upload stood still for a minute; send it again") from exc
            if self._gone:
                raise Invalid("the upload was broken off")
            if size > most:
                raise TooLarge(f"the upload is over the limit of {most} bytes")

    async def replayed(self) -> Message:
        """What the app receives."""
        return self._read.pop(0) if self._read else await self._next()

    async def _next(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._hash.update(message.get("body", b""))
            self.complete = not message.get("more_body", False)
        else:
            self._gone = True
        return message


class _Keeping:
    """Hands an answer on; one that is to be kept, once it is."""

    def __init__(self, send: Send, keep: Callable[[KeptAnswer], Awaitable[None]]) -> None:
        self._send = send
        self._keep = keep
        self._held: list[Message] = []
        self._size = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _to_be_kept(message):
            self._held.append(message)
            return
        if not self._held:
            await self._send(message)
            return
        self._held.append(message)
        self._size += len(message.get("body", b""))
        last = not message.get("more_body", False)
        if last and self._size <= MOST_KEPT_BYTES:
            await self._keep(_answer_of(self._held))
        if last or self._size > MOST_KEPT_BYTES:
            held, self._held = self._held, []
            for one in held:
                await self._send(one)


def _to_be_kept(start: Message) -> bool:
    """Not what says that it is not to be stored: a new token is told once, and stands nowhere."""
    headers = Headers(raw=start.get("headers", []))
    kind, cached = headers.get("content-type", ""), headers.get("cache-control", "")
    return (
        200 <= start["status"] < 300
        and kind.startswith("application/json")
        and "no-store" not in cached
    )


def _answer_of(messages: list[Message]) -> KeptAnswer:
    start, *pieces = messages
    headers = Headers(raw=start.get("headers", []))
    return KeptAnswer(
        status=start["status"],
        headers={name: headers[name] for name in OF_THE_ANSWER if name in headers},
        body=b"".join(piece.get("body", b"") for piece in pieces),
    )


async def _replay(kept: KeptAnswer, send: Send) -> None:
    headers = {**kept.headers, "content-length": str(len(kept.body)), REPLAYED: "true"}
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": kept.status, "headers": raw})
    await send({"type": "http.response.body", "body": kept.body, "more_body": False})


def _key(scope: Scope) -> str | None:
    """None when nothing is asked; ``Invalid`` for what is no key."""
    if scope["type"] != "http" or scope["method"] not in METHODS:
        return None
    given = Headers(scope=scope).getlist(HEADER)
    if not given or not scope["path"].startswith(BELOW) or scope["path"] in READS:
        return None
    if len(given) > 1 or not KEY.fullmatch(given[0]):
        raise Invalid(
            "Idempotency-Key must be one key of 1 to 255 visible ASCII characters, such as a random UUID"
        )
    return given[0]


def _principal(scope: Scope) -> str:
    principal = scope["latent.principal"]
    if not isinstance(principal, Principal):
        raise TypeError("the door has let nobody in")
    return identity(principal)


def _request_hash(scope: Scope) -> str:
    headers = Headers(scope=scope)
    parts = [scope["method"], scope["path"], scope["query_string"].decode("latin-1")]
    parts += [headers.get(name, "") for name in OF_THE_REQUEST]
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _other_request() -> Conflict:
    return Conflict(
        "this Idempotency-Key was sent with another request before: give each request a key of its own"
    )
