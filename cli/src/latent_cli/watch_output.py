"""``latent ingest --watch``: prints one line per change until interrupted."""

from __future__ import annotations

import asyncio
import signal
from datetime import datetime

from rich.console import Console

from latent_cli.output import amount, emit, safe
from latent_cli.progress import IngestBars
from latent_client import AsyncClient
from latent_client.folder_watch import WatchChange, WatchEvent, WatchTarget, watch_folder

MARKS = {
    WatchChange.SENT: "+",
    WatchChange.DELETED: "-",
    WatchChange.SKIPPED: "!",
    WatchChange.FAILED: "!",
    WatchChange.TROUBLE: "!",
}


class WatchOutput:
    """Prints the events of a watch on a console or as JSON lines."""

    def __init__(self, console: Console, bars: IngestBars, *, as_json: bool) -> None:
        self._console = console
        self._bars = bars
        """Progress bars of the first sync."""
        self._as_json = as_json

    async def run(self, client: AsyncClient, watched: WatchTarget) -> None:
        """Watch until SIGINT or SIGTERM."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        try:
            progress = self._bars.show_folder
            await watch_folder(client, watched, self.show, stop, on_progress=progress)
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
        if not self._as_json:
            self._console.print("stopped; jobs of sent files continue, see `latent jobs list`")

    def show(self, event: WatchEvent) -> None:
        self._bars.end()
        if self._as_json:
            emit(event.model_dump(mode="json", exclude_none=True), line=True)
            return
        at = datetime.now().astimezone().strftime("%H:%M:%S")
        self._console.print(safe(f"{at} {MARKS.get(event.change, ' ')} {format_event(event)}"))


def format_event(event: WatchEvent) -> str:
    """An event as one line."""
    about = " ".join(part for part in (event.change.value, event.path) if part)
    match event.change:
        case WatchChange.SYNCED if event.report is not None:
            report = event.report
            return (
                f"in step: {amount(report.files, 'file')}, {len(report.added)} sent, "
                f"{report.unchanged} unchanged, {len(report.deleted)} deleted"
            )
        case WatchChange.SENT:
            return f"{about} (job {event.job_id})"
        case WatchChange.INDEXED:
            return f"searchable: {amount(event.count or 0, 'document')}"
        case WatchChange.UNREACHABLE:
            return f"waiting for the gateway: {event.message}"
        case WatchChange.BACK:
            return "the gateway answers again"
    return f"{about}: {event.message}" if event.message else about
