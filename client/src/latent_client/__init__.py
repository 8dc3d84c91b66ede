"""Typed client of the HTTP API of Latent Containers.

async with AsyncClient("http://127.0.0.1:7801", token) as client:
    answer = await client.search(SearchRequest(containers=["art"], query="Blue Rider", top_k=5))
"""

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
from latent_client.sync import SyncClient

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
