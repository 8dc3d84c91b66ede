"""Finished follow-up jobs are found by when they ended.

Revision ID: 0016_ended_follow_ups
Revises: 0015_embed_head
"""

from alembic import op

revision = "0016_ended_follow_ups"
down_revision = "0015_embed_head"
branch_labels = None
depends_on = None

CHANGE = """
-- Of jobs that follow from each write, that no person requested and that have nothing to say: they are deleted after
-- some minutes.
CREATE INDEX jobs_ended_follow_ups ON jobs (finished_at)
    WHERE state = 'done' AND kind IN ('render', 'page_words', 'dedup') AND parent_id IS NOT NULL AND warnings = '[]';
"""


def upgrade() -> None:
    op.execute(CHANGE)


def downgrade() -> None:
    raise RuntimeError("revisions are not taken back; restore a backup instead")
