"""One-time codes that sign a browser in as the owner (ADR 0039).

They are kept in the memory of the gateway's processes, as hashes: nothing on disk can be used, and a code ends with
them.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from time import time
from typing import Final
from urllib.parse import urlencode, urlsplit

import numpy as np
from starlette.requests import HTTPConnection

from latent_core.domain.errors import Forbidden, Unauthorized
from latent_core.domain.token import digest
from latent_gateway.auth.shared_memory import SharedMemory

LINK: Final = "/login/link"
"""The page of the console that redeems codes."""
VALID_SECONDS: Final = 15 * 60
MAX_CODES: Final = 8
"""Valid at the same time; the oldest one ends first."""
CODE_BYTES: Final = 32
DIGEST_BYTES: Final = 32
FORWARDED: Final = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
"""Headers of proxies: the browser of a forwarded request may be on another machine."""
WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class SignInCodes:
    """One per gateway process; all have the same codes."""

    def __init__(
        self, clock: Callable[[], float] = time, memory: SharedMemory | None = None
    ) -> None:
        self._clock = clock
        self._memory = memory or SharedMemory()
        self._hashes = self._memory.array(np.uint8, (MAX_CODES, DIGEST_BYTES))
        self._issued = self._memory.array(np.uint64, MAX_CODES)
        """A number that grows with each code."""
        self._ends = self._memory.array(np.float64, MAX_CODES)

    def issue(self) -> str:
        """A new code, valid once and for ``VALID_SECONDS``."""
        code = secrets.token_urlsafe(CODE_BYTES)
        with self._memory.locked():
            place = int(np.argmin(self._issued))
            self._hashes[place] = np.frombuffer(digest(code), np.uint8)
            self._issued[place] = self._issued.max() + np.uint64(1)
            self._ends[place] = self._clock() + VALID_SECONDS
        return code

    def link(self, base_url: str) -> str:
        """A new one-time link to the gateway at ``base_url``."""
        return f"{base_url.rstrip('/')}{LINK}?{urlencode({'code': self.issue()})}"

    def is_valid(self, code: str) -> bool:
        """Whether ``redeem`` would accept the code. It stays valid."""
        return self._place(code) is not None

    def redeem(self, code: str) -> None:
        """Use the code up. ``Unauthorized`` if it is unknown, used or too old."""
        with self._memory.locked():
            place = self._place(code)
            if place is None:
                raise Unauthorized("this link has been used or is older than 15 minutes")
            self._ends[place] = 0.0

    def _place(self, code: str) -> int | None:
        """Of a valid code."""
        shown = digest(code)
        for place in np.flatnonzero(self._ends > self._clock()):
            if hmac.compare_digest(self._hashes[place].tobytes(), shown):
                return int(place)
        return None


def check_local(request: HTTPConnection) -> None:
    """``Forbidden`` unless a browser on this machine has sent the request, to an address of this machine.

    The second condition refuses pages of a foreign name that resolves to 127.0.0.1 (DNS rebinding).
    """
    host = _host_of(request.headers.get("host", ""))
    peer = request.client.host if request.client else ""
    forwarded = any(name in request.headers for name in FORWARDED)
    if forwarded or not is_loopback(peer) or not (host == "localhost" or is_loopback(host)):
        raise Forbidden(
            "a sign-in link works only in a browser on the machine that runs latent, at a loopback address such as "
            "127.0.0.1: sign in with a token instead"
        )


def _host_of(header: str) -> str:
    """The name or address in a ``Host`` header; empty if it is not valid."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def is_loopback(address: str) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return (mapped or parsed).is_loopback


def local_host(bind: str) -> str | None:
    """The loopback address at which a gateway bound to ``bind`` can be reached, if there is one."""
    host = WILDCARDS.get(bind, bind)
    return host if is_loopback(host) or host == "localhost" else None
