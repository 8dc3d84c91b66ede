"""Where a change comes from: only the console's own pages may ask for one.

The cookie is ``SameSite=Strict``, so that another site's request carries none; this is the second lock, for
browsers that know better and for neighbours on the same site (another port of this machine).
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from fastapi import Request

from latent_core.domain.errors import Forbidden

SAFE: Final = frozenset({"GET", "HEAD"})


class ForeignOrigin(Forbidden):
    """A change that another site's page asks for."""


def check_origin(request: Request) -> None:
    """``ForeignOrigin`` unless a page of ours asks. Browsers name the origin of every POST."""
    if request.method in SAFE:
        return
    origins = request.headers.getlist("origin")
    host = request.headers.get("host", "").lower()
    # The scheme is not compared: behind a proxy that ends TLS ours is another than the browser's.
    if len(origins) != 1 or not host or _host_of(origins[0]) != host:
        raise ForeignOrigin(
            "this change was not asked for by a page of this console: open the console and try again there"
        )


def _host_of(origin: str) -> str | None:
    """With its port; None of what is no address at all."""
    try:
        return urlsplit(origin.lower()).netloc
    except ValueError:
        return None
