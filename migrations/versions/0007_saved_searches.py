"""Searches that principals keep under names.

Revision ID: 0007_saved_searches
Revises: 0006_embedder_references
"""

from alembic import op

revision = "0007_saved_searches"
down_revision = "0006_embedder_references"
branch_labels = None
depends_on = None

CHANGE = """
CREATE TABLE saved_searches (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    principal  text NOT NULL,
    name       text NOT NULL,
    request    jsonb NOT NULL,             -- body of a search, without a cursor
    saved_at   timestamptz NOT NULL DEFAULT now(),
    UNIQUE (principal, name)
);
"""


def upgrade() -> None:
    op.execute(CHANGE)


def downgrade() -> None:
    raise RuntimeError("revisions are not taken back; restore a backup instead")
