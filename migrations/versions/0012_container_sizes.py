"""Sizes of containers by store, one measurement per day.

Revision ID: 0012_container_sizes
Revises: 0011_query_log
"""

from alembic import op

revision = "0012_container_sizes"
down_revision = "0011_query_log"
branch_labels = None
depends_on = None

CHANGE = """
CREATE TABLE container_sizes (
    container_id     text NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    day              date NOT NULL,               -- UTC; the last measurement of a day stays
    measured_at      timestamptz NOT NULL DEFAULT now(),
    documents        bigint NOT NULL,             -- live ones, and their chunks
    chunks           bigint NOT NULL,
    postgres_rows    bigint NOT NULL,             -- of all generations
    postgres_bytes   bigint NOT NULL,             -- of these rows, with their share of the indexes
    vectors          bigint NOT NULL,             -- in all collections of its spaces
    vector_bytes     bigint NOT NULL,             -- of these vectors as float32
    originals        bigint NOT NULL,
    original_bytes   bigint NOT NULL,
    page_files       bigint NOT NULL,             -- page images, thumbnails, pages as PDF
    page_file_bytes  bigint NOT NULL,
    archives         bigint NOT NULL,             -- exports and backups
    archive_bytes    bigint NOT NULL,
    PRIMARY KEY (container_id, day)
);
"""


def upgrade() -> None:
    op.execute(CHANGE)


def downgrade() -> None:
    raise RuntimeError("revisions are not taken back; restore a backup instead")
