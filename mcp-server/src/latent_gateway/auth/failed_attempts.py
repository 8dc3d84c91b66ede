"""Failed attempts by the address they come from: whose tokens are wrong too often is told to wait.

Others may sit behind the same address, the owner among them. So a token is judged first, and only one that turned
out wrong is counted here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from math import ceil
from time import monotonic
from typing import Final

from latent_core.domain.errors import RateLimited

MAX_FAILURES: Final = 20
"""At once, from one address."""
SECONDS_PER_FAILURE: Final = 3.0
"""Until one of them is forgiven."""
MAX_ADDRESSES: Final = 4096
NETWORK_BITS: Final = 64
"""Of an IPv6 address: whoever has one has all that share them."""


@dataclass(slots=True)
class _Failures:
    count: float
    at: float
    """When it was that many, by the clock."""


class FailedAttempts:
    """Bounded in memory: the addresses longest unheard of are forgotten."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, _Failures] = OrderedDict()

    def check(self, address: str) -> None:
        """``RateLimited`` when too much from there was wrong."""
        failures = self._failures.get(_network(address))
        if failures is None:
            return
        over = self._left(failures) - (MAX_FAILURES - 1)
        if over > 0:
            raise RateLimited(
                "too many wrong tokens came from your address: wait, and compare the token with the one you were given",
                retry_after=max(1, ceil(over * SECONDS_PER_FAILURE)),
            )

    def failed(self, address: str) -> None:
        """Count one."""
        network = _network(address)
        before = self._failures.pop(network, None)
        count = self._left(before) if before is not None else 0.0
        self._failures[network] = _Failures(min(count + 1, MAX_FAILURES), self._clock())
        while len(self._failures) > MAX_ADDRESSES:
            self._failures.popitem(last=False)

    def _left(self, failures: _Failures) -> float:
        return max(0.0, failures.count - (self._clock() - failures.at) / SECONDS_PER_FAILURE)


def _network(address: str) -> str:
    """What one client can send from."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(int(parsed) >> (128 - NETWORK_BITS))
