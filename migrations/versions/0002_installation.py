"""The identity of an installation on shared servers, collections that small containers share, and buckets.

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

-- Blobs are in the bucket of the containers that refer to them. '': the installation's own, or its folder of files.
ALTER TABLE blobs ADD COLUMN bucket text NOT NULL DEFAULT '';
ALTER TABLE blob_refs ADD COLUMN bucket text NOT NULL DEFAULT '';
ALTER TABLE uploads ADD COLUMN bucket text NOT NULL DEFAULT '';
ALTER TABLE archives ADD COLUMN bucket text NOT NULL DEFAULT '';

ALTER TABLE blob_refs DROP CONSTRAINT blob_refs_sha256_fkey;
ALTER TABLE uploads DROP CONSTRAINT uploads_sha256_fkey;
ALTER TABLE archives DROP CONSTRAINT archives_sha256_fkey;
ALTER TABLE blobs DROP CONSTRAINT blobs_pkey;
ALTER TABLE blobs ADD PRIMARY KEY (bucket, sha256);
ALTER TABLE blob_refs ADD FOREIGN KEY (bucket, sha256) REFERENCES blobs (bucket, sha256);
ALTER TABLE uploads ADD FOREIGN KEY (bucket, sha256) REFERENCES blobs (bucket, sha256);
ALTER TABLE archives ADD FOREIGN KEY (bucket, sha256) REFERENCES blobs (bucket, sha256);

DROP INDEX blob_refs_sha, uploads_sha, archives_sha;
CREATE INDEX blob_refs_blob ON blob_refs (bucket, sha256);
CREATE INDEX uploads_blob ON uploads (bucket, sha256);
CREATE INDEX archives_blob ON archives (bucket, sha256);

-- Last, since searches wait for this lock. Set when a container is created; it never changes.
ALTER TABLE containers ADD COLUMN bucket text NOT NULL DEFAULT '';
"""


def upgrade() -> None:
    op.execute(CHANGE)


def downgrade() -> None:
    raise RuntimeError("revisions are not taken back; restore a backup instead")
