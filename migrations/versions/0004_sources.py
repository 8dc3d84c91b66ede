"""Sources: the folders that are synced into a container.

Revision ID: 0004_sources
Revises: 0003_agents
"""

from alembic import op

revision = "0004_sources"
down_revision = "0003_agents"
branch_labels = None
depends_on = None

CHANGE = """
CREATE TABLE sources (
    container_id text NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    id          uuid NOT NULL,             -- the client that syncs the folder knows it; a take-over gives another one
    root        text NOT NULL,             -- its documents are below file:///<root>/
    host        text NOT NULL,             -- the computer that has the folder, and the folder's path there
    folder      text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    synced_at   timestamptz,               -- its last complete listing
    PRIMARY KEY (container_id, id),
    UNIQUE (container_id, root)
);
"""


def upgrade() -> None:
    op.execute(CHANGE)


def downgrade() -> None:
    raise RuntimeError("revisions are not taken back; restore a backup instead")
