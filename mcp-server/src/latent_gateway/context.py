"""What the routes stand on: the stack, and what a request carries.

The dependencies are coroutines, though nothing in them waits: the framework hands plain functions to threads,
which takes longer than all they do.
"""

from __future__ import annotations

from collections import Counter
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
from latent_gateway.auth.principal import Principal
from latent_gateway.auth.quotas import Quotas
from latent_gateway.auth.tokens import TokenRegistry
from latent_gateway.backend_gauges import Gauges

if TYPE_CHECKING:
    from latent_core.blobs.signing import Presigner


TTL_SECONDS: Final = 300


@dataclass(frozen=True, slots=True)
class BlobLinks:
    """Links below ``base`` (scheme, host and port, without a slash at the end)."""

    signer: Signer
    base: str
    presigner: Presigner | None = None

    def page_image(self, sha256: str, mime: str, filename: str) -> str:
        return self.link(sha256, mime, "inline", filename)

    def link(self, sha256: str, mime: str, disposition: str, filename: str) -> str:
        if self.presigner is not None:
            return self.presigner.link(
                sha256, seconds=TTL_SECONDS, mime=mime, disposition=disposition, filename=filename
            )
        query = self.signer.sign(
            sha256,
            expires_at=int(time()) + TTL_SECONDS,
            mime=mime,
            disposition=disposition,
            filename=filename,
        )
        return f"{self.base}/v1/blobs/{sha256}?{urlencode(query)}"


MAX_STREAMS: Final = 64
MAX_STREAMS_PER_PRINCIPAL: Final = 8
"""Of one principal: else one alone keeps all others from watching."""
SECONDS_TO_COME_BACK: Final = 15


class StreamLimiter:
    """How many answers are open that go on for hours: each asks the database again and again."""

    def __init__(
        self, max_streams: int = MAX_STREAMS, max_per_principal: int = MAX_STREAMS_PER_PRINCIPAL
    ) -> None:
        self._max_streams = max_streams
        self._max_per_principal = max_per_principal
        self._open: Counter[str] = Counter()

    def take(self, principal: Principal) -> None:
        """Count one more; ``RateLimited`` when there are too many. Each is given back by ``give_back``."""
        if self._open.total() >= self._max_streams:
            raise _too_many(f"{self._max_streams} event streams are open")
        # The owner's token is shared by everything of an installation that has no other.
        if not principal.is_owner and self._open[principal.name] >= self._max_per_principal:
            raise _too_many(f"{self._max_per_principal} event streams of yours are open")
        self._open[principal.name] += 1

    def give_back(self, principal: Principal) -> None:
        self._open[principal.name] -= 1
        if not self._open[principal.name]:
            del self._open[principal.name]


def _too_many(cause: str) -> RateLimited:
    return RateLimited(
        f"{cause}, which is the most; ask for the job itself instead",
        retry_after=SECONDS_TO_COME_BACK,
    )


@dataclass(frozen=True, slots=True)
class Gateway:
    """Everything the routes share, made once in the composition root."""

    settings: Settings
    stack: Stack
    tokens: TokenRegistry
    quotas: Quotas
    gauges: Gauges
    streams: StreamLimiter = field(default_factory=StreamLimiter)
    queries: QueryCache = field(default_factory=QueryCache)
    limiter: SearchLimiter = field(default_factory=SearchLimiter)


async def gateway(request: Request) -> Gateway:
    return cast(Gateway, request.app.state.gateway)


async def principal(request: Request) -> Principal:
    """Who is asking, as the door found out (``admission``): behind it nobody is without a valid token."""
    return cast(Principal, request.scope["latent.principal"])


async def request_id(request: Request) -> str:
    return cast(str, request.scope["latent.request_id"])


async def links(request: Request, shared: Annotated[Gateway, Depends(gateway)]) -> BlobLinks:
    """Links that start where the reader reached us, unless ``LLC_PUBLIC_URL`` says otherwise."""
    base = shared.settings.public_url or str(request.base_url)
    return BlobLinks(shared.stack.signer, base.rstrip("/"), shared.stack.presigner)


Shared = Annotated[Gateway, Depends(gateway)]
Caller = Annotated[Principal, Depends(principal)]
RequestId = Annotated[str, Depends(request_id)]
SignedLinks = Annotated[BlobLinks, Depends(links)]
