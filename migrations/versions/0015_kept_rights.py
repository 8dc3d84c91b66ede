"""Answers kept for idempotency keys know by which rights they were given.

Revision ID: 0015
"""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE idempotency_keys ADD COLUMN rights jsonb")


def downgrade() -> None:
    op.execute("ALTER TABLE idempotency_keys DROP COLUMN rights")
