"""Runs of evaluations, and what a job has to tell at its end (a deletion: what went from which store).

Revision ID: 0011
"""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

JOBS = "ALTER TABLE jobs ADD COLUMN result jsonb"

# The gateway asks for its own kind every second, beside a queue that may hold many thousands of others.
JOBS_EVAL = "CREATE INDEX jobs_eval ON jobs (id) WHERE state = 'queued' AND kind = 'eval'"

# The last of a container, a dataset and a setup that passed its gates is what the next one is compared with.
EVAL_RUNS = """
CREATE TABLE eval_runs (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    container_id text NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    dataset      text NOT NULL,           -- hash of the queries and what is expected of them
    setup        text NOT NULL,           -- mode and fusion
    space_id     bigint,
    figures      jsonb NOT NULL,
    passed       boolean NOT NULL,
    principal    text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX eval_runs_last ON eval_runs (container_id, dataset, setup, id DESC);
"""


def upgrade() -> None:
    op.execute(JOBS)
    op.execute(JOBS_EVAL)
    op.execute(EVAL_RUNS)


def downgrade() -> None:
    op.execute("DROP TABLE eval_runs")
    op.execute("DROP INDEX jobs_eval")
    op.execute("ALTER TABLE jobs DROP COLUMN result")
