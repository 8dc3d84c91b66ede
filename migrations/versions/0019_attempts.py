"""One rule says what counts as an attempt: no quarantine, no count of lost leases, and pauses have an age.

Revision ID: 0019
"""

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

COLUMNS = """
ALTER TABLE jobs
    ADD COLUMN waits_for text CHECK (waits_for IN ('time', 'key')),  -- of a queued job; NULL: it is in line by rank
    ADD COLUMN paused_since timestamptz;                             -- first pause, plus the time in line since then
UPDATE jobs SET waits_for = CASE lane WHEN 'delayed' THEN 'time' ELSE 'key' END WHERE lane IN ('delayed', 'waiting');
DROP INDEX jobs_claim, jobs_fair, jobs_due, jobs_keys;
ALTER TABLE jobs DROP COLUMN lane, DROP COLUMN lost_leases;
CREATE INDEX jobs_claim ON jobs (priority DESC, rank, id) WHERE state = 'queued' AND waits_for IS NULL;
CREATE INDEX jobs_fair ON jobs (container_id, priority, rank) WHERE state = 'queued' AND waits_for IS NULL;
CREATE INDEX jobs_due ON jobs (run_at, id) WHERE state = 'queued' AND waits_for = 'time';
CREATE INDEX jobs_keys ON jobs (waits_for, doc_key, priority DESC, rank, id)
    WHERE state = 'queued' AND doc_key IS NOT NULL;
"""

FUNCTIONS = """
-- The rank at which the line is being served, at one priority.
CREATE OR REPLACE FUNCTION queue_head(wanted_priority integer) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT coalesce(
        (SELECT rank FROM jobs WHERE state = 'queued' AND waits_for IS NULL AND priority = wanted_priority
         ORDER BY rank, id LIMIT 1),
        1)
$$;

-- The next rank of a container, at one priority: one behind its last, and never ahead of the head.
CREATE OR REPLACE FUNCTION queue_end(wanted_priority integer, wanted_container text) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT greatest(
        queue_head(wanted_priority),
        (SELECT rank + 1 FROM jobs
         WHERE state = 'queued' AND waits_for IS NULL AND container_id = wanted_container
           AND priority = wanted_priority
         ORDER BY rank DESC LIMIT 1))
$$;
"""


def upgrade() -> None:
    op.execute(COLUMNS)
    op.execute(FUNCTIONS)


def downgrade() -> None:
    raise RuntimeError("lost leases are not counted any more; restore a backup instead")
