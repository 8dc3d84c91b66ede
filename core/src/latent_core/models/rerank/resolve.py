"""The ``Reranker`` interface, and the choice of a reranker by a container's ``retrieval.rerank.provider``.

api                   the server at LLC_RERANK_API_URL
local                 the cross-encoder in LLC_RERANK_FOLDER, else the one that was installed last (``models.store``)
<provider>/<model>    a model of a provider (``models.providers.registry``)
none                  the default: LLC_RERANK_PROVIDER, else the configured one of the first two, the server first
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from latent_core.domain.errors import Invalid, Misconfigured, Unavailable
from latent_core.models.providers.entry import Kind
from latent_core.models.providers.registry import Providers
from latent_core.models.rerank.api import ApiReranker, Dialect, RerankEndpoint
from latent_core.models.rerank.installed import InstalledRerankers
from latent_core.models.rerank.local import LocalReranker
from latent_core.models.store.layout import ModelStore
from latent_core.settings import Settings


class Reranker(Protocol):
    """Scores query and text together, which is slower and better than comparing their vectors."""

    @property
    def name(self) -> str:
        """For issues and logs; contains no secret and no path of the server."""
        ...

    async def rerank(
        self, query: str, texts: Sequence[str], deadline: float
    ) -> Sequence[float | None]:
        """A finite score per text, in the order of the texts: higher is more relevant to ``query``. None for a text
        that was not scored in time; at least one has a score.

        Scores are comparable within one call only. Neither ``query`` nor a text is blank. ``deadline`` is in the
        event loop's time: ``TimedOut`` when it passes. Other errors are ``RateLimited`` and ``Unavailable``
        (transient) and ``Invalid`` (permanent).
        """
        ...

    async def close(self) -> None: ...


class NoReranker(Unavailable):
    """The installation has no reranker, and no manifest names one: a search keeps its fused order."""


Provider = str
"""Of a manifest, as above."""
DIALECTS: Final = {
    Kind.COHERE: Dialect.COHERE,
    Kind.JINA: Dialect.JINA,
    Kind.VOYAGE: Dialect.VOYAGE,
    Kind.VLLM: Dialect.VLLM,
    Kind.TEI: Dialect.TEI,
}
"""Kinds of providers that have rerankers."""

_API_MISSING = "no rerank server is configured: set LLC_RERANK_API_URL"
_INSTALL = (
    "install a cross-encoder, for example: latent models add cross-encoder/ms-marco-MiniLM-L6-v2"
)
_LOCAL_MISSING = f"no local rerank model is configured: set LLC_RERANK_FOLDER, or {_INSTALL}"


@dataclass(frozen=True, slots=True)
class Rerankers:
    api: ApiReranker | None = None
    local: LocalReranker | None = None
    default: Provider | None = None
    """As configured; ``none`` turns reranking off for all manifests and requests."""
    providers: Providers = field(default_factory=lambda: Providers(()))
    installed: InstalledRerankers | None = None
    _of_providers: dict[str, ApiReranker] = field(default_factory=dict)
    """Those that were used, by name."""

    @classmethod
    def of(cls, settings: Settings, store: ModelStore | None = None) -> Rerankers:
        """The configured rerankers, not loaded yet; ``Invalid`` names an unusable setting. ``store``: of installed
        models."""
        if settings.rerank_provider == "none":
            return cls(default="none")
        if settings.rerank_provider == "api" and not settings.rerank_api_url:
            raise Invalid(f"LLC_RERANK_PROVIDER is api, but {_API_MISSING}")
        installed = InstalledRerankers(store) if store is not None else None
        there = settings.rerank_folder or (installed and installed.newest())
        if settings.rerank_provider == "local" and not there:
            raise Invalid(f"LLC_RERANK_PROVIDER is local, but {_LOCAL_MISSING}")
        made = cls(
            _api(settings),
            _local(settings),
            settings.rerank_provider,
            Providers.of(settings),
            installed,
        )
        made.check(settings.rerank_provider or "none", "LLC_RERANK_PROVIDER")
        return made

    def check(self, name: str, where: str = "retrieval.rerank.provider") -> None:
        """``Invalid`` if ``name`` is a model of no provider, or of one without rerankers."""
        if "/" not in name:
            return
        found = self.providers.find(name)
        if found is None:
            why = self.providers.unknown(name) or f"'{name}' names no reranker"
            raise Invalid(f"{where}: {why}")
        if found.provider.kind not in DIALECTS:
            kinds = ", ".join(sorted(DIALECTS))
            raise Invalid(
                f"{where}: the provider '{found.provider.name}' is of kind {found.provider.kind.value}, which has no"
                f" rerankers; kinds with rerankers are {kinds}"
            )

    def named(self, provider: Provider = "none") -> Reranker:
        """The reranker of a manifest's ``provider``; without one, ``Unavailable`` names the setting."""
        if self.default == "none":
            raise NoReranker("reranking is turned off on this server: LLC_RERANK_PROVIDER is none")
        chosen = provider if provider != "none" else self.default
        if chosen == "api":
            return _there(self.api, _API_MISSING)
        if chosen is not None and "/" in chosen:
            return self._of_provider(chosen)
        if chosen == "local":
            return _there(self._here(), _LOCAL_MISSING)
        if (found := self.api or self._here()) is None:
            raise NoReranker(
                f"no reranker is configured: set LLC_RERANK_API_URL or LLC_RERANK_FOLDER, or {_INSTALL}"
            )
        return found

    def _here(self) -> LocalReranker | None:
        return self.local or (self.installed.newest() if self.installed else None)

    def offered(self, provider: Provider = "none") -> bool:
        """Whether ``named`` would find one."""
        try:
            self.named(provider)
        except Unavailable:
            return False
        return True

    def _of_provider(self, name: str) -> ApiReranker:
        if name not in self._of_providers:
            try:
                self.check(name)
                self._of_providers[name] = ApiReranker(_endpoint(self.providers, name))
            except Invalid as exc:
                raise Misconfigured(exc.message) from exc
        return self._of_providers[name]

    async def close(self) -> None:
        for reranker in (self.api, self.local, *self._of_providers.values()):
            if reranker is not None:
                await reranker.close()
        if self.installed is not None:
            await self.installed.close()


def _there(reranker: Reranker | None, missing: str) -> Reranker:
    if reranker is None:
        raise Unavailable(missing)
    return reranker


def _api(settings: Settings) -> ApiReranker | None:
    if not settings.rerank_api_url:
        return None
    named = settings.rerank_dialect
    return ApiReranker(
        RerankEndpoint(
            settings.rerank_api_url,
            settings.rerank_api_key,
            settings.rerank_model,
            None if named == "auto" else Dialect(named),
        )
    )


def _endpoint(providers: Providers, name: str) -> RerankEndpoint:
    found = providers.find(name)
    if found is None:
        raise Misconfigured(f"there is no provider of the reranker {name}")
    provider = found.provider
    if (missing := provider.missing()) is not None:
        raise Misconfigured(f"the reranker {name} {missing}")
    return RerankEndpoint(
        provider.base_url or "",
        provider.secret(),
        found.model,
        DIALECTS[provider.kind],
        whole_address=False,
        setting=provider.address_setting,
        key_setting=provider.key_setting,
        others="the model's name and the kind of the provider",
    )


def _local(settings: Settings) -> LocalReranker | None:
    return None if settings.rerank_folder is None else LocalReranker(settings.rerank_folder)
