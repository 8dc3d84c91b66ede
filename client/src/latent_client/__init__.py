"""Typed client of the HTTP API of Latent Containers.

async with AsyncClient("http://127.0.0.1:7801", token) as client:
    answer = await client.search(SearchRequest(containers=["art"], query="Blue Rider", top_k=5))

A name is imported when it is used first: a command that only searches does not load what syncs folders.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from latent_client.client import AsyncClient
    from latent_client.errors import GatewayUnreachable
    from latent_client.folder import (
        FolderPlan,
        FolderProgress,
        FolderReport,
        IndexReport,
        SyncConsent,
        ensure_index_up_to_date,
        ingest_file,
        plan_folder,
        sync_folder,
    )
    from latent_client.pages import PagesReport, export_pages
    from latent_client.recall import (
        PageFound,
        Passage,
        hybrid_search,
        retrieve_top_k,
        search_sources,
    )
    from latent_client.searches import SearchClient
    from latent_client.sync import SyncClient

MODULES: Final = {
    "AsyncClient": "client",
    "FolderPlan": "folder",
    "FolderProgress": "folder",
    "FolderReport": "folder",
    "GatewayUnreachable": "errors",
    "IndexReport": "folder",
    "PageFound": "recall",
    "PagesReport": "pages",
    "Passage": "recall",
    "SearchClient": "searches",
    "SyncClient": "sync",
    "SyncConsent": "folder",
    "ensure_index_up_to_date": "folder",
    "export_pages": "pages",
    "hybrid_search": "recall",
    "ingest_file": "folder",
    "plan_folder": "folder",
    "retrieve_top_k": "recall",
    "search_sources": "recall",
    "sync_folder": "folder",
}
"""Public name to its module; the test of the client compares them with ``__all__``."""

__all__ = [
    "AsyncClient",
    "FolderPlan",
    "FolderProgress",
    "FolderReport",
    "GatewayUnreachable",
    "IndexReport",
    "PageFound",
    "PagesReport",
    "Passage",
    "SearchClient",
    "SyncClient",
    "SyncConsent",
    "ensure_index_up_to_date",
    "export_pages",
    "hybrid_search",
    "ingest_file",
    "plan_folder",
    "retrieve_top_k",
    "search_sources",
    "sync_folder",
]


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
