"""The nearest name for a container that is not found: only among those that the caller may read."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from latent_core.domain.errors import LatentError, NotFound
from latent_core.search.readable import Readable
from latent_gateway.auth import access
from latent_gateway.mcp.calls import Scope, ToolCall


async def hinted(call: ToolCall, error: LatentError) -> LatentError:
    """The error, with the readable container that was probably meant."""
    given = error.details.get("container_id")
    if not isinstance(error, NotFound) or given is None or Scope.READ not in call.caller.scopes:
        return error
    async with call.shared.stack.db.reading() as conn:
        near = nearest(str(given), await access.all_readable(conn, call.caller))
    if near is None:
        return error
    return NotFound(f"{error.message}. Did you mean '{near}'?", **error.details)


def nearest(given: str, readable: Iterable[Readable]) -> str | None:
    """The id of the container whose id or name resembles ``given``."""
    known = {name.lower(): c.id for c in readable for name in (c.manifest.name, c.id)}
    near = difflib.get_close_matches(given.strip().lower(), known, n=1)
    return known[near[0]] if near else None
