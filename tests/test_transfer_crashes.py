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
from latent_core.testing.embedding_server import EmbeddingServer
from tests.harness import eventually
from tests.test_crash_points import (
    KILLED,
    LEASE_SECONDS,
    SETTLE_SECONDS,
    House,
    add,
    create,
    delete,
    idle,
)

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
ALWAYS: Final = ("export.after_store", "import.after_commit")
"""Also tried where there is little time."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(install_root: Path, embedding_server: EmbeddingServer) -> AsyncIterator[House]:
    one = House(
        install_root / "transfer-crashes",
        {
            "LLC_EMBED_BASE_URL": embedding_server.base_url,
            "LLC_EMBED_RATE_LIMIT_PER_MIN": "100000000",
            "LLC_LEASE_SECONDS": str(LEASE_SECONDS),
        },
        embedding_server,
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


async def done(house: House, what: Any) -> dict[str, Any]:
    """Ask for a job and wait for its end, whoever dies meanwhile; what it answered."""
    queued = await house.ask(what)
    job_id = queued.job_id

    async def ended() -> bool:
        job = await house.ask(lambda client: client.job(job_id))
        assert job.state is not JobState.FAILED, job.cause
        return job.state is JobState.DONE

    await eventually(ended, seconds=SETTLE_SECONDS, what=f"job {job_id}")
    job = await house.ask(lambda client: client.job(job_id))
    return job.result or {}


async def texts(house: House, container: str) -> list[str]:
    async def read(client: AsyncClient) -> list[str]:
        return sorted([c.text async for c in client.chunks(container)])

    return await house.ask(read)


@pytest.mark.timeout(300)
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "point", [pytest.param(p, marks=() if p in ALWAYS else pytest.mark.slow) for p in POINTS]
)
async def test_a_crash_there_changes_nothing_in_the_end(
    point: str, house: House, tmp_path: Path
) -> None:
    operation = point.partition(".")[0]
    vectors = point != "import.before_embedding"
    file = tmp_path / "origin.zst"
    if operation == "import":
        await house.start()
        await exported(house, file, vectors=vectors)
        await house.stop()
    house.codes.clear()
    await house.start(crash_at=point)
    try:
        match operation:
            case "export":
                await exported(house, file, vectors=False)
            case _:
                name = point.replace(".", "-").replace("_", "-")
                await imported(house, file, name)
                assert await texts(house, name) == await texts(house, "origin")
        await eventually(house.died, seconds=SETTLE_SECONDS, what=f"the crash at {point}")
        assert house.codes == [KILLED]
        report = await house.ask(lambda client: client.doctor(deep=True))
        assert report.clean, report.model_dump()
    finally:
        await house.stop()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("point", MERGING)
async def test_a_crash_in_a_merge_changes_nothing_in_the_end(
    point: str, house: House, tmp_path: Path
) -> None:
    """Documents that are there already are replaced, one that was deleted comes back, one of its own stays."""
    name = "merged-" + point.replace(".", "-").replace("_", "-")
    file = tmp_path / "origin.zst"
    await house.start()
    await exported(house, file, vectors=True)
    await create(house, name)
    for own, text in (("lamp.md", "# Lamps\n\nThe lamp is out.\n"), ("own.md", "Our own.\n")):
        await add(house, name, tmp_path, own, text)
    await add(house, name, tmp_path, "birds.jsonl", '{"_id": "a", "text": "terns"}\n')
    await delete(house, name, "birds.jsonl")
    await idle(house)
    await house.stop()
    house.codes.clear()
    await house.start(crash_at=point)
    try:

        async def merge(client: AsyncClient) -> Any:
            return await client.import_archive(
                file, container_id=name, merge=True, policy="replace"
            )

        await done(house, merge)
        await eventually(house.died, seconds=SETTLE_SECONDS, what=f"the crash at {point}")
        assert house.codes == [KILLED]
        await idle(house)
        assert await texts(house, name) == sorted([*await texts(house, "origin"), "Our own."])
        report = await house.ask(lambda client: client.doctor(deep=True))
        assert report.clean, report.model_dump()
    finally:
        await house.stop()


async def imported(house: House, file: Path, name: str) -> None:
    async def ask(client: AsyncClient) -> Any:
        return await client.import_archive(file, container_id=name)

    try:
        await done(house, ask)
    except Conflict:  # asked for before, and only the answer was lost

        async def there() -> bool:
            return name in [c.id for c in await house.ask(lambda client: client.containers())]

        await eventually(there, seconds=SETTLE_SECONDS, what=name)


async def exported(house: House, file: Path, *, vectors: bool) -> None:
    """Write the archive to ``file``; each of them holds something new, so that it is made."""
    await add(house, "origin", file.parent, "note.txt", f"note for {file.parent}\n")

    async def ask(client: AsyncClient) -> Any:
        return await client.export("origin", vectors=vectors)

    answer = await house.ask(ask)
    if answer.archive is None:
        archive_id = (await done(house, lambda client: client.job(answer.job_id)))["archive_id"]
    else:
        archive_id = answer.archive.id

    async def fetch(client: AsyncClient) -> None:
        await client.download(await client.exported(archive_id), file)

    await house.ask(fetch)
