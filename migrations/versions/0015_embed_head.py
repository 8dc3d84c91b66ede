"""What a chunk is embedded by is its text with a head, mostly: only the head is stored.

Revision ID: 0015_embed_head
Revises: 0014_token_calls
"""

from alembic import op

revision = "0015_embed_head"
down_revision = "0014_token_calls"
branch_labels = None
depends_on = None

CHANGE = """
-- Of a chunk whose embedded text is embed_head || text; embed_text is then NULL. Older rows have their whole embed_text.
ALTER TABLE chunks ADD COLUMN embed_head text, ALTER COLUMN embed_text DROP NOT NULL,
    ADD CONSTRAINT chunks_embedded CHECK (num_nonnulls(embed_text, embed_head) = 1);
"""


def upgrade() -> None:
    op.execute(CHANGE)


def downgrade() -> None:
    raise RuntimeError("revisions are not taken back; restore a backup instead")
