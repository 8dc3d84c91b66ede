"""A chunk may have no point in a collection: the picture of a page that its embedder refuses. And the spaces whose
collections were ours are known after them: on a server that others use, too, only those are ever dropped.

Revision ID: 0016
"""

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

UP = """
ALTER TABLE point_counts DROP CONSTRAINT point_counts_windows_check;
ALTER TABLE point_counts ADD CONSTRAINT point_counts_windows_check CHECK (windows >= 0);

CREATE TABLE former_spaces (
    id           bigint PRIMARY KEY,
    container_id text NOT NULL,
    removed_at   timestamptz NOT NULL DEFAULT now()
);
"""

DOWN = """
DROP TABLE former_spaces;
DELETE FROM point_counts WHERE windows = 0;
ALTER TABLE point_counts DROP CONSTRAINT point_counts_windows_check;
ALTER TABLE point_counts ADD CONSTRAINT point_counts_windows_check CHECK (windows > 0);
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
