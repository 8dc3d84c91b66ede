"""Allowed addresses of pages: the public internet, and origins that the operator allows.

A URL comes from anyone who may add documents. It must not name a machine that only this one can reach (a metadata
service, a router, a neighbour). No predicate of ``ipaddress`` is complete for this (``is_global`` allows the
metadata servers of two clouds), so the list is our own.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

from latent_core.domain.errors import Forbidden, IngestFailed, TimedOut, Unavailable
from latent_core.domain.web_address import WebAddress, check_port

RESOLVE_SECONDS: Final = 15.0
MAX_ADDRESSES: Final = 64

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Addresses of a host, as text, best first. Raises what ``socket.getaddrinfo`` raises."""

# The IANA registry of special IPv4 addresses, multicast and reserved, and Azure's wire server.
_CLOSED_V4: Final = tuple(
    map(
        IPv4Network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32"),
            *("169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24"),
            *("192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24"),
            *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        ),
    )
)
# Of IPv6 only global unicast, without what stands for something else in it: Teredo and its neighbours, 6to4 (an
# IPv4 address inside), documentation, and the registry's sink for reverse lookups.
_OPEN_V6: Final = IPv6Network("2000::/3")
_CLOSED_V6: Final = tuple(
    map(
        IPv6Network,
        ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"),
    )
)


def is_public(address: str) -> bool:
    """Whether ``address`` (not a name) belongs to the public internet; False for an invalid address."""
    try:
        parsed: IPv4Address | IPv6Address = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv4Address):
        return not any(parsed in network for network in _CLOSED_V4)
    if parsed.scope_id is not None or parsed not in _OPEN_V6:
        return False
    return not any(parsed in network for network in _CLOSED_V6)


async def system_resolver(host: str, port: int) -> list[str]:
    """The addresses from the system's resolver, in its order."""
    found = await asyncio.to_thread(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class AddressGuard:
    """Decides where a request may connect to. A name is resolved once per request.

    ``allowed``: origins (``WebAddress.origin``) that the operator allows, whatever they resolve to.
    """

    def __init__(self, resolve: Resolver, allowed: Collection[str] = ()) -> None:
        self._resolve = resolve
        self._allowed = frozenset(allowed)

    async def admit(self, address: WebAddress) -> list[str]:
        """The allowed addresses of the host of ``address``. Connect to these without resolving the name again.

        Raises ``Forbidden`` if one of them is not allowed, ``IngestFailed`` if there is none, ``Unavailable`` or
        ``TimedOut`` if the name cannot be resolved now.
        """
        check_port(address, self._allowed)
        found = await self._addresses(address)
        if not found:
            raise IngestFailed(f"the host '{address.host}' has no address: check the URL")
        if len(found) > MAX_ADDRESSES:
            raise Forbidden(f"the host '{address.host}' has too many addresses ({len(found)})")
        if address.origin not in self._allowed and not all(map(is_public, found)):
            raise not_public(address)
        return list(found)

    async def _addresses(self, address: WebAddress) -> Sequence[str]:
        if _is_literal(address.host):
            return [address.host]
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                return await self._resolve(address.host, address.port)
        except TimeoutError as exc:
            raise TimedOut(
                f"the name '{address.host}' was not resolved within {RESOLVE_SECONDS:g} s"
            ) from exc
        except socket.gaierror as exc:
            if exc.errno == socket.EAI_AGAIN:
                raise Unavailable(
                    f"the name '{address.host}' cannot be resolved at the moment"
                ) from exc
            raise IngestFailed(f"the host '{address.host}' is unknown: check the URL") from exc
        except (OSError, UnicodeError) as exc:
            raise Unavailable(f"the name '{address.host}' cannot be resolved: {exc}") from exc


def not_public(address: WebAddress) -> Forbidden:
    """The error does not contain the address: users who may add documents must not learn the names of a private
    network."""
    return Forbidden(
        f"'{address.host}' is not on the public internet; the operator can allow it with "
        f"LLC_FETCH_ALLOW={address.origin}",
        origin=address.origin,
    )


def _is_literal(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
