"""Term vectors are stored as they are. Of those of real texts one in thirty became smaller by compression, all of them
together by one part in a hundred, and each attempt took as long as it takes to read the vector.

Revision ID: 0018
"""

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE chunks ALTER COLUMN tsv SET STORAGE EXTERNAL")


def downgrade() -> None:
    op.execute("ALTER TABLE chunks ALTER COLUMN tsv SET STORAGE EXTENDED")
