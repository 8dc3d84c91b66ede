"""Query parameters that a route does not have are refused: a mistyped filter would otherwise return everything.

All routes of the API, the schema and blobs have this check (``app.create_app``). Pages of the console and ``/mcp``
ignore other parameters: chat programs append their own to a page's address, and clients of MCP to the server's.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from typing import Final

from fastapi import Depends, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from latent_core.domain.errors import Invalid
from latent_core.domain.filters.values import visible

MAX_NAME_CHARS: Final = 80


class PrefixedParameters:
    """A dependency: all parameters whose names begin with ``prefix``, as pairs in their order."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    async def __call__(self, request: Request) -> list[tuple[str, str]]:
        given = request.query_params.multi_items()
        return [
            (name.removeprefix(self.prefix), value)
            for name, value in given
            if name.startswith(self.prefix)
        ]


async def _check(request: Request) -> None:
    """``Invalid`` for a parameter that the route does not have."""
    if not request.scope["query_string"]:
        return
    names, prefixes = _known(request.scope["route"])
    for name in request.query_params:
        if name not in names and not name.startswith(prefixes):
            raise Invalid(
                f"'{visible(name, MAX_NAME_CHARS)}' is not a query parameter of this route; "
                f"{suggestion(name, names, prefixes)}",
                field=name[:MAX_NAME_CHARS],
            )


KNOWN_ONLY: Final = Depends(_check)


def _known(route: APIRoute) -> tuple[frozenset[str], tuple[str, ...]]:
    """Names of the route's parameters, and prefixes of names."""
    parts = list(_all_parts(route.dependant))
    names = frozenset(field.alias for part in parts for field in part.query_params)
    calls = [part.call for part in parts]
    return names, tuple(call.prefix for call in calls if isinstance(call, PrefixedParameters))


def _all_parts(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    for part in dependant.dependencies:
        yield from _all_parts(part)


def suggestion(name: str, known: Collection[str], prefixes: Collection[str] = ()) -> str:
    """The known name that is meant, else all of them."""
    near = difflib.get_close_matches(name[:MAX_NAME_CHARS], sorted(known), n=1)
    if near:
        return f"did you mean '{near[0]}'?"
    listed = [*sorted(known), *(f"{prefix}<name>" for prefix in prefixes)]
    return f"known are {', '.join(listed)}" if listed else "it has none"
