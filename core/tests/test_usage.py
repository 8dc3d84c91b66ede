"""Bytes that a principal uploads, counted by day."""

from __future__ import annotations

from latent_core.db import uploads
from latent_core.db.connection import Database


async def test_uploads_are_counted_by_day_and_by_whom(database: Database) -> None:
    async with database.transaction() as conn:
        await uploads.count_upload(conn, "agent:a", 10)
        await uploads.count_upload(conn, "agent:a", 5)
        await uploads.count_upload(conn, "agent:b", 1)
        assert await uploads.uploaded_today(conn, "agent:a") == 15
        await conn.execute("UPDATE uploaded_bytes SET day = day - 1 WHERE who = 'agent:a'")
        assert await uploads.uploaded_today(conn, "agent:a") == 0
        assert await uploads.forget_usage(conn) == 0
        await conn.execute("UPDATE uploaded_bytes SET day = day - 40 WHERE who = 'agent:a'")
        assert await uploads.forget_usage(conn) == 1
