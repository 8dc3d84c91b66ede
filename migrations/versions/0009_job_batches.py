"""Batches: the jobs of one request of a person, with those that follow from them; and the last runs of long checks.

Revision ID: 0009_job_batches
Revises: 0008_resumable_uploads
"""

from alembic import op

revision = "0009_job_batches"
down_revision = "0008_resumable_uploads"
branch_labels = None
depends_on = None

CHANGE = """
CREATE TABLE job_batches (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    request      text,                        -- NULL: no request, such as a schedule
    container_id text NOT NULL,
    principal    text NOT NULL,
    kind         text NOT NULL,               -- of its first job
    internal     boolean NOT NULL,            -- no person requests jobs of that kind
    created_at   timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX job_batches_request ON job_batches (request, container_id, principal) WHERE request IS NOT NULL;
CREATE INDEX job_batches_listed ON job_batches (container_id, id DESC) WHERE NOT internal;

ALTER TABLE jobs
    ADD COLUMN batch_id  bigint,              -- NULL: enqueued before this revision
    ADD COLUMN parent_id bigint;              -- the job that enqueued it; NULL: the request itself did
CREATE INDEX jobs_batch ON jobs (batch_id, (parent_id IS NULL), state, id) WHERE batch_id IS NOT NULL;

-- Checks that take minutes run in the background of a gateway; each principal sees the end of its last one.
CREATE TABLE admin_runs (
    principal   text NOT NULL,
    kind        text NOT NULL,                -- 'doctor', 'model_test'
    run_id      uuid NOT NULL,
    request     jsonb NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    result      jsonb,
    issue       jsonb,                        -- why it has no result
    PRIMARY KEY (principal, kind)
);
"""


def upgrade() -> None:
    op.execute(CHANGE)


def downgrade() -> None:
    raise RuntimeError("revisions are not taken back; restore a backup instead")
