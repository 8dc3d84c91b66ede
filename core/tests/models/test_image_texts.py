"""Texts of pictures that were searched by: the latest reading counts, and old ones go."""

from __future__ import annotations

from datetime import timedelta

from latent_core.db.connection import Database
from latent_core.db.documents import image_texts

SHA, OTHER = "a" * 64, "b" * 64


async def test_the_latest_reading_counts_and_no_words_are_a_reading(database: Database) -> None:
    async with database.transaction() as conn:
        assert await image_texts.latest(conn, SHA) is None
        await image_texts.write(conn, SHA, "one", "lamp")
        assert not await image_texts.known(conn, SHA, "two")
    async with database.transaction() as conn:
        await image_texts.write(conn, SHA, "two", "")
    async with database.transaction() as conn:
        assert await image_texts.latest(conn, SHA) == ""
        await image_texts.write(conn, SHA, "one", "lamps")
    async with database.transaction() as conn:
        assert await image_texts.latest(conn, SHA) == "lamps"
        assert await image_texts.known(conn, SHA, "two")
        assert await image_texts.latest(conn, OTHER) is None


async def test_what_was_read_long_ago_is_forgotten(database: Database) -> None:
    async with database.transaction() as conn:
        await image_texts.write(conn, SHA, "one", "lamp")
        await image_texts.write(conn, OTHER, "one", "lamp")
        await conn.execute(
            "UPDATE image_texts SET created_at = now() - interval '8 days' WHERE sha256 = %(sha256)s",
            {"sha256": SHA},
        )
        assert await image_texts.forget(conn) == 1
        assert await image_texts.latest(conn, SHA) is None
        assert await image_texts.forget(conn, timedelta(0)) == 0  # not older than this transaction
        assert await image_texts.latest(conn, OTHER) == "lamp"
