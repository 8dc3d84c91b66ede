"""``latent samples``"""

from __future__ import annotations

from typing import Final

from latent_cli.ingest_output import show_report
from latent_cli.ingestion import FolderSource, Ingestion, IngestReport
from latent_cli.jobs_output import WAIT_SECONDS, exit_for, interruptible
from latent_cli.options import Json, command_app
from latent_cli.output import answers, emit
from latent_cli.progress import IngestBars
from latent_cli.sample_documents import sample_folder
from latent_cli.session import ask
from latent_client import AsyncClient, SyncConsent
from latent_core.domain.manifest.model import Manifest
from latent_core.domain.manifest.templates import golden_queries, template

app = command_app()

TEMPLATE: Final = "samples"
FOLDER: Final = "lighthouse"
QUESTION: Final = "what to do when mercury is spilled on the floor"


@app.command()
def samples(as_json: Json = False) -> None:
    """Create the container `samples` and fill it with the handbook of a lighthouse museum.

    Its golden queries are installed with it, for `latent eval samples`. A second call changes nothing. `latent container delete samples --yes` removes it.
    """
    manifest = template(TEMPLATE).manifest
    with sample_folder(FOLDER) as folder, IngestBars() as bars:
        # The folder is the package's: another release has it elsewhere, and it may be taken over unasked.
        consent = SyncConsent(take_over=True, allow_deletions=True)
        ingestion = Ingestion(manifest.id, bars, delete_vanished=True, consent=consent)
        sources = [FolderSource(folder, FOLDER)]

        async def work(client: AsyncClient) -> tuple[bool, IngestReport]:
            created = await _created(client, manifest)
            return created, await ingestion.run(client, sources, WAIT_SECONDS)

        with interruptible(ingestion.remark, bars):
            created, report = ask(work)
    if as_json:
        emit(report)
    else:
        console = answers()
        if created:
            console.print(f"created '{manifest.id}'")
        show_report(console, report)
        console.print(
            f"try: latent search '{QUESTION}' -c {manifest.id}; latent eval {manifest.id}"
        )
    exit_for(report.jobs)


async def _created(client: AsyncClient, manifest: Manifest) -> bool:
    """Create the container unless it is there; returns whether it was created."""
    if manifest.id in {container.id for container in await client.containers()}:
        return False
    await client.create(manifest, golden=golden_queries(TEMPLATE))
    return True
