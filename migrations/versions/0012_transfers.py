"""Exports, imports, backups and their schedule.

Revision ID: 0012
"""

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

ARCHIVES = """
-- Files that hold a container: made by us, or handed in to be imported.
CREATE TABLE archives (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind         text NOT NULL CHECK (kind IN ('export', 'backup', 'import')),
    container_id text NOT NULL,          -- no reference: a backup outlives its container
    sha256       text NOT NULL REFERENCES blobs (sha256),
    bytes        bigint NOT NULL,
    filename     text NOT NULL,
    vectors      boolean NOT NULL DEFAULT true,
    blobs        boolean NOT NULL DEFAULT true,
    totals       jsonb NOT NULL DEFAULT '{}',
    contents_key text,                   -- of what the container held when it was written
    job_id       bigint,
    created_at   timestamptz NOT NULL DEFAULT now(),
    verified_at  timestamptz
);
CREATE INDEX archives_container ON archives (container_id, kind, id DESC);
CREATE INDEX archives_sha ON archives (sha256);
"""

FOUNDINGS = """
-- Containers that an import is building behind a tombstone: lifting it makes all of them visible at once.
CREATE TABLE foundings (
    container_id text PRIMARY KEY REFERENCES containers (id) ON DELETE CASCADE,
    job_id       bigint NOT NULL
);
"""

SCHEDULES = """
-- When what recurs was last due: a time that passed while nobody ran is caught up once.
CREATE TABLE schedules (
    container_id text NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    task         text NOT NULL,
    cron         text NOT NULL,
    last_at      timestamptz NOT NULL,
    PRIMARY KEY (container_id, task)
);
"""


def upgrade() -> None:
    for statements in (ARCHIVES, FOUNDINGS, SCHEDULES):
        op.execute(statements)


def downgrade() -> None:
    for table in ("schedules", "foundings", "archives"):
        op.execute(f"DROP TABLE {table}")
