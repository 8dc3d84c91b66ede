"""The HTTP surface of latent-containers, typed.

async with AsyncClient("http://127.0.0.1:7801", token) as client:
    answer = await client.search(SearchRequest(containers=["art"], query="Blue Rider", top_k=5))
"""

from latent_client.client import AsyncClient
from latent_client.errors import Unreachable
from latent_client.folder import FolderProgress, FolderReport, ingest_file, sync_folder
from latent_client.sync import SyncClient

__all__ = [
    "AsyncClient",
    "FolderProgress",
    "FolderReport",
    "SyncClient",
    "Unreachable",
    "ingest_file",
    "sync_folder",
]
