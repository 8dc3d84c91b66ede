"""The identity of an installation on shared servers, and collections that small containers share.

Revision ID: 0002_installation
Revises: 0001_initial
"""

from alembic import op

revision = "0002_installation"
down_revision = "0001_initial"
branch_labels = None
depends_on = None

CHANGE = """
-- One row, written at the first start. Buckets and vector collections on servers are below its id.
CREATE TABLE installation (
    single      boolean PRIMARY KEY DEFAULT true CHECK (single),
    id          text NOT NULL CHECK (id ~ '^[0-9a-f]{12}$'),
    holder      text NOT NULL,           -- '<system_identifier>/<oid>' of the database that may write; a copy has another
    created_at  timestamptz NOT NULL DEFAULT now(),
    adopted_at  timestamptz,             -- when `latent adopt` last changed the holder
    max_collections integer              -- beyond it new small containers share collections; NULL: no bound
);

ALTER TABLE spaces ADD COLUMN shared text;         -- the shared collection that holds its points; NULL: one of its own
ALTER TABLE former_spaces ADD COLUMN shared text;
"""


def upgrade() -> None:
    op.execute(CHANGE)


def downgrade() -> None:
    raise RuntimeError("revisions are not taken back; restore a backup instead")
