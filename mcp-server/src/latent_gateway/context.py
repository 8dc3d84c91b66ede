"""The dependencies of routes: the stack, and the data of a request.

The dependencies are coroutines although they never wait: the framework would run plain functions in threads, which
is slower.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from time import time
from typing import TYPE_CHECKING, Annotated, Final, cast
from urllib.parse import urlencode

from fastapi import Depends, Request

from latent_core.blobs.signing import Signer
from latent_core.domain.errors import RateLimited
from latent_core.search.embed import QueryCache
from latent_core.search.limiter import SearchLimiter
from latent_core.settings import Settings
from latent_core.stack import Stack
from latent_core.telemetry.metrics_server import MetricsText
from latent_gateway.auth.ask_limiter import AskLimiter
from latent_gateway.auth.call_counts import CallCounts
from latent_gateway.auth.principal import Principal
from latent_gateway.auth.quotas import Quotas
from latent_gateway.auth.shared_memory import Limit, OpenCounts, SharedMemory
from latent_gateway.auth.sign_in_codes import SignInCodes
from latent_gateway.auth.tokens import TokenRegistry
from latent_gateway.model_warmer import ModelWarmer
from latent_gateway.query_log import QueryLog

if TYPE_CHECKING:
    from latent_core.blobs.presigner import Presigner


TTL_SECONDS: Final = 300


@dataclass(frozen=True, slots=True)
class BlobLinks:
    """Links below ``base`` (scheme, host and port, without a slash at the end)."""

    signer: Signer
    base: str
    presigner: Presigner | None = None

    def page_image(self, bucket: str, sha256: str, mime: str, filename: str) -> str:
        return self.link(bucket, sha256, mime, "inline", filename)

    def link(self, bucket: str, sha256: str, mime: str, disposition: str, filename: str) -> str:
        """``bucket`` as in the rows of blobs: "" for the installation's own. Only a download carries its name: the name
        of a document's file is written by others, and agents read links."""
        name = filename if disposition == "attachment" else ""
        if self.presigner is not None:
            return self.presigner.link(
                sha256,
                seconds=TTL_SECONDS,
                mime=mime,
                disposition=disposition,
                filename=name,
                bucket=bucket,
            )
        query = self.signer.sign(
            sha256,
            expires_at=int(time()) + TTL_SECONDS,
            mime=mime,
            disposition=disposition,
            filename=name,
            bucket=bucket,
        )
        return f"{self.base}/v1/blobs/{sha256}?{urlencode(query)}"


MAX_STREAMS: Final = 64
MAX_STREAMS_PER_PRINCIPAL: Final = 8
"""Per principal, so that one cannot use up all streams."""
SECONDS_TO_COME_BACK: Final = 15


class StreamLimiter:
    """Limits the number of long-lived answers: each queries the database regularly."""

    def __init__(
        self,
        max_streams: int = MAX_STREAMS,
        max_per_principal: int = MAX_STREAMS_PER_PRINCIPAL,
        memory: SharedMemory | None = None,
    ) -> None:
        self._max_streams = max_streams
        self._max_per_principal = max_per_principal
        self.open = OpenCounts(memory or SharedMemory())
        """By principal, in all processes."""

    def take(self, principal: Principal) -> None:
        """Count a stream; ``RateLimited`` if there are too many. ``give_back`` ends it."""
        # All clients of an installation without other tokens share the owner's token.
        limit = None if principal.is_owner else self._max_per_principal
        match self.open.take(principal.name, of_key=limit, of_all=self._max_streams):
            case Limit.ALL:
                raise _too_many(f"{self._max_streams} event streams are open")
            case Limit.KEY:
                raise _too_many(f"{limit} of your event streams are open")

    def give_back(self, principal: Principal) -> None:
        self.open.give_back(principal.name)


def _too_many(cause: str) -> RateLimited:
    return RateLimited(
        f"{cause}, which is the limit: read the job itself instead",
        retry_after=SECONDS_TO_COME_BACK,
    )


@dataclass(frozen=True, slots=True)
class Gateway:
    """The objects that all routes share, created once in the composition root."""

    settings: Settings
    stack: Stack
    memory: SharedMemory
    """Of all processes of this gateway."""
    tokens: TokenRegistry
    quotas: Quotas
    metrics_text: MetricsText
    limiter: SearchLimiter
    query_log: QueryLog
    warmer: ModelWarmer
    calls: CallCounts
    streams: StreamLimiter
    questions: AskLimiter
    sign_in_codes: SignInCodes
    queries: QueryCache = field(default_factory=QueryCache)
    runs: set[asyncio.Task[None]] = field(default_factory=set)
    """Checks in the background, whose ends the database keeps."""
    model_tests: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One test of a model at a time: it measures times."""

    @property
    def serving_processes(self) -> int:
        """Processes of this gateway that answer requests."""
        return self.memory.serving_processes

    def forget_process(self, number: int) -> None:
        """A process of this gateway has ended, with all that it had open."""
        self.memory.serving[number - 1] = False
        self.streams.open.forget_process(number)
        self.questions.open.forget_process(number)


async def gateway(request: Request) -> Gateway:
    return cast(Gateway, request.app.state.gateway)


async def principal(request: Request) -> Principal:
    """The principal, which ``AuthMiddleware`` has authenticated."""
    return cast(Principal, request.scope["latent.principal"])


async def request_id(request: Request) -> str:
    return cast(str, request.scope["latent.request_id"])


async def links(request: Request, shared: Annotated[Gateway, Depends(gateway)]) -> BlobLinks:
    """Links with the address that the client used, unless ``LLC_PUBLIC_URL`` is set."""
    base = shared.settings.public_url or str(request.base_url)
    return BlobLinks(shared.stack.signer, base.rstrip("/"), shared.stack.presigner)


Shared = Annotated[Gateway, Depends(gateway)]
Caller = Annotated[Principal, Depends(principal)]
RequestId = Annotated[str, Depends(request_id)]
SignedLinks = Annotated[BlobLinks, Depends(links)]
