"""What the routes stand on: the stack, and what a request carries.

The dependencies are coroutines, though nothing in them waits: the framework hands plain functions to threads,
which takes longer than all they do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Final, cast

from fastapi import Depends, Request

from latent_core.domain.errors import RateLimited
from latent_core.settings import Settings
from latent_core.stack import Stack
from latent_gateway.auth.principal import Principal
from latent_gateway.auth.quotas import Quotas
from latent_gateway.auth.tokens import Tokens
from latent_gateway.links import BlobLinks
from latent_gateway.search.embed import QueryCache

MOST_STREAMS: Final = 64
SECONDS_TO_COME_BACK: Final = 15


class Streams:
    """How many answers are open that go on for hours: each asks the database again and again."""

    def __init__(self, most: int = MOST_STREAMS) -> None:
        self._most = most
        self._open = 0

    def take(self) -> None:
        """Count one more; ``RateLimited`` when there are too many. Each is given back by ``give_back``."""
        if self._open >= self._most:
            raise RateLimited(
                f"{self._most} event streams are open, which is the most; ask for the job itself instead",
                retry_after=SECONDS_TO_COME_BACK,
            )
        self._open += 1

    def give_back(self) -> None:
        self._open -= 1


@dataclass(frozen=True, slots=True)
class Gateway:
    """Everything the routes share, made once in the composition root."""

    settings: Settings
    stack: Stack
    tokens: Tokens
    quotas: Quotas
    streams: Streams = field(default_factory=Streams)
    queries: QueryCache = field(default_factory=QueryCache)


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
