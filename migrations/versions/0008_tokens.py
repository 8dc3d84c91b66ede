"""Tokens: who may ask, for what, and until when. Of a token itself only its SHA-256 is kept.

Revision ID: 0008
"""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

TOKENS = """
CREATE TABLE tokens (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sha256       bytea NOT NULL UNIQUE CHECK (octet_length(sha256) = 32),
    principal    text NOT NULL,           -- as the manifests' roles name it
    name         text NOT NULL,           -- what it is for; two of a name may live at a time, for rotation
    scopes       text[] NOT NULL CHECK (cardinality(scopes) > 0 AND scopes <@ ARRAY['read', 'ingest', 'admin']),
    containers   text[],                  -- NULL: all that the principal's roles reach
    created_by   text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz,
    last_used_at timestamptz,             -- written at most once a minute, into the same page: no index names it
    revoked_at   timestamptz
) WITH (fillfactor = 80);
CREATE INDEX tokens_named ON tokens (principal, name);
"""

# The trail of all containers is read newest first by id; of one action or principal, by the way.
AUDIT = "CREATE INDEX audit_principal ON audit (principal, id DESC)"


def upgrade() -> None:
    op.execute(TOKENS)
    op.execute(AUDIT)


def downgrade() -> None:
    op.execute("DROP INDEX audit_principal")
    op.execute("DROP TABLE tokens")
