"""Resumable uploads: what was received so far, and the stored parts, which every gateway can continue.

Revision ID: 0008_resumable_uploads
Revises: 0007_saved_searches
"""

from alembic import op

revision = "0008_resumable_uploads"
down_revision = "0007_saved_searches"
branch_labels = None
depends_on = None

CHANGE = """
CREATE TABLE resumable_uploads (
    id              uuid PRIMARY KEY DEFAULT gen_random_uuid(),  -- of the row in uploads, once it is complete
    container_id    text NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    bucket          text NOT NULL,
    principal       text NOT NULL,          -- no other principal may continue it
    filename        text NOT NULL,
    mime            text NOT NULL,
    length          bigint NOT NULL CHECK (length >= 0),
    received        bigint NOT NULL DEFAULT 0 CHECK (received BETWEEN 0 AND length),
    declared_sha256 text,                   -- compared with that of the complete file
    created_at      timestamptz NOT NULL DEFAULT now(),
    expires_at      timestamptz NOT NULL
);
CREATE INDEX resumable_uploads_expiry ON resumable_uploads (expires_at);
CREATE INDEX resumable_uploads_principal ON resumable_uploads (principal);
CREATE INDEX resumable_uploads_container ON resumable_uploads (container_id);

CREATE TABLE upload_parts (
    upload_id uuid NOT NULL REFERENCES resumable_uploads (id) ON DELETE CASCADE,
    start     bigint NOT NULL,              -- offset of its first byte
    bytes     bigint NOT NULL CHECK (bytes > 0),
    bucket    text NOT NULL,
    sha256    text NOT NULL,
    PRIMARY KEY (upload_id, start),
    FOREIGN KEY (bucket, sha256) REFERENCES blobs (bucket, sha256)
);
CREATE INDEX upload_parts_blob ON upload_parts (bucket, sha256);
"""


def upgrade() -> None:
    op.execute(CHANGE)


def downgrade() -> None:
    raise RuntimeError("revisions are not taken back; restore a backup instead")
