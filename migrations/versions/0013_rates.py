"""Rates shared by all workers, and what embedding cost.

Revision ID: 0013
"""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

RATES = """
-- Token buckets, one an endpoint and key. Unlogged: a commit costs no fsync, and after a crash they are full.
CREATE UNLOGGED TABLE embed_rates (
    name         text PRIMARY KEY,
    level        double precision NOT NULL,
    as_of        timestamptz NOT NULL,
    paused_until timestamptz NOT NULL
);

-- Take ``texts`` out of a bucket if it then still holds ``spare``; else how many seconds to wait before asking
-- again. ``pause`` seconds nobody may take any: the server asked for it.
CREATE FUNCTION take_texts(
    bucket text, burst double precision, per_second double precision,
    texts double precision, spare double precision, pause double precision
) RETURNS double precision LANGUAGE plpgsql AS $$
DECLARE
    found  embed_rates;
    moment timestamptz;
    filled double precision;
    wait   double precision;
BEGIN
    INSERT INTO embed_rates (name, level, as_of, paused_until) VALUES (bucket, burst, clock_timestamp(), now())
    ON CONFLICT (name) DO NOTHING;
    SELECT * INTO STRICT found FROM embed_rates WHERE name = bucket FOR UPDATE;
    moment := clock_timestamp();  -- with the lock held: never before that of the last one
    IF pause > 0 THEN
        found.paused_until := greatest(found.paused_until, moment + make_interval(secs => pause));
    END IF;
    filled := least(burst, found.level + per_second * greatest(0, extract(epoch FROM moment - found.as_of)));
    wait := greatest(0, extract(epoch FROM found.paused_until - moment), (texts + spare - filled) / per_second);
    UPDATE embed_rates
    SET level = CASE WHEN wait > 0 THEN filled ELSE filled - texts END,
        as_of = moment, paused_until = found.paused_until
    WHERE name = bucket;
    RETURN wait;
END $$;
"""

USAGE = """
-- What was sent to a remote embedder, by the job that sent it; kept when the job is forgotten.
CREATE TABLE embed_usage (
    job_id       bigint NOT NULL,
    container_id text NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    embedder     text NOT NULL,
    texts        bigint NOT NULL,
    tokens       bigint NOT NULL,
    cost         double precision NOT NULL,
    PRIMARY KEY (job_id, embedder)
);
CREATE INDEX embed_usage_container ON embed_usage (container_id);
"""


def upgrade() -> None:
    op.execute(RATES)
    op.execute(USAGE)


def downgrade() -> None:
    op.execute("DROP TABLE embed_usage")
    op.execute("DROP FUNCTION take_texts")
    op.execute("DROP TABLE embed_rates")
