"""Queries of containers whose manifest asks for a log of them (query_log.keep_days).

Revision ID: 0011_query_log
Revises: 0010_golden_queries
"""

from alembic import op

revision = "0011_query_log"
down_revision = "0010_golden_queries"
branch_labels = None
depends_on = None

CHANGE = """
-- Says nothing of who searched.
CREATE TABLE query_log (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    container_id text NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    at           timestamptz NOT NULL,
    query        text NOT NULL,
    mode         text NOT NULL,
    filtered     boolean NOT NULL,   -- filters or exact terms limited it
    containers   integer NOT NULL,   -- searched together
    hits         integer NOT NULL,   -- of this container on the first page
    all_hits     integer NOT NULL,   -- of all searched containers on the first page
    relevance    real                -- of the best of them; NULL if it was not measured
);
CREATE INDEX query_log_container ON query_log (container_id, id DESC);
"""


def upgrade() -> None:
    op.execute(CHANGE)


def downgrade() -> None:
    raise RuntimeError("revisions are not taken back; restore a backup instead")
