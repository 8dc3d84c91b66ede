"""The console: pages at ``/`` that use the same functions as the API (docs/console.md)."""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI

from latent_core.domain.errors import NotFound
from latent_gateway.console import (
    container,
    document,
    jobs,
    overview,
    search,
    sign_in,
    sign_in_link,
    uploads,
    view,
)
from latent_gateway.console.routing import pages

MODULES: Final = (view, sign_in, sign_in_link, overview, search, container, document, jobs, uploads)
rest = pages()


@rest.get("/console/{path:path}")
async def nowhere(path: str) -> None:
    """An unknown address below the console shows an error page."""
    raise NotFound(f"the console has no page '{path[:120]}'")


def install(app: FastAPI) -> None:
    """Add the console's routes. The last one catches unknown addresses."""
    for module in MODULES:
        app.include_router(module.router)
    app.include_router(rest)
