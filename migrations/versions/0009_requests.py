"""Idempotency keys and quotas of requests.

Revision ID: 0009
"""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

KEYS = """
-- A write that was sent with an Idempotency-Key, and what was answered; forgotten after a day.
CREATE TABLE idempotency_keys (
    principal    text NOT NULL,
    key          text NOT NULL,
    request_hash text NOT NULL,
    body_hash    text,             -- unknown while an upload is still being read
    claim        uuid NOT NULL,    -- of the attempt that may answer
    locked_until timestamptz,      -- none once it is answered; a crashed attempt's passes
    status       integer,
    headers      jsonb,
    body         bytea,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (principal, key),
    CHECK ((locked_until IS NULL) = (status IS NOT NULL AND headers IS NOT NULL AND body IS NOT NULL))
);
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);
"""

USAGE = """
-- Bytes that a token (or a principal without one) has uploaded on a day, UTC.
CREATE TABLE uploaded_bytes (
    who   text NOT NULL,
    day   date NOT NULL,
    bytes bigint NOT NULL,
    PRIMARY KEY (who, day)
);
CREATE INDEX uploaded_bytes_day ON uploaded_bytes (day);
"""

# Of principals with a quota: the owner has none, and its jobs are the many.
QUEUED = """
CREATE INDEX jobs_queued_by ON jobs (principal) WHERE state = 'queued' AND principal <> 'local:you';
"""


def upgrade() -> None:
    op.execute(KEYS)
    op.execute(USAGE)
    op.execute(QUEUED)


def downgrade() -> None:
    op.execute("DROP INDEX jobs_queued_by")
    op.execute("DROP TABLE uploaded_bytes")
    op.execute("DROP TABLE idempotency_keys")
