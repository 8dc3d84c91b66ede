"""Scopes of tokens for agents that write.

Revision ID: 0003_agents
Revises: 0002_installation
"""

from alembic import op

revision = "0003_agents"
down_revision = "0002_installation"
branch_labels = None
depends_on = None

CHANGE = """
-- A token that names containers has its scopes there without a role. Older tokens gain nothing by that: their
-- principal still needs the role, and each old scope becomes exactly what it allowed.
ALTER TABLE tokens ADD COLUMN needs_role boolean NOT NULL DEFAULT false;
UPDATE tokens SET needs_role = true;
ALTER TABLE tokens DROP CONSTRAINT tokens_scopes_check;
UPDATE tokens SET scopes = (
    SELECT array_agg(scope ORDER BY scope) FROM (
        SELECT unnest(CASE old WHEN 'ingest' THEN ARRAY['write', 'delete'] WHEN 'admin' THEN ARRAY['admin', 'create']
                      ELSE ARRAY[old] END) AS scope
        FROM unnest(tokens.scopes) AS old
    ) renamed
);
ALTER TABLE tokens ADD CONSTRAINT tokens_scopes_check CHECK (
    cardinality(scopes) > 0 AND scopes <@ ARRAY['read', 'write', 'delete', 'create', 'admin']
);
"""


def upgrade() -> None:
    op.execute(CHANGE)


def downgrade() -> None:
    raise RuntimeError("revisions are not taken back; restore a backup instead")
