"""What a document was made by, and the sender's meta: listings compare both with what is asked for now.

Revision ID: 0003
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

DOCUMENTS = """
ALTER TABLE documents ADD COLUMN recipe text;      -- digest of the versions and settings that made the live generation
ALTER TABLE documents ADD COLUMN given_meta text;  -- digest of the meta its sender gave; NULL when none was
"""


def upgrade() -> None:
    op.execute(DOCUMENTS)


def downgrade() -> None:
    op.execute(
        "ALTER TABLE documents DROP COLUMN given_meta; ALTER TABLE documents DROP COLUMN recipe"
    )
