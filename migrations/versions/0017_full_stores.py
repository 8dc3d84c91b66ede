"""Which stores said that they are full: workers meet it, gateways refuse what would be written.

Revision ID: 0017
"""

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

# Of interest for a minute: unlogged, so that a note costs no room in a log whose disk may be full as well.
UP = """
CREATE UNLOGGED TABLE full_stores (
    service text PRIMARY KEY CHECK (service IN ('postgres', 'qdrant', 'minio')),
    said_at timestamptz NOT NULL
);
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute("DROP TABLE full_stores")
