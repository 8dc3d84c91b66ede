"""Buckets that manifests name: each blob is in the bucket of the containers that refer to it.

Revision ID: 0003_blob_buckets
Revises: 0002_installation
"""

from alembic import op

revision = "0003_blob_buckets"
down_revision = "0002_installation"
branch_labels = None
depends_on = None

CHANGE = """
-- '': the installation's own bucket, or its folder of files. Set when the container is created; it never changes.
ALTER TABLE containers ADD COLUMN bucket text NOT NULL DEFAULT '';

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
"""


def upgrade() -> None:
    op.execute(CHANGE)


def downgrade() -> None:
    raise RuntimeError("revisions are not taken back; restore a backup instead")
