"""The console without its modules until somebody opens a page: they are a sixth of a gateway's start."""

from __future__ import annotations

import asyncio
import re
from typing import Final

from fastapi import FastAPI
from starlette.datastructures import URLPath
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from latent_core.runtime.imports import quick_imports
from latent_core.runtime.load_once import LoadOnce

PATHS: Final = re.compile(r"/|/(?:console|login|logout)(?:/.*)?")


class ConsoleOnDemand(BaseRoute):
    """Stands for all routes of the console, adds them with the first request to one of them, and is gone."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._loading = LoadOnce(lambda: asyncio.to_thread(self._load))

    def install(self) -> None:
        self._app.router.routes.append(self)

    @override
    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        is_page = scope["type"] == "http" and PATHS.fullmatch(scope["path"]) is not None
        return (Match.FULL if is_page else Match.NONE), {}

    @override
    def url_path_for(self, name: str, /, **path_params: str) -> URLPath:
        raise NoMatchFound(name, path_params)

    @override
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._loading.get()
        if self in self._app.router.routes:
            self._app.router.routes.remove(self)
        await self._app.router(scope, receive, send)

    def _load(self) -> None:
        """In a thread, since it takes half a second. The routes come after this one, so nothing sees a part of them."""
        with quick_imports():
            from latent_gateway.console import site
        site.install(self._app)
