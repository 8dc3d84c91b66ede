"""Trigram signatures have other bits: those that are there let everything through until their text is stored again.

Revision ID: 0014
"""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

LET_THROUGH = "UPDATE signatures SET bits = repeat('1', 8192)::bit varying"


def upgrade() -> None:
    op.execute(LET_THROUGH)


def downgrade() -> None:
    op.execute(LET_THROUGH)
