"""`kill -9` at every named point of exports, imports and backups: in the end all is as without it (DESIGN §12.2)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from latent_client import AsyncClient
from latent_core.domain.errors import Conflict
from latent_core.domain.job import JobState
from tests.chaos.test_failpoints import (
    KILLED,
    LEASE_SECONDS,
    SETTLE_SECONDS,
    CrashHarness,
    add,
    create,
    delete,
    idle,
)
from tests.support.harness.installation import eventually
from tests.support.servers.embedding_server import EmbeddingServer
from tests.support.servers.llm_server import LanguageModelServer

POINTS: Final = (
    "export.before_store",
    "export.after_store",
    "export.before_commit",
    "export.after_commit",
    "import.before_store",
    "import.after_store",
    "import.before_collection",
    "import.after_collection",
    "import.before_blob",
    "import.after_blob",
    "import.before_embedding",
    "import.before_vectors",
    "import.after_vectors",
    "import.before_commit",
    "import.after_commit",
    "import.before_postings",
    "import.after_postings",
    "import.before_finish",
    "import.after_finish",
)
MERGING: Final = (
    "import.before_blob",
    "import.before_vectors",
    "import.after_vectors",
    "import.before_commit",
    "import.after_commit",
    "import.before_finish",
    "import.after_finish",
)
"""Of these a merge leaves other traces: documents of its container are live meanwhile, and replaced."""
ALWAYS: Final = ("import.after_commit",)
"""Also tried where there is little time."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(
    install_root: Path, embedding_server: EmbeddingServer
) -> AsyncIterator[CrashHarness]:
    one = CrashHarness(
        install_root / "transfer-crashes",
        {
            "LLC_EMBED_BASE_URL": embedding_server.base_url,
            "LLC_EMBED_RATE_LIMIT_PER_MIN": "100000000",
            "LLC_LEASE_SECONDS": str(LEASE_SECONDS),
        },
        embedding_server,
        LanguageModelServer(),
    )
    await one.start()
    folder = install_root / "transfer-story"
    folder.mkdir()
    await create(one, "origin")
    await add(one, "origin", folder, "lamp.md", "# Lamps\n\nThe lamp is lit.\n")
    await add(one, "origin", folder, "birds.jsonl", '{"_id": "a", "text": "gulls"}\n')
    await one.stop()
    yield one
    await one.stop()


async def done(harness: CrashHarness, what: Any) -> dict[str, Any]:
    """Ask for a job and wait for its end, whoever dies meanwhile; what it answered."""
    queued = await harness.ask(what)
    job_id = queued.job_id

    async def ended() -> bool:
        job = await harness.ask(lambda client: client.job(job_id))
        assert job.state is not JobState.FAILED, job.cause
        return job.state is JobState.DONE

    await eventually(ended, seconds=SETTLE_SECONDS, what=f"job {job_id}")
    job = await harness.ask(lambda client: client.job(job_id))
    return job.result or {}


async def texts(harness: CrashHarness, container: str) -> list[str]:
    async def read(client: AsyncClient) -> list[str]:
        return sorted([c.text async for c in client.chunks(container)])

    return await harness.ask(read)


@pytest.mark.timeout(300)
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "point", [pytest.param(p, marks=() if p in ALWAYS else pytest.mark.slow) for p in POINTS]
)
async def test_a_crash_there_changes_nothing_in_the_end(
    point: str, harness: CrashHarness, tmp_path: Path
) -> None:
    operation = point.partition(".")[0]
    vectors = point != "import.before_embedding"
    file = tmp_path / "origin.zst"
    if operation == "import":
        await harness.start()
        await exported(harness, file, vectors=vectors)
        await harness.stop()
    harness.codes.clear()
    await harness.start(failpoint_name=point)
    try:
        match operation:
            case "export":
                await exported(harness, file, vectors=False)
            case _:
                name = point.replace(".", "-").replace("_", "-")
                await imported(harness, file, name)
                assert await texts(harness, name) == await texts(harness, "origin")
        await eventually(harness.died, seconds=SETTLE_SECONDS, what=f"the crash at {point}")
        assert harness.codes == [KILLED]
        report = await harness.ask(lambda client: client.doctor(deep=True))
        assert report.clean, report.model_dump()
    finally:
        await harness.stop()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("point", MERGING)
async def test_a_crash_in_a_merge_changes_nothing_in_the_end(
    point: str, harness: CrashHarness, tmp_path: Path
) -> None:
    """Documents that are there already are replaced, one that was deleted comes back, one of its own stays."""
    name = "merged-" + point.replace(".", "-").replace("_", "-")
    file = tmp_path / "origin.zst"
    await harness.start()
    await exported(harness, file, vectors=True)
    await create(harness, name)
    for own, text in (("lamp.md", "# Lamps\n\nThe lamp is out.\n"), ("own.md", "Our own.\n")):
        await add(harness, name, tmp_path, own, text)
    await add(harness, name, tmp_path, "birds.jsonl", '{"_id": "a", "text": "terns"}\n')
    await delete(harness, name, "birds.jsonl")
    await idle(harness)
    await harness.stop()
    harness.codes.clear()
    await harness.start(failpoint_name=point)
    try:

        async def merge(client: AsyncClient) -> Any:
            return await client.import_archive(
                file, container_id=name, merge=True, policy="replace"
            )

        await done(harness, merge)
        await eventually(harness.died, seconds=SETTLE_SECONDS, what=f"the crash at {point}")
        assert harness.codes == [KILLED]
        await idle(harness)
        assert await texts(harness, name) == sorted([*await texts(harness, "origin"), "Our own."])
        report = await harness.ask(lambda client: client.doctor(deep=True))
        assert report.clean, report.model_dump()
    finally:
        await harness.stop()


async def imported(harness: CrashHarness, file: Path, name: str) -> None:
    async def ask(client: AsyncClient) -> Any:
        return await client.import_archive(file, container_id=name)

    try:
        await done(harness, ask)
    except Conflict:  # asked for before, and only the answer was lost

        async def there() -> bool:
            return name in [c.id for c in await harness.ask(lambda client: client.containers())]

        await eventually(there, seconds=SETTLE_SECONDS, what=name)


async def exported(harness: CrashHarness, file: Path, *, vectors: bool) -> None:
    """Write the archive to ``file``; each of them holds something new, so that it is made."""
    await add(harness, "origin", file.parent, "note.txt", f"note for {file.parent}\n")

    async def ask(client: AsyncClient) -> Any:
        return await client.export("origin", vectors=vectors)

    answer = await harness.ask(ask)
    if answer.archive is None:
        archive_id = (await done(harness, lambda client: client.job(answer.job_id)))["archive_id"]
    else:
        archive_id = answer.archive.id

    async def fetch(client: AsyncClient) -> None:
        await client.download(await client.exported(archive_id), file)

    await harness.ask(fetch)
