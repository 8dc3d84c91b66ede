"""Web pages: what the server said about the live version, for asking whether it has changed.

Revision ID: 0002
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Of a live generation that was fetched: etag, last_modified, final_url, mime, filename.
VALIDATORS = "ALTER TABLE documents ADD COLUMN validators jsonb"


def upgrade() -> None:
    op.execute(VALIDATORS)


def downgrade() -> None:
    op.execute("ALTER TABLE documents DROP COLUMN validators")
