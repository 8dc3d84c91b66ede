"""The audit trail: whose lines are whose to read."""

from __future__ import annotations

from latent_core.db import audit
from latent_core.db.audit import AuditQuery
from latent_core.db.connection import Connection, Database

CONTAINER = "INSERT INTO containers (id, manifest, etag) VALUES (%(id)s, '{}', 'e')"
EVERYTHING = AuditQuery(before=2**62, limit=100)


async def note(
    conn: Connection, container_id: str | None, action: str, by: str = "local:you"
) -> None:
    await audit.note(
        conn, principal=by, action=action, container_id=container_id, object_="x", request_id="r1"
    )


async def test_lines_of_containers_are_newest_first_a_page_at_a_time(database: Database) -> None:
    async with database.transaction() as conn:
        for container_id in ("notes", "art", "others"):
            await conn.execute(CONTAINER, {"id": container_id})
        for number in range(12):
            await note(conn, ("notes", "art", "others")[number % 3], f"document.{number}")
        seen: list[str] = []
        before = 2**62
        while lines := await audit.of_containers(conn, ["notes", "art"], AuditQuery(before, 3)):
            seen += [line.action for line in lines]
            before = lines[-1].id
    assert seen == [f"document.{n}" for n in range(11, -1, -1) if n % 3 != 2]


async def test_lines_are_filtered_by_principal_and_action_prefix(
    database: Database,
) -> None:
    async with database.transaction() as conn:
        await conn.execute(CONTAINER, {"id": "notes"})
        await note(conn, "notes", "document.add", "agent:a")
        await note(conn, "notes", "document.delete", "agent:b")
        await note(conn, "notes", "container.apply", "agent:a")
        query = AuditQuery(2**62, 9, principal="agent:a", action="document.")
        lines = await audit.of_containers(conn, ["notes"], query)
        whole = await audit.whole(conn, ["notes"], None, query)
    assert [line.action for line in lines] == ["document.add"]
    assert whole == lines


async def test_who_makes_a_container_anew_does_not_read_what_happened_to_the_one_before(
    database: Database,
) -> None:
    async with database.transaction() as conn:
        await note(conn, "secret", "document.add")
    async with database.transaction() as conn:
        await conn.execute(CONTAINER, {"id": "secret"})
        await note(conn, "secret", "container.create")
        lines = await audit.of_containers(conn, ["secret"], EVERYTHING)
    assert [line.action for line in lines] == ["container.create"]


async def test_the_whole_trail_leaves_out_what_is_there_and_somebody_elses(
    database: Database,
) -> None:
    async with database.transaction() as conn:
        for container_id in ("mine", "theirs"):
            await conn.execute(CONTAINER, {"id": container_id})
            await note(conn, container_id, "container.create")
        await note(conn, "gone", "container.delete")
        await note(conn, None, "token.create")
        lines = await audit.whole(conn, ["mine"], None, EVERYTHING)
        theirs = await audit.whole(conn, ["mine"], "theirs", EVERYTHING)
        nothing = await audit.whole(conn, ["mine"], "never-was", EVERYTHING)
        gone = await audit.whole(conn, ["mine"], "gone", EVERYTHING)
    assert [line.container_id for line in lines] == [None, "gone", "mine"]
    assert theirs == nothing == []
    assert [line.action for line in gone] == ["container.delete"]
