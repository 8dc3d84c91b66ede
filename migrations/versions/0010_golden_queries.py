"""Golden queries of containers in the database, and evaluation runs with the figures of each query.

Revision ID: 0010_golden_queries
Revises: 0009_job_batches
"""

from alembic import op

revision = "0010_golden_queries"
down_revision = "0009_job_batches"
branch_labels = None
depends_on = None

CHANGE = """
-- One row per container that has, or had, golden queries.
CREATE TABLE golden_sets (
    container_id text PRIMARY KEY REFERENCES containers (id) ON DELETE CASCADE,
    thresholds   jsonb NOT NULL DEFAULT '{}',
    version      bigint NOT NULL DEFAULT 1,  -- grows with every change of the set or of one of its queries
    changed_by   text NOT NULL,
    changed_at   timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE golden_queries (
    container_id text NOT NULL REFERENCES golden_sets (container_id) ON DELETE CASCADE,
    id           text NOT NULL,
    position     bigint NOT NULL,            -- in the set
    query        text NOT NULL,
    expected     jsonb NOT NULL,             -- expect_docs, expect_keywords, expect and min_score, where given
    version      bigint NOT NULL,            -- of the set when this query changed
    PRIMARY KEY (container_id, id)
);
CREATE UNIQUE INDEX golden_queries_position ON golden_queries (container_id, position);
-- Queries that say the same get their answers in one row.
CREATE INDEX golden_queries_query ON golden_queries (container_id, md5(query));

-- Every run is stored; the next one is compared with the last baseline.
ALTER TABLE eval_runs ADD COLUMN baseline boolean NOT NULL DEFAULT true;
ALTER TABLE eval_runs ADD COLUMN verdicts jsonb;  -- one per query; NULL of older runs
ALTER TABLE eval_runs ADD COLUMN job_id bigint;
CREATE INDEX eval_runs_history ON eval_runs (container_id, id DESC);

-- An export reads the golden queries itself.
UPDATE jobs SET payload = payload - 'golden' WHERE kind = 'export' AND payload ? 'golden';
"""


def upgrade() -> None:
    op.execute(CHANGE)


def downgrade() -> None:
    raise RuntimeError("revisions are not taken back; restore a backup instead")
