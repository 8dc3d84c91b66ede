"""Web addresses in canonical form, which identifies a page."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import quote, urljoin, urlsplit

import idna
from typing_extensions import override

from latent_core.domain.errors import Forbidden, Invalid
from latent_core.domain.text import trouble

MAX_URL_BYTES: Final = 4096
DEFAULT_PORTS: Final = {"http": 80, "https": 443}

_PERCENT: Final = re.compile(r"%([0-9A-Fa-f]{2})?")
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_IN_PATH: Final = "/%:@!$&'()*+,;=-._~"
_IN_QUERY: Final = _IN_PATH + "?"
_LONGEST_HOST: Final = 253
_LONGEST_LABEL: Final = 63


@dataclass(frozen=True, slots=True)
class WebAddress:
    """``str()`` of it is canonical: two addresses that differ only in writing become one."""

    scheme: str
    host: str
    """ASCII in small letters; an IPv6 address without its brackets."""
    port: int
    target: str
    """Path and query, percent-encoded."""

    @classmethod
    def parse(cls, given: str) -> Self:
        """Parse an address; ``Invalid`` says why it is not a valid http or https address."""
        shown = given[:80]
        wrong = trouble(given)
        if wrong is not None:
            raise Invalid(f"the address {wrong}", uri=shown)
        try:
            parts = urlsplit(given.strip(" "))
            port = parts.port
        except ValueError as exc:
            raise Invalid(f"'{shown}' is not an address: {exc}", uri=shown) from exc
        if parts.scheme not in DEFAULT_PORTS:
            raise Invalid(f"'{shown}' must start with http:// or https://", uri=shown)
        if "@" in parts.netloc:
            raise Invalid(
                "the address contains a user name or a password: remove them", uri="(not shown)"
            )
        if port == 0:
            raise Invalid(f"'{shown}' has port 0, which cannot be used", uri=shown)
        if "[" in parts.netloc and ":" not in (parts.hostname or ""):
            raise Invalid(f"'{shown}' is not an IPv6 address", uri=shown)
        host = _host(parts.hostname or "", shown)
        query = f"?{_encoded(parts.query, _IN_QUERY)}" if parts.query else ""
        target = _without_dots(_encoded(parts.path, _IN_PATH)) + query
        address = cls(parts.scheme, host, port or DEFAULT_PORTS[parts.scheme], target)
        if len(str(address)) > MAX_URL_BYTES:
            raise Invalid(f"'{shown}…' has more than {MAX_URL_BYTES} bytes", uri=shown)
        return address

    @override
    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"

    @property
    def authority(self) -> str:
        """Host and port as in a ``Host`` header, without a default port."""
        default = self.port == DEFAULT_PORTS[self.scheme]
        return self._bracketed if default else f"{self._bracketed}:{self.port}"

    @property
    def origin(self) -> str:
        """Host and port, always with the port."""
        return f"{self._bracketed}:{self.port}"

    @property
    def last_segment(self) -> str:
        """The last part of the path, percent-encoded; may be empty."""
        return self.target.partition("?")[0].rpartition("/")[2]

    def join(self, reference: str) -> Self:
        """Resolve ``reference`` (a ``Location`` header) against this address; raises ``Invalid``."""
        try:
            return self.parse(urljoin(str(self), reference))
        except ValueError as exc:
            raise Invalid(f"'{reference[:80]}' is not an address: {exc}") from exc

    @property
    def _bracketed(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def check_port(address: WebAddress, allowed: Collection[str]) -> None:
    """Raise ``Forbidden`` unless the port is a default one or the origin is ``allowed``."""
    if address.port not in DEFAULT_PORTS.values() and address.origin not in allowed:
        raise Forbidden(
            f"pages are fetched from ports 80 and 443, not {address.port}; an operator can allow this server with "
            f"LLC_FETCH_ALLOW={address.origin}",
            origin=address.origin,
        )


def parse_origin(given: str) -> str:
    """``host:port`` in the canonical form of ``WebAddress.origin``; raises ``Invalid``."""
    host, colon, port = given.strip().rpartition(":")
    if not colon or not port.isdecimal() or set(host) & set("/?#\\"):
        raise Invalid(f"'{given[:80]}' is not host:port, such as wiki.example:8080")
    return WebAddress.parse(f"http://{host}:{port}/").origin


def _host(given: str, shown: str) -> str:
    if ":" in given:
        try:
            address = ipaddress.IPv6Address(given)
        except ValueError as exc:
            raise Invalid(f"'{shown}' is not an IPv6 address: {exc}", uri=shown) from exc
        if address.scope_id is not None:
            raise Invalid(f"'{shown}' contains a network interface: remove it", uri=shown)
        return address.compressed
    host = _ascii(given, shown).removesuffix(".")
    labels = host.split(".")
    if (
        not host
        or len(host) > _LONGEST_HOST
        or any(not label or len(label) > _LONGEST_LABEL for label in labels)
        or not all(character.isalnum() or character in "-_." for character in host)
    ):
        raise Invalid(f"'{shown}' has no valid host name", uri=shown)
    return host


def _ascii(host: str, shown: str) -> str:
    """The host in ASCII (IDNA 2008 after the mapping of UTS 46)."""
    if host.isascii():
        return host.lower()
    try:
        return idna.encode(host, uts46=True).decode("ascii").lower()
    except (idna.IDNAError, UnicodeError) as exc:
        raise Invalid(f"'{shown}' has no valid host name: {exc}", uri=shown) from exc


def _encoded(part: str, safe: str) -> str:
    """Percent-encoded once, in capitals, and only where it must be (RFC 3986 §6.2.2)."""
    return quote(_PERCENT.sub(_once, part), safe=safe)


def _once(match: re.Match[str]) -> str:
    if match[1] is None:
        return "%25"
    character = chr(int(match[1], 16))
    return character if character in _UNRESERVED else match[0].upper()


def _without_dots(path: str) -> str:
    """RFC 3986 §5.2.4; an empty path is the root."""
    kept: list[str] = []
    segments = path.split("/")[1:] or [""]
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in (".", ".."):
        kept.append("")
    return "/" + "/".join(kept)


def is_loopback(host: str) -> bool:
    """Whether ``host`` is a loopback address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
