"""Locks of a session are free at once when their block ends, however it ends."""

from __future__ import annotations

import pytest

from latent_core.db.connection import Database
from latent_core.db.doctor import checks
from latent_core.domain.errors import Conflict

END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %(name)s"


async def test_the_lock_of_a_doctor_is_free_as_soon_as_its_run_ends(database: Database) -> None:
    for number in range(40):
        with pytest.raises(KeyError):
            async with checks.alone(database):
                raise KeyError(number)


async def test_one_doctor_at_a_time(database: Database) -> None:
    async with checks.alone(database):
        with pytest.raises(Conflict, match="another doctor run"):
            async with checks.alone(database):
                pass


async def test_a_lost_connection_does_not_hide_why_a_run_ended(database: Database) -> None:
    async def lose_it() -> None:
        async with checks.alone(database), database.transaction() as conn:
            await conn.execute(END, {"name": "latent doctor"})
            raise KeyError

    with pytest.raises(KeyError):
        await lose_it()
