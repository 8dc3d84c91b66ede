"""The last line of defence: what Postgres will not store is the sender's mistake, not an outage."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from latent_core.db.connection import Database
from latent_core.domain.errors import Invalid, Unavailable


@pytest.mark.parametrize(
    ("statement", "value"),
    [
        ("SELECT %(value)s::text", "a\x00b"),
        ("SELECT %(value)s::text", "a\ud800b"),
        ("SELECT %(value)s::jsonb", '{"a": "\\u0000"}'),
        ("SELECT %(value)s::jsonb", "no json"),
        ("SELECT %(value)s::integer", 2**40),
        ("SELECT %(value)s::timestamptz", "999999-01-01"),
    ],
)
async def test_a_value_that_cannot_be_stored_is_invalid(
    database: Database, statement: str, value: Any
) -> None:
    with pytest.raises(Invalid):
        async with database.transaction() as conn:
            await conn.execute(statement, {"value": value})
    await database.ping()


async def test_a_key_too_long_for_its_index_is_invalid(database: Database) -> None:
    with pytest.raises(Invalid, match="cannot store"):
        await _store_a_long_key(database)


async def _store_a_long_key(db: Database) -> None:
    async with db.transaction() as conn:
        await conn.execute("CREATE TEMP TABLE keys (k text PRIMARY KEY) ON COMMIT DROP")
        await conn.execute(
            "INSERT INTO keys SELECT string_agg(md5(n::text), '') FROM generate_series(1, 400) n"
        )


async def test_where_postgres_is_stands_in_the_log_and_not_in_the_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(Unavailable) as caught:
        await Database.open(f"host={tmp_path} dbname=x user=x")
    assert str(tmp_path) not in caught.value.message
    assert any(str(tmp_path) in str(vars(record).get("cause")) for record in caplog.records)
