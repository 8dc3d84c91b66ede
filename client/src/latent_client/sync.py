"""The client for synchronous code: the same methods, run by an event loop in a separate thread."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from latent_client.client import AsyncClient
from latent_client.folder import ingest_file, sync_folder
from latent_client.pages import export_pages
from latent_client.recall import hybrid_search, retrieve_top_k, search_sources
from latent_client.transport import DEFAULT_URL

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncClient, P], T]:
    @functools.wraps(method)
    def call(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(method(self.asynchronous, *args, **kwargs))

    return call


def _iterating(
    method: Callable[Concatenate[AsyncClient, P], AsyncIterator[T]],
) -> Callable[Concatenate[SyncClient, P], Generator[T]]:
    @functools.wraps(method)
    def call(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> Generator[T]:
        return self.iterate(method(self.asynchronous, *args, **kwargs))

    return call


class SyncClient:
    """Each method blocks until the asynchronous client returns. Callbacks run in the thread of the event loop."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        token: str | None = None,
        *,
        timeout_seconds: float = 60.0,
        data_dir: Path | None = None,
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self.asynchronous = AsyncClient(
            url, token, timeout_seconds=timeout_seconds, data_dir=data_dir
        )
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="latent-client", daemon=True
        )
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of ``coroutine``. If the caller is interrupted, it is cancelled."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()  # no effect on a finished future

    def iterate(self, items: AsyncIterator[T]) -> Generator[T]:
        """The items, fetched one by one."""
        try:
            while True:
                try:
                    item = self.run(_next(items))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            self.run(_close(items))

    def close(self) -> None:
        self.run(self.asynchronous.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    containers = _blocking(AsyncClient.containers)
    describe = _blocking(AsyncClient.describe)
    create = _blocking(AsyncClient.create)
    update = _blocking(AsyncClient.update)
    plan = _blocking(AsyncClient.plan)
    store_sizes = _blocking(AsyncClient.store_sizes)
    delete = _blocking(AsyncClient.delete)
    upload = _blocking(AsyncClient.upload)
    upload_in_parts = _blocking(AsyncClient.upload_in_parts)
    create_resumable_upload = _blocking(AsyncClient.create_resumable_upload)
    resumable_upload = _blocking(AsyncClient.resumable_upload)
    append_to_upload = _blocking(AsyncClient.append_to_upload)
    delete_resumable_upload = _blocking(AsyncClient.delete_resumable_upload)
    add = _blocking(AsyncClient.add)
    listing = _blocking(AsyncClient.listing)
    sources = _blocking(AsyncClient.sources)
    forget_source = _blocking(AsyncClient.forget_source)
    match_sources = _blocking(AsyncClient.match_sources)
    create_source = _blocking(AsyncClient.create_source)
    take_over_source = _blocking(AsyncClient.take_over_source)
    documents = _iterating(AsyncClient.documents)
    document = _blocking(AsyncClient.document)
    outline = _blocking(AsyncClient.outline)
    delete_document = _blocking(AsyncClient.delete_document)
    trash = _blocking(AsyncClient.trash)
    restore_document = _blocking(AsyncClient.restore_document)
    chunks = _iterating(AsyncClient.chunks)
    chunk = _blocking(AsyncClient.chunk)
    chunk_sizes = _blocking(AsyncClient.chunk_sizes)
    page = _blocking(AsyncClient.page)
    pages = _iterating(AsyncClient.pages)
    original = _blocking(AsyncClient.original)
    page_pdf = _blocking(AsyncClient.page_pdf)
    page_boxes = _blocking(AsyncClient.page_boxes)
    reingest_documents = _blocking(AsyncClient.reingest_documents)
    delete_documents = _blocking(AsyncClient.delete_documents)
    originals = _blocking(AsyncClient.originals)
    fetch = _blocking(AsyncClient.fetch)
    ask = _blocking(AsyncClient.ask)
    ask_stream = _iterating(AsyncClient.ask_stream)
    search = _blocking(AsyncClient.search)
    doc_search = _blocking(AsyncClient.doc_search)
    saved_searches = _blocking(AsyncClient.saved_searches)
    save_search = _blocking(AsyncClient.save_search)
    delete_saved_search = _blocking(AsyncClient.delete_saved_search)
    hybrid_search = _blocking(hybrid_search)
    retrieve_top_k = _blocking(retrieve_top_k)
    search_sources = _blocking(search_sources)
    jobs = _iterating(AsyncClient.jobs)
    job = _blocking(AsyncClient.job)
    job_groups = _iterating(AsyncClient.job_groups)
    job_group = _blocking(AsyncClient.job_group)
    cancel = _blocking(AsyncClient.cancel)
    requeue = _blocking(AsyncClient.requeue)
    requeue_failed = _blocking(AsyncClient.requeue_failed)
    events = _iterating(AsyncClient.events)
    wait = _blocking(AsyncClient.wait)
    create_token = _blocking(AsyncClient.create_token)
    tokens = _iterating(AsyncClient.tokens)
    token = _blocking(AsyncClient.token)
    token_calls = _blocking(AsyncClient.token_calls)
    token_changes = _iterating(AsyncClient.token_changes)
    revoke_token = _blocking(AsyncClient.revoke_token)
    audit = _iterating(AsyncClient.audit)
    set_state = _blocking(AsyncClient.set_state)
    models = _blocking(AsyncClient.models)
    installation = _blocking(AsyncClient.installation)
    sign_in_link = _blocking(AsyncClient.sign_in_link)
    restore_installation = _blocking(AsyncClient.restore_installation)
    evaluate = _blocking(AsyncClient.evaluate)
    eval_runs = _blocking(AsyncClient.eval_runs)
    eval_history = _blocking(AsyncClient.eval_history)
    eval_run = _blocking(AsyncClient.eval_run)
    eval_difference = _blocking(AsyncClient.eval_difference)
    golden_list = _blocking(AsyncClient.golden_list)
    replace_golden = _blocking(AsyncClient.replace_golden)
    clear_golden = _blocking(AsyncClient.clear_golden)
    add_golden = _blocking(AsyncClient.add_golden)
    change_golden = _blocking(AsyncClient.change_golden)
    remove_golden = _blocking(AsyncClient.remove_golden)
    logged_queries = _blocking(AsyncClient.logged_queries)
    clear_logged_queries = _blocking(AsyncClient.clear_logged_queries)
    export = _blocking(AsyncClient.export)
    exported = _blocking(AsyncClient.exported)
    import_archive = _blocking(AsyncClient.import_archive)
    backups = _blocking(AsyncClient.backups)
    backup = _blocking(AsyncClient.backup)
    backup_link = _blocking(AsyncClient.backup_link)
    delete_backup = _blocking(AsyncClient.delete_backup)
    verify_backup = _blocking(AsyncClient.verify_backup)
    restore_backup = _blocking(AsyncClient.restore_backup)
    download = _blocking(AsyncClient.download)
    download_original = _blocking(AsyncClient.download_original)
    refresh = _blocking(AsyncClient.refresh)
    rollback = _blocking(AsyncClient.rollback)
    pdf_status = _iterating(AsyncClient.pdf_status)
    pdf_totals = _blocking(AsyncClient.pdf_totals)
    process_selected = _blocking(AsyncClient.process_selected)
    follow_selected = _iterating(AsyncClient.follow_selected)
    understanding = _iterating(AsyncClient.understanding)
    understanding_totals = _blocking(AsyncClient.understanding_totals)
    find_pages = _iterating(AsyncClient.find_pages)
    page_extraction = _blocking(AsyncClient.page_extraction)
    extract = _blocking(AsyncClient.extract)
    summarise = _iterating(AsyncClient.summarise)
    summary = _blocking(AsyncClient.summary)
    drop_generated = _blocking(AsyncClient.drop_generated)
    follow_extraction = _iterating(AsyncClient.follow_extraction)
    status = _blocking(AsyncClient.status)
    settings = _blocking(AsyncClient.settings)
    providers = _blocking(AsyncClient.providers)
    test_model = _blocking(AsyncClient.test_model)
    doctor = _blocking(AsyncClient.doctor)
    healthy = _blocking(AsyncClient.healthy)
    readiness = _blocking(AsyncClient.readiness)
    metrics = _blocking(AsyncClient.metrics)
    tools = _blocking(AsyncClient.tools)
    ensure_index_up_to_date = _blocking(AsyncClient.ensure_index_up_to_date)
    export_pages = _blocking(export_pages)
    sync_folder = _blocking(sync_folder)
    ingest_file = _blocking(ingest_file)


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


async def _close(items: AsyncIterator[Any]) -> None:
    if isinstance(items, AsyncGenerator):
        await items.aclose()
