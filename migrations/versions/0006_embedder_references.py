"""References of remote embedders: a text and its vector, which tell whether a server still has the same model.

Revision ID: 0006_embedder_references
Revises: 0005_understanding
"""

from alembic import op

revision = "0006_embedder_references"
down_revision = "0005_understanding"
branch_labels = None
depends_on = None

CHANGE = """
CREATE TABLE embedder_references (
    space       text PRIMARY KEY,          -- EmbeddingModel.key
    text        text NOT NULL,             -- embedded as a document when the model was first used
    vector      bytea NOT NULL,            -- float32, little-endian
    max_tokens  integer CHECK (max_tokens >= 0),  -- texts are sent in parts of so many; 0: whole; NULL: not read yet
    created_at  timestamptz NOT NULL DEFAULT now()
);
"""


def upgrade() -> None:
    op.execute(CHANGE)


def downgrade() -> None:
    raise RuntimeError("revisions are not taken back; restore a backup instead")
